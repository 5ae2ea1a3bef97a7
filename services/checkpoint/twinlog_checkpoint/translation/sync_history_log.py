"""Keeps what offset syncs say in a compacted topic on the target, so that a start reads no week of them.

The flow's owner writes it after so many new syncs; every process reads it when it starts to follow the syncs.
Nothing depends on it: without it, or where it does not fit the offset-syncs topic, all syncs are read.
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import structlog

from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.history import OffsetPair, SyncHistory
from twinlog_checkpoint.translation.log_scan import INTERNAL_PARTITION
from twinlog_checkpoint.translation.sync_history_record import (
    Head,
    PartitionRecord,
    decode,
    encode_head,
    encode_partition,
)

SAVE_AFTER_SYNCS = 20_000
"""New ones; fewer are read in less than a second."""
_APPENDS_AT_ONCE = 500

_log = structlog.stdlib.get_logger(__name__)


class _Mark(NamedTuple):
    """What a partition was saved as."""

    generation: int
    newest_sync: OffsetPair | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHistory:
    """A whole history."""

    through: int
    """Where reading of the offset-syncs topic continues."""
    records: tuple[PartitionRecord, ...]


@dataclass(slots=True, kw_only=True)
class SyncHistoryLog:
    """One flow's. `load` at each start of reading; `begin` once this process is the owner, then `save`."""

    flow: Flow
    topic: str
    replication_factor: int
    admin: KafkaCluster
    reader_cluster: KafkaCluster
    save_after_syncs: int = SAVE_AFTER_SYNCS
    writer_id: str = ""
    _saved: dict[TopicPartition, _Mark] = field(default_factory=dict)
    _saved_through: int = 0
    _refused: bool = False

    async def load(self, syncs_topic_id: str) -> SavedHistory | None:
        """What was kept of this very offset-syncs topic; None when there is none, or it is not whole.

        Raises TransientKafkaError while the target is away.
        """
        head: Head | None = None
        found: dict[TopicPartition, PartitionRecord] = {}
        try:
            if self.topic not in await self.admin.list_topics():
                return None
            async with self.reader_cluster.reader() as reader:
                place = TopicPartition(self.topic, INTERNAL_PARTITION)
                async for record in committed_records(self.admin, reader, place):
                    match decode(record.key, record.value):
                        case Head() as newest:
                            head = newest
                        case PartitionRecord() as kept:
                            found[kept.partition] = kept
                        case None:
                            pass
        except (FatalKafkaError, WireFormatError) as error:
            _log.warning(
                "sync_history_unreadable",
                flow=str(self.flow),
                topic=self.topic,
                reason=error.reason,
                message=str(error),
            )
            return None
        if head is None or head.syncs_topic_id != syncs_topic_id:
            return None
        records = tuple(record for record in found.values() if record.writer == head.writer)
        if len(records) != head.partitions:
            _log.warning("sync_history_incomplete", flow=str(self.flow), topic=self.topic)
            return None
        return SavedHistory(through=head.through, records=records)

    def begin(self) -> None:
        """This process is the flow's owner from now on: the next `save` writes all again, as its own."""
        self.writer_id = uuid4().hex
        self._saved.clear()
        self._saved_through = 0
        self._refused = False

    def is_due(self, *, through: int, first_offset: int) -> bool:
        """Whether enough syncs came since the last save, or lie in the topic when there was none."""
        return not self._refused and through - max(self._saved_through, first_offset) >= self.save_after_syncs

    async def save(
        self, writer: LogWriter, history: SyncHistory, *, through: int, syncs_topic_id: str
    ) -> None:
        """Write what changed, then the head. Never raises KafkaError: it is tried again after the next pass,
        or not at all where we may not."""
        changed: dict[TopicPartition, _Mark] = {}
        pairs: list[tuple[bytes, bytes]] = []
        partitions = history.partitions()
        # Without a pause in between: all of it is as of `through`.
        for name in partitions:
            of = history.of(name)
            condensed = None if of is None else of.condensed()
            if of is None or condensed is None:
                continue
            mark = _Mark(of.generation, of.newest_sync)
            if self._saved.get(name) == mark:
                continue
            changed[name] = mark
            pairs.append(
                encode_partition(
                    PartitionRecord(
                        writer=self.writer_id, partition=name, through=through, condensed=condensed
                    )
                )
            )
        head = Head(
            writer=self.writer_id,
            syncs_topic_id=syncs_topic_id,
            through=through,
            partitions=len(self._saved.keys() | changed.keys()),
        )
        try:
            await ensure_compacted_topic(
                self.admin, self.topic, replication_factor=self.replication_factor, is_read_whole=True
            )
            await each_at_once(
                pairs,
                lambda pair: self._append(writer, *pair),
                most=_APPENDS_AT_ONCE,
                name="keep syncs",
            )
            await self._append(writer, *encode_head(head))
        except KafkaError as error:
            self._refused = isinstance(error, FatalKafkaError)
            _log.warning(
                "sync_history_not_saved",
                flow=str(self.flow),
                topic=self.topic,
                reason=error.reason,
                message=str(error),
            )
            return
        self._saved.update(changed)
        self._saved_through = through
        _log.info(
            "sync_history_saved",
            flow=str(self.flow),
            topic=self.topic,
            partitions=len(pairs),
            through=through,
        )

    async def _append(self, writer: LogWriter, key: bytes, value: bytes) -> None:
        await writer.append(TopicPartition(self.topic, INTERNAL_PARTITION), key=key, value=value)
