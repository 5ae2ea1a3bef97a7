"""The gap ledger: ranges of source records that will never be on the target.

A gap is a record of `mm2-offsets.<A>.internal` under a connector name of Twinlog's own, which Connect
ignores. Its key contains partition, first offset and reason, so compaction keeps all gaps of a partition, and
a gap that is found again replaces itself.

A copy that is slower than a short retention keeps finding gaps. `tidied` bounds the ledger: it joins adjacent
ranges, and of more than `MOST_RANGES` the oldest ones. The sum of lost offsets stays exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from twinlog.model import Flow, TopicPartition
from twinlog.wire.connect_json import JsonValue
from twinlog.wire.source_offset import (
    GAP_CONNECTOR,
    ConnectKey,
    decode_connect_key,
    decode_document,
    encode_connect_key,
    encode_document,
)

MOST_RANGES = 100
"""The limit for one partition and reason. Above it, the two oldest ranges are joined."""


class GapReason(StrEnum):
    TARGET_RECREATED = "TARGET_RECREATED"
    """Only the former target topic had these records."""
    SKIPPED_BY_OPERATOR = "SKIPPED_BY_OPERATOR"
    """Left out by `twinlog positions set`."""


GapIdentity = tuple[TopicPartition, int, str]
"""Partition, first offset, reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBounds:
    """The bounds of a log of the source."""

    start: int
    """First offset."""
    end: int
    """First offset after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    partition: TopicPartition
    from_offset: int
    to_offset: int
    """First offset after the gap."""
    reason: str
    """RETENTION, TRUNCATION, TOPIC_RECREATED, TARGET_RECREATED, TARGET_TRUNCATED, SKIPPED_BY_OPERATOR,
    CORRUPT_BATCH."""
    found_at_ms: int
    topic_id: str = ""
    """Of the source topic whose offsets these are; empty = not known."""
    lost_of_joined: int | None = None
    """How many offsets of a joined range are lost, if copied records lie inside it; None: all of them."""
    acknowledged_by: str = ""
    """Who acknowledged the loss; empty = nobody. A gap that is found again is no longer acknowledged."""
    acknowledged_at_ms: int = 0

    @property
    def identity(self) -> GapIdentity:
        """Two findings with the same identity are the same gap."""
        return self.partition, self.from_offset, self.reason

    @property
    def lost_offsets(self) -> int:
        """How many offsets of the range are lost."""
        return self.to_offset - self.from_offset if self.lost_of_joined is None else self.lost_of_joined

    @property
    def is_loss(self) -> bool:
        """Whether the records are lost on both sides. After a truncation the target has what the source lost;
        records that an operator skipped are still on the source."""
        return self.reason not in ("TRUNCATION", GapReason.SKIPPED_BY_OPERATOR)


def lost_with_target(partition: TopicPartition, from_offset: int, to_offset: int, *, found_at_ms: int) -> Gap:
    """The gap of records that only the deleted topic of the target had."""
    return Gap(
        partition=partition,
        from_offset=from_offset,
        to_offset=to_offset,
        reason=GapReason.TARGET_RECREATED,
        found_at_ms=found_at_ms,
    )


def passed_over(
    partition: TopicPartition,
    *,
    from_offset: int,
    to_offset: int,
    bounds: SourceBounds | None,
    found_at_ms: int,
) -> list[Gap]:
    """The gaps of a move: what the source had already lost, and what is skipped although the source has it.
    `bounds` of the source's log; None = unknown. A move may also end the state in which the source's log ends
    before the position."""
    found: list[Gap] = []

    def note(begin: int, end: int, reason: str) -> None:
        if begin < end:
            found.append(
                Gap(
                    partition=partition,
                    from_offset=begin,
                    to_offset=end,
                    reason=reason,
                    found_at_ms=found_at_ms,
                )
            )

    lost_to = max(from_offset, min(to_offset, bounds.start)) if bounds is not None else from_offset
    note(from_offset, lost_to, "RETENTION")
    note(lost_to, to_offset, GapReason.SKIPPED_BY_OPERATOR)
    if bounds is not None:
        note(max(bounds.end, to_offset), from_offset, "TRUNCATION")
    return found


def tidied(gaps: Iterable[Gap]) -> list[Gap]:
    """The same losses in at most `MOST_RANGES` ranges for each partition and reason.

    Adjacent ranges are joined, as retention produces them, and a range inside another one of the same reason
    is dropped. If that does not suffice, the two that begin first are joined.
    """
    tidy: list[Gap] = []
    by_subject = sorted(gaps, key=lambda gap: (*_subject(gap), gap.from_offset))
    for (_, reason, *_), of_subject in groupby(by_subject, key=_subject):
        ranges: list[Gap] = []
        for gap in of_subject:
            if reason == "RETENTION" and ranges and gap.from_offset <= ranges[-1].to_offset:
                ranges[-1] = _joined(ranges[-1], gap)
            else:
                ranges.append(gap)
        while len(ranges) > MOST_RANGES:
            ranges[:2] = [_joined(ranges[0], ranges[1])]
        tidy += ranges
    return tidy


def _subject(gap: Gap) -> tuple[TopicPartition, str, bool, str]:
    """Acknowledged ranges are never joined with others, nor those of two topics."""
    return gap.partition, gap.reason, bool(gap.acknowledged_by), gap.topic_id


def _joined(first: Gap, second: Gap) -> Gap:
    """Join two ranges; `first` begins no later than `second`."""
    to_offset = max(first.to_offset, second.to_offset)
    if second.to_offset <= first.to_offset:
        lost = first.lost_offsets
    else:
        overlap = max(0, first.to_offset - second.from_offset)
        lost = first.lost_offsets + max(0, second.lost_offsets - overlap)
    return replace(
        first,
        to_offset=to_offset,
        found_at_ms=max(first.found_at_ms, second.found_at_ms),
        lost_of_joined=None if lost == to_offset - first.from_offset else lost,
    )


def gap_record(flow: Flow, gap: Gap) -> tuple[bytes, bytes]:
    """Key and value of a gap."""
    value: dict[str, JsonValue] = {"to": gap.to_offset, "found_at_ms": gap.found_at_ms}
    if gap.topic_id:
        value["topic_id"] = gap.topic_id
    if gap.lost_of_joined is not None:
        value["lost"] = gap.lost_of_joined
    if gap.acknowledged_by:
        value["acknowledged_by"] = gap.acknowledged_by
        value["acknowledged_at_ms"] = gap.acknowledged_at_ms
    return gap_key(flow, gap.identity), encode_document(value)


def gap_key(flow: Flow, identity: GapIdentity) -> bytes:
    """The key of a gap, also for its tombstone."""
    partition, from_offset, reason = identity
    key = ConnectKey(
        connector=GAP_CONNECTOR,
        partition={
            "cluster": flow.source,
            "partition": partition.partition,
            "topic": partition.topic,
            "from": from_offset,
            "reason": reason,
        },
    )
    return encode_connect_key(key)


def parse_gap_identity(source_alias: str, key: bytes | None) -> GapIdentity | None:
    """The gap of a source cluster that a record describes; None for every other record."""
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != GAP_CONNECTOR:
        return None
    match decoded.partition:
        case {
            "cluster": str(cluster),
            "topic": str(topic),
            "partition": int(number),
            "from": int(begin),
            "reason": str(reason),
        } if cluster == source_alias:
            return TopicPartition(topic, number), begin, reason
        case _:
            return None


def parse_gap(source_alias: str, key: bytes | None, value: bytes | None) -> Gap | None:
    """Parse a gap of a source cluster; None for every other record, and for a tombstone."""
    identity = parse_gap_identity(source_alias, key)
    if identity is None:
        return None
    match decode_document(value):
        case {"to": int(end), "found_at_ms": int(found_at_ms), **more}:
            lost, by, at = (more.get(name) for name in ("lost", "acknowledged_by", "acknowledged_at_ms"))
            topic_id = more.get("topic_id")
            return Gap(
                partition=identity[0],
                from_offset=identity[1],
                to_offset=end,
                reason=identity[2],
                found_at_ms=found_at_ms,
                topic_id=topic_id if isinstance(topic_id, str) else "",
                lost_of_joined=lost if isinstance(lost, int) else None,
                acknowledged_by=by if isinstance(by, str) else "",
                acknowledged_at_ms=at if isinstance(at, int) else 0,
            )
        case _:
            return None
