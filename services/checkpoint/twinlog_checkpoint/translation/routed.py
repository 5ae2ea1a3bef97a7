"""Offsets of topics whose records go to several topics, one by one."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec, TopicAdmin
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import bounds_or_errors, is_absent
from twinlog_checkpoint.translation.translation import (
    FloorRule,
    LogBounds,
    SourcePosition,
    Translation,
    Translator,
    Verdict,
    counted,
    within,
    without_floor,
)

_AT_START = "before the first record that took this route: at the start of its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartTranslator:
    """Some positions have a translator of their own."""

    is_apart: Callable[[TopicPartition], bool]
    apart: Translator
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        apart = {each for each in positions if self.is_apart(each.partition)}
        answers = await self.otherwise.translate([each for each in positions if each not in apart])
        return {**answers, **(await self.apart.translate(apart) if apart else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTranslator:
    """Into a route, by its offset syncs: an offset lies at the record of the last sync before it, or behind
    that."""

    floor: FloorRule
    target: LogSide
    counterpart: Callable[[TopicPartition], TopicPartition]

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        copies = {each.partition: self.counterpart(each.partition) for each in positions}
        # A sync may come before the marker that makes its record readable.
        logs = await bounds_or_errors(self.target.admin, set(copies.values()), OffsetSpec.LATEST)
        return {
            each: self.target.unread(log := logs.get(copies[each.partition]))
            or _placed(counted(self.floor.translate_one(each)), log)
            for each in positions
        }


def _placed(floor: Translation, log: LogBounds | KafkaError | None) -> Translation:
    if not isinstance(log, LogBounds) or floor.verdict not in (Verdict.FLOOR, Verdict.TOO_OLD):
        return floor
    if floor.verdict is Verdict.TOO_OLD:
        # All that the log has lies at its start or behind it, so this is never ahead.
        return Translation(verdict=Verdict.MAPPED, downstream_offset=log.start, message=_AT_START)
    found = within(floor, log)
    return replace(found, verdict=Verdict.MAPPED) if found.verdict is Verdict.FLOOR else found


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWayBack:
    """From copies to their topic: an offset of one of them says nothing of what was read in the others. What
    took a route stays there when the routers have left the file, as long as its topic exists."""

    routed_to: Callable[[TopicPartition], Collection[str]]
    """Topics of the target to which records of this partition's topic go, or went once."""
    target: TopicAdmin
    otherwise: Translator

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        routed_to = {each: self.routed_to(each.partition) for each in positions}
        asked = {topic for topics in routed_to.values() for topic in topics}
        found = await self.target.describe_topics(asked) if asked else {}
        gone = {topic for topic, answer in found.items() if is_absent(answer)}
        lost = {each for each, topics in routed_to.items() if not gone.issuperset(topics)}
        why = without_floor(
            "records of its topic are, or were, routed to several topics, and no offset of one leads back"
        )
        others = await self.otherwise.translate([each for each in positions if each not in lost])
        return {**others, **dict.fromkeys(lost, why)}
