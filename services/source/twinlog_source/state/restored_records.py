"""The records that a restore writes: those of the file, corrected by the verdicts. No I/O."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog.wire import decode_checkpoint
from twinlog.wire.offset_sync import decode_offset_sync
from twinlog.wire.source_offset import decode_source_offset_key, encode_source_offset, source_offset_key
from twinlog_source.config import SourceFlow
from twinlog_source.log.fact_records import fact_record, parse_control
from twinlog_source.log.facts import MOST_SLOTS, OwnerFact, ZeroFact
from twinlog_source.log.gaps import parse_gap_identity
from twinlog_source.state.judgement import Outcome, Verdict
from twinlog_source.state.state_file import FlowState, Role, StateRecord

_NOT_RESTORED = frozenset({"claim", "proof", "restore"})
"""Facts of the positions topic that are derived, or belong to the import itself."""
_OF_A_POSITION = frozenset({"zero", "epochs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredRecords:
    state: FlowState
    """The file."""
    flow: SourceFlow
    verdicts: Mapping[TopicPartition, tuple[bool, Verdict]]
    """By source partition: whether its copy keeps the source's offsets, and where it continues."""
    gone: Collection[str]
    """Source topics that are not restored."""
    without_moves: bool
    now_ms: int

    def of(self, role: Role) -> Iterator[StateRecord]:
        """The records of one topic, in the file's order."""
        if role is Role.POSITIONS:
            yield from self._positions()
        elif role is not Role.MOVES or not self.without_moves:
            policy, alias = self.flow.policy, self.flow.flow.source
            copies = {policy.format_remote_topic(alias, topic) for topic in self.gone}
            for record in self.state.of(role):
                if not _is_about(record, self.gone, copies):
                    yield _without_timers(record) if role is Role.MOVES else record

    def _positions(self) -> Iterator[StateRecord]:
        flow, connector = self.flow, self.flow.settings.connector_name
        alias = flow.flow.source
        stays = {
            each
            for each, (preserved, verdict) in self.verdicts.items()
            if verdict.outcome is Outcome.AS_EXPORTED
            or (verdict.outcome is Outcome.DERIVED and preserved)  # The end of the copy is its position.
        }
        for record in self.state.of(Role.POSITIONS):
            position = decode_source_offset_key(record.key, connector=connector)
            if position is not None:
                if position.partition in stays:
                    yield record
                continue
            if parse_gap_identity(alias, record.key) is not None:
                yield record
                continue
            fact = parse_control(alias, record.key, record.value)
            if fact is None or fact.kind in _NOT_RESTORED or fact.topic in self.gone:
                continue
            if fact.kind in _OF_A_POSITION:
                if TopicPartition(fact.topic or "", fact.partition or 0) in stays:
                    yield record
            elif isinstance(fact.fact, OwnerFact):
                slots = min(MOST_SLOTS, max(fact.fact.slots, flow.settings.max_slots or 0))
                owner = replace(fact.fact, slots=slots, left_at=(), left_at_rest=False)
                key, value = fact_record(alias, owner)
                yield replace(record, key=key, value=value)
            else:
                yield record
        for partition, (_, verdict) in self.verdicts.items():
            if verdict.position is None or partition in stays:
                continue
            if verdict.position:
                mark: tuple[bytes, bytes | None] = (
                    source_offset_key(alias, partition, connector=connector),
                    encode_source_offset(verdict.position),
                )
            else:
                mark = fact_record(alias, ZeroFact(partition=partition))
            yield StateRecord(role=Role.POSITIONS, key=mark[0], value=mark[1], timestamp_ms=self.now_ms)


def _is_about(record: StateRecord, topics: Collection[str], copies: Collection[str]) -> bool:
    """Whether a record is about topics that are not restored, or about their copies."""
    try:
        if record.role is Role.OFFSET_SYNCS:
            return decode_offset_sync(record.key, record.value).partition.topic in topics
        if record.role is Role.CHECKPOINTS:
            return decode_checkpoint(record.key, record.value).partition.topic in copies
    except WireFormatError:
        return False
    return False


def _without_timers(record: StateRecord) -> StateRecord:
    """Remove since when groups are gone from the source: they may have returned since. The grace period
    begins again."""
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return record
    if not isinstance(value, dict) or "gone_ms" not in value:
        return record
    return replace(record, value=json.dumps({**value, "gone_ms": {}}, separators=(",", ":")).encode())
