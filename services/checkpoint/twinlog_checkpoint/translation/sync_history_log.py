"""Keeps what offset syncs say in a compacted topic on the target, so that a start reads no week of them.

The flow's owner writes it after so many new syncs; every process reads it when it starts to follow the syncs.
Nothing depends on it: without it, or where it does not fit the offset-syncs topic, all syncs are read.

Records of `mm2-sync-history.<A>.internal`: what is kept of the offset syncs of each partition, and a head
that says up to where. JSON; pure.

Invariant: only records of the head's writer count, and only all of them. So what an earlier owner still
writes makes the whole unusable, and never wrong.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple
from uuid import uuid4

import structlog

from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog.wire import TopicIds
from twinlog_checkpoint.side_by_side import each_at_once
from twinlog_checkpoint.translation.history import CondensedPairs, OffsetPair, SyncHistory
from twinlog_checkpoint.translation.log_sides import INTERNAL_PARTITION

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Written behind the records that it speaks of."""

    writer: str
    syncs_topic_id: str
    """Kafka's id of the offset-syncs topic; "" where the broker has none."""
    through: int
    """Every sync before this offset of the offset-syncs topic is in the records."""
    partitions: int
    """How many source partitions there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    writer: str
    partition: TopicPartition
    through: int
    """Its syncs before this offset are in it."""
    condensed: CondensedPairs


def encode_head(head: Head) -> tuple[bytes, bytes]:
    value = {
        "format": FORMAT,
        "writer": head.writer,
        "syncs_topic_id": head.syncs_topic_id,
        "through": head.through,
        "partitions": head.partitions,
    }
    return _bytes({"head": True}), _bytes(value)


def encode_partition(record: PartitionRecord) -> tuple[bytes, bytes]:
    condensed = record.condensed
    value = {
        "writer": record.writer,
        "through": record.through,
        "newest": [condensed.newest_sync.upstream, condensed.newest_sync.downstream],
        "vouched_from": condensed.vouched_from,
        "pairs": _deltas(condensed.pairs),
        "topic_ids": condensed.topic_ids,
    }
    return _bytes({"topic": record.partition.topic, "partition": record.partition.partition}), _bytes(value)


def decode(key: bytes | None, value: bytes | None) -> Head | PartitionRecord | None:
    """None for what a later release may have written. Raises WireFormatError for what cannot be read."""
    match _document(key), _document(value):
        case {"head": True}, {
            "format": 1,
            "writer": str(writer),
            "syncs_topic_id": str(topic_id),
            "through": int(through),
            "partitions": int(partitions),
        }:
            return Head(writer=writer, syncs_topic_id=topic_id, through=through, partitions=partitions)
        case {"topic": str(topic), "partition": int(number)}, {
            "writer": str(writer),
            "through": int(through),
            "newest": [int(upstream), int(downstream)],
            "vouched_from": int(vouched_from),
            "pairs": list(deltas),
            **others,
        }:
            return PartitionRecord(
                writer=writer,
                partition=TopicPartition(topic, number),
                through=through,
                condensed=CondensedPairs(
                    newest_sync=OffsetPair(upstream, downstream),
                    vouched_from=vouched_from,
                    pairs=_pairs(deltas),
                    topic_ids=_topic_ids(others.get("topic_ids")),
                ),
            )
        case _:
            return None


def _deltas(pairs: Sequence[OffsetPair]) -> list[int]:
    steps = (
        (after.upstream - before.upstream, after.downstream - before.downstream)
        for before, after in pairwise(pairs)
    )
    return [*((pairs[0].upstream, pairs[0].downstream) if pairs else ()), *chain.from_iterable(steps)]


def _pairs(deltas: Sequence[object]) -> tuple[OffsetPair, ...]:
    """Raises WireFormatError unless both sides rise strictly from an offset of 0 or more."""
    pairs: list[OffsetPair] = []
    upstream = downstream = 0
    for first, second in zip(deltas[::2], deltas[1::2], strict=False):
        if not isinstance(first, int) or not isinstance(second, int) or first < 0 or second < 0:
            raise WireFormatError(f"pairs of offsets do not rise: {first!r}, {second!r}")
        if pairs and not (first and second):
            raise WireFormatError("pairs of offsets do not rise: a step of 0")
        upstream, downstream = upstream + first, downstream + second
        if max(upstream, downstream) >= 2**63:
            raise WireFormatError("an offset does not fit 64 bits")
        pairs.append(OffsetPair(upstream, downstream))
    if len(deltas) % 2:
        raise WireFormatError("half a pair of offsets")
    return tuple(pairs)


def _topic_ids(found: object) -> TopicIds | None:
    match found:
        case [str(source), str(target)]:
            return TopicIds(source, target)
        case _:
            return None


def _bytes(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"no JSON: {error}") from None


SAVE_AFTER_SYNCS = 20_000
"""New ones; fewer are read in less than a second."""
_APPENDS_AT_ONCE = 500

_log = structlog.stdlib.get_logger(__name__)


class _Mark(NamedTuple):
    """What a partition was saved as."""

    generation: int
    newest_sync: OffsetPair | None
    topic_ids: TopicIds | None


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
            mark = _Mark(of.generation, of.newest_sync, of.topic_ids)
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
