"""Suggests remedies for the differences of a report. Pure: changes nothing.

A log can only be appended to: records of a copy stay where they are. Missing records at its end are copied
again after the position is moved back. A compacted copy equals its source once it has the last record of each
key. Anything else needs a new copy: delete and create the topic, and copy it from the source's start. A new
copy lacks the records that the source has deleted: an old copy that still holds such records stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from twinlog.comparison.model import NotComparedReason
from twinlog.errors import ConfigError

_MOST_OFFSET = 2**63 - 1
_ONLY_IN_COPY = frozenset((NotComparedReason.SOURCE_RETENTION, NotComparedReason.EARLIER_TOPIC))
_HEALED_BY_COPYING = frozenset(("MISSING", "CHANGED"))


class Action(StrEnum):
    COPY_FROM = "COPY_FROM"
    """Move the position back: everything from there is copied again, without duplicates."""
    COPY_AGAIN = "COPY_AGAIN"
    """Like COPY_FROM, on a compacted copy: records are duplicated until compaction."""
    NEW_COPY = "NEW_COPY"
    """Only a new copy from the start of the source is equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """For all differences of one partition."""

    topic: str
    partition: int
    differences: int
    action: Action
    offset: int | None
    """Where to copy from; None: from the start."""
    why: str
    commands: tuple[str, ...]
    target_topic: str
    holds_older: bool
    """The copy holds records that the source has deleted."""


def remedies(report: Mapping[str, Any]) -> list[Remedy]:
    """Return the remedies by partition for the JSON report of a verification. Raises ConfigError if it is not
    a report, or has differences of a topic with routes: to copy again would write into all of them."""
    try:
        partitions = {_place(each): each for each in report["partitions"]}
        found = sorted(report["differences"], key=_place)
        routed_from = {each["topic"]: each.get("routed_from") for each in partitions.values()}
        has_routes = set(routed_from.values()) - {None}
        routed = [
            (topic, routed_from[topic] or topic)
            for topic, _ in map(_place, found)
            if topic in has_routes or routed_from[topic]
        ]
        not_compared = report.get("not_compared", ())
        older = {each["topic"] for each in not_compared if each["reason"] in _ONLY_IN_COPY}
        otherwise = {
            _place(each): each["from_offset"]
            for each in not_compared
            if each["reason"] == NotComparedReason.OTHER_TRANSFORMS
        }
        told = [
            _remedy(
                str(report["flow"]),
                partitions[place],
                [*of_partition],
                holds_older=place[0] in older,
                otherwise_from=otherwise.get(place, 0),
            )
            for place, of_partition in groupby(found, key=_place)
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError("it is not a report of twinlog verify") from None
    for name, topic in routed:
        raise ConfigError(
            f"the copy of {name} has records of {topic} that differ; to copy them again would write into its"
            " other routes, too: correct them there"
        )
    return told


def what_was_not_seen(report: Mapping[str, Any]) -> str | None:
    """Why it is unknown whether the copy of a topic has records that the source has deleted: a comparison
    failed, and the log may not begin at its first record. None: it is known."""
    from_first = {
        _place(each) for each in report["partitions"] if each["source_from"] == 0 < each["source_to"]
    }
    for each in report["not_compared"]:
        failed = (
            each["reason"] not in tuple(NotComparedReason)
            or each["reason"] == NotComparedReason.TARGET_OPEN_TRANSACTION
        )
        if failed and _place(each) not in from_first:
            where = "" if each["partition"] is None else f"{each['topic']}-{each['partition']}: "
            return f"{where}{each['reason']} {each['detail']}".strip()
    return None


def _place(each: Mapping[str, Any]) -> tuple[str, int]:
    return each["topic"], each["partition"]


def _remedy(
    flow: str,
    partition: Mapping[str, Any],
    found: list[Mapping[str, Any]],
    *,
    holds_older: bool,
    otherwise_from: int,
) -> Remedy:
    """`otherwise_from`: from this source offset on records were copied with other transforms than the
    report's."""
    kinds = {each["kind"] for each in found}
    offsets = [each["source_offset"] for each in found if each["source_offset"] is not None]
    if any(offset < otherwise_from for offset in offsets):
        action, why = Action.NEW_COPY, "records behind them were copied with other transforms"
    elif kinds == {"MISSING"} and all(each["target_offset"] is None for each in found):
        action, why = Action.COPY_FROM, "only records at the end of the copy are missing"
    elif partition["target_compacted"] and all(map(_is_healed_by_copying, found)):
        action, why = Action.COPY_AGAIN, "the copy is compacted: the last record of each key wins"
    else:
        action, why = Action.NEW_COPY, _why_not(kinds)
        if holds_older:
            why += "; the copy has records that the source no longer has, and a new copy would lack them"
    if not all(isinstance(each, int) and 0 <= each <= _MOST_OFFSET for each in offsets):
        raise ValueError("a source offset is no offset")
    if action is not Action.NEW_COPY and len(offsets) < len(found):
        raise ValueError(f"a {found[0]['kind']} difference without a source offset")
    offset = min(offsets) if action is not Action.NEW_COPY else None
    return Remedy(
        topic=partition["topic"],
        partition=partition["partition"],
        differences=sum(each["count"] for each in found),
        action=action,
        offset=offset,
        why=why,
        commands=_commands(flow, partition, offset),
        target_topic=partition["target_topic"],
        holds_older=holds_older,
    )


def _is_healed_by_copying(difference: Mapping[str, Any]) -> bool:
    """In a compacted copy: of the wrong key of a record there is no later one."""
    return difference["kind"] in _HEALED_BY_COPYING and "key" not in difference.get("changed", ())


def _why_not(kinds: Iterable[str]) -> str:
    if "MISSING" in kinds:
        return "records are missing before others of the copy, and a log can only be appended to"
    return "records inside a log cannot be changed, moved or removed"


def _commands(flow: str, partition: Mapping[str, Any], offset: int | None) -> tuple[str, ...]:
    topic, number = partition["topic"], partition["partition"]
    if offset is not None:
        where = f"--topic {topic} --partition {number} --to {offset}"
        return (f"twinlog positions set '{flow}' {where}",)
    return (
        f"twinlog pause '{flow}' --topic {topic}",
        f"# delete {partition['target_topic']} on the target, and create it with the same settings",
        f"twinlog positions set '{flow}' --topic {topic} --to earliest",
        f"twinlog resume '{flow}' --topic {topic}",
    )
