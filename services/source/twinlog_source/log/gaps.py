"""The gap ledger: ranges of source records that will never be on the target, kept beside the positions.

A gap is a record of `mm2-offsets.<A>.internal` under a connector name of our own, which Connect leaves
alone. Its key holds where it begins and why, so gaps of one partition stand side by side after compaction,
and a gap that is found again replaces itself.

A copy that stays behind a short retention finds one gap after the other, for ever. `tidied` keeps the ledger
bounded: it joins what touches, and of more ranges than `MOST_RANGES` the oldest, whose sum stays exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
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
"""The limit for one partition and reason. Above it the two oldest ranges become one."""

SKIPPED_BY_OPERATOR = "SKIPPED_BY_OPERATOR"
"""Left out by `twinlog positions set`."""

GapIdentity = tuple[TopicPartition, int, str]
"""Partition, first offset, reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """What a log of the source holds."""

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
    """RETENTION, TRUNCATION, TOPIC_RECREATED, TARGET_RECREATED, TARGET_TRUNCATED, SKIPPED_BY_OPERATOR."""
    found_at_ms: int
    lost_of_joined: int | None = None
    """How many offsets of a range are lost that was joined from several with copied records between them;
    None: all of them."""
    acknowledged_by: str = ""
    """Who said that the loss is known and dealt with; empty = nobody. A gap that is found again is not."""
    acknowledged_at_ms: int = 0

    @property
    def identity(self) -> GapIdentity:
        """What makes it the same gap when it is found again."""
        return self.partition, self.from_offset, self.reason

    @property
    def lost_offsets(self) -> int:
        """How many offsets of the range are lost."""
        return self.to_offset - self.from_offset if self.lost_of_joined is None else self.lost_of_joined

    @property
    def is_loss(self) -> bool:
        """The records are on neither side now. A truncation lost nothing: the target has what the source
        lost. What an operator left out on purpose is on the source still."""
        return self.reason not in ("TRUNCATION", SKIPPED_BY_OPERATOR)


def passed_over(
    partition: TopicPartition,
    *,
    from_offset: int,
    to_offset: int,
    bounds: LogBounds | None,
    found_at_ms: int,
) -> list[Gap]:
    """What a move of the position leaves uncopied: what the source had lost already, and what it still holds.

    `bounds` of the source's log; None = not known. Also a truncation is told that the move
    ends: the log ends before the old position.
    """
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
    note(lost_to, to_offset, SKIPPED_BY_OPERATOR)
    if bounds is not None:
        note(max(bounds.end, to_offset), from_offset, "TRUNCATION")
    return found


def tidied(gaps: Iterable[Gap]) -> list[Gap]:
    """The same losses in as few ranges as the ledger may hold: at most `MOST_RANGES` of each partition and
    reason.

    What retention took bit by bit is one range, and a range inside another one of the same reason was
    recorded before. Where that does not suffice, the two that begin first are joined.
    """
    tidy: list[Gap] = []
    by_subject = sorted(gaps, key=lambda gap: (*_subject(gap), gap.from_offset))
    for (_, reason, _), of_subject in groupby(by_subject, key=_subject):
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


def _subject(gap: Gap) -> tuple[TopicPartition, str, bool]:
    """What is acknowledged is never joined with what is not."""
    return gap.partition, gap.reason, bool(gap.acknowledged_by)


def _joined(first: Gap, second: Gap) -> Gap:
    """Both as one; `first` begins no later than `second`."""
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
    """Which gap of a source cluster a record is about; None for every other record."""
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
    """Read a gap of a source cluster; None for every other record, and for a tombstone."""
    identity = parse_gap_identity(source_alias, key)
    if identity is None:
        return None
    match decode_document(value):
        case {"to": int(end), "found_at_ms": int(found_at_ms), **more}:
            lost, by, at = (more.get(name) for name in ("lost", "acknowledged_by", "acknowledged_at_ms"))
            return Gap(
                partition=identity[0],
                from_offset=identity[1],
                to_offset=end,
                reason=identity[2],
                found_at_ms=found_at_ms,
                lost_of_joined=lost if isinstance(lost, int) else None,
                acknowledged_by=by if isinstance(by, str) else "",
                acknowledged_at_ms=at if isinstance(at, int) else 0,
            )
        case _:
            return None
