"""Offsets of topics whose records go to several topics, one by one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.log_sides import log_bounds
from twinlog_checkpoint.translation.translation import (
    FloorRule,
    LogBounds,
    SourcePosition,
    Translation,
    Translator,
    Verdict,
    within,
    without_floor,
)

_AT_START = "before the first record that took this route: at the start of its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTranslator:
    """Into a route, by its offset syncs: an offset lies at the record of the last sync before it, or behind
    that."""

    is_route: Callable[[str], bool]
    """Whether a topic is a route, by its name on the source."""
    floor: FloorRule
    target: LogAdmin
    counterpart: Callable[[TopicPartition], TopicPartition]
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        routed = {each for each in positions if self.is_route(each.partition.topic)}
        answers = dict(await self.otherwise.translate([each for each in positions if each not in routed]))
        copies = {each.partition: self.counterpart(each.partition) for each in routed}
        # A sync may come before the marker that makes its record readable.
        logs = await log_bounds(self.target, set(copies.values()), OffsetSpec.LATEST) if copies else {}
        for each in routed:
            answers[each] = _placed(self.floor.translate_one(each), logs.get(copies[each.partition]))
        return answers


def _placed(floor: Translation, log: LogBounds | None) -> Translation:
    if log is None or floor.verdict not in (Verdict.FLOOR, Verdict.TOO_OLD):
        return floor
    if floor.verdict is Verdict.TOO_OLD:
        # All that the log has lies at its start or behind it, so this is never ahead.
        return Translation(verdict=Verdict.MAPPED, downstream_offset=log.start, message=_AT_START)
    found = within(floor, log)
    return replace(found, verdict=Verdict.MAPPED) if found.verdict is Verdict.FLOOR else found


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWayBack:
    """From copies to their topic: an offset of one of them says nothing of what was read in the others."""

    is_routed: Callable[[TopicPartition], bool]
    """Whether a partition of the target has records of a topic that has routes."""
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        lost = {each for each in positions if self.is_routed(each.partition)}
        answers = dict(await self.otherwise.translate([each for each in positions if each not in lost]))
        why = without_floor(
            "records of its topic are routed to several topics, and no offset of one leads back"
        )
        return answers | dict.fromkeys(lost, why)
