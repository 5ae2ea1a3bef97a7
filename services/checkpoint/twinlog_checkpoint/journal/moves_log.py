"""The record of moves on the target, `mm2-failover.<A>.internal`: a compacted topic with one record for each
flow and one for each moved group.

A run writes it after every step that changes something, so an interrupted run can continue. The name of the
topic has the form of MM2's internal topics, so no replicator copies it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter, OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.journal.record import (
    MovedGroup,
    MoveRecord,
    decode_group,
    decode_record,
    encode_group,
    encode_record,
    record_key,
)
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.log_scan import INTERNAL_PARTITION, LogScan

_FETCH_WAIT_SECONDS = 0.5
_APPENDS_AT_ONCE = 500


def failover_topic(flow: Flow) -> str:
    """The name of the topic on the flow's target."""
    return f"mm2-failover.{flow.source}.internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveJournal:
    """Reads and writes the record of one flow. Each call opens and closes its connections."""

    flow: Flow
    cluster: KafkaCluster
    replication_factor: int
    on_record: Callable[[MoveRecord | None], None] = lambda _: None
    """Called with the record that was read or written."""

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
        async with self.cluster.reader() as reader:
            scan = LogScan(admin=self.cluster, reader=reader, topic=self.topic, end=OffsetSpec.LAST_STABLE)
            await scan.begin()
            while not scan.first_pass_done:
                for record in await scan.more(max_wait_seconds=_FETCH_WAIT_SECONDS):
                    if record.value is None or record.key is None:
                        continue
                    if record.key == record_key(self.flow):
                        newest = record.value
                    elif (found := decode_group(self.flow, record.key, record.value)) is not None:
                        groups[found.group] = found
        if newest is None:
            return None
        last = decode_record(newest)
        now = [each for each in groups.values() if each.chain == last.chain]
        before = [each for each in groups.values() if last.chain_before and each.chain == last.chain_before]
        return replace(
            last,
            stood_at={each.group: each.stood_at for each in now},
            left_at={each.group: each.left_at for each in now if each.left_at},
            stood_before={each.group: each.stood_at for each in before},
            left_before={each.group: each.left_at for each in before if each.left_at},
            moved=tuple(sorted({*last.moved, *(each.group for each in now)})),
        )

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
            await self._append(writer, *encode_record(self.flow, record))
        self.on_record(record)

    async def _append(self, writer: LogWriter, key: bytes, value: bytes) -> None:
        await writer.append(TopicPartition(self.topic, INTERNAL_PARTITION), key=key, value=value)
