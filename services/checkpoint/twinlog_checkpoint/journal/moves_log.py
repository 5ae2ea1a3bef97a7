"""The record of moves on the target, `mm2-failover.<A>.internal`: a compacted topic with one record for each
flow, one for each moved group, and one for each part of a large flow's record.

A run writes it after every step that changes something, so an interrupted run can continue. The name of the
topic has the form of MM2's internal topics, so no replicator copies it.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.journal.record import MoveRecord
from twinlog_checkpoint.journal.record_format import (
    MovedGroup,
    decode_group,
    decode_record,
    encode_group,
    encode_record,
    is_large,
    record_key,
    with_groups,
)
from twinlog_checkpoint.journal.record_parts import part_key, part_of
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.log_scan import INTERNAL_PARTITION

_APPENDS_AT_ONCE = 500
_PARTS_AT_ONCE = 4


def failover_topic(flow: Flow) -> str:
    """The name of the topic on the flow's target."""
    return f"mm2-failover.{flow.source}.internal"


@dataclass(slots=True, kw_only=True)
class MoveJournal:
    """Reads and writes the record of one flow. Each call opens and closes its connections.

    The parts of a record are written before it, and removed after another one has replaced it.
    """

    flow: Flow
    cluster: KafkaCluster
    replication_factor: int
    on_record: Callable[[MoveRecord | None], None] = lambda _: None
    """Called with the record that was read or written."""
    _parts: set[str] = field(default_factory=set)
    """The parts that the topic had when it was last read, and those that were written since."""

    @property
    def topic(self) -> str:
        return failover_topic(self.flow)

    async def load(self) -> MoveRecord | None:
        """Return the last move; None when there was none. Raises KafkaError, WireFormatError."""
        found = await self._load()
        self.on_record(found)
        return found

    async def _load(self) -> MoveRecord | None:
        if self.topic not in await self.cluster.list_topics():
            return None
        newest: bytes | None = None
        groups: dict[str, MovedGroup] = {}
        parts: dict[str, bytes] = {}
        async with self.cluster.reader() as reader:
            place = TopicPartition(self.topic, INTERNAL_PARTITION)
            async for record in committed_records(self.cluster, reader, place):
                if record.key is None:
                    continue
                if (part := part_of(self.flow, record.key)) is not None:
                    if record.value is None:
                        parts.pop(part, None)
                    else:
                        parts[part] = record.value
                elif record.value is None:
                    continue
                elif record.key == record_key(self.flow):
                    newest = record.value
                elif (found := decode_group(self.flow, record.key, record.value)) is not None:
                    groups[found.group] = found
        self._parts = set(parts)
        if newest is None:
            return None
        # In a thread a large record does not delay the task that keeps the lease.
        last = await asyncio.to_thread(decode_record, newest, parts) if parts else decode_record(newest)
        return with_groups(last, groups.values())

    async def store(self, record: MoveRecord, *, groups: Collection[str] = ()) -> None:
        """Store the record; return when the target has acknowledged it. `groups` names the groups of
        `stood_at` to write before it. Raises KafkaError."""
        await ensure_compacted_topic(self.cluster, self.topic, replication_factor=self.replication_factor)
        async with self.cluster.writer() as writer:
            pairs = [
                encode_group(
                    self.flow,
                    MovedGroup(
                        group=group,
                        chain=record.chain,
                        stood_at=record.stood_at[group],
                        left_at=record.left_at.get(group, {}),
                    ),
                )
                for group in sorted(groups)
            ]
            await each_at_once(
                pairs, lambda pair: self._append(writer, *pair), most=_APPENDS_AT_ONCE, name="record a group"
            )
            if is_large(record):
                key, value, parts = await asyncio.to_thread(encode_record, self.flow, record)
            else:
                key, value, parts = encode_record(self.flow, record)

            async def write_part(part: str) -> None:
                await self._append(writer, part_key(self.flow, part), parts[part])
                self._parts.add(part)

            await each_at_once(parts, write_part, most=_PARTS_AT_ONCE, name="record a part")
            await self._append(writer, key, value)
            for part in sorted(self._parts - parts.keys()):
                await self._append(writer, part_key(self.flow, part), None)
                self._parts.discard(part)
        self.on_record(record)

    async def _append(self, writer: LogWriter, key: bytes, value: bytes | None) -> None:
        await writer.append(TopicPartition(self.topic, INTERNAL_PARTITION), key=key, value=value)
