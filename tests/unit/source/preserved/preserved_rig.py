"""The preserved copies of a task, whose writer is not run: a test gives the answers of the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.batches import NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import ProducerIdentity
from twinlog.model import TopicPartition
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.log.fact_records import parse_control
from twinlog_source.log.facts import Fact
from twinlog_source.partitions import orders
from twinlog_source.partitions.orders import PreservedTerms, TaskAssignment
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from twinlog_source.preserved.own_batches import FirstForeign
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.fetch_schedule import ReadShares
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.preserved_writer import Changed, Failed
from unit.source.task.halves import preserved_of

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def _batch(first: int, count: int) -> OutgoingBatch:
    batch = build_batch([NewRecord(None, b"x", 0)] * count)
    return batch._replace(runs=(OffsetRun(first, count),), next_source_offset=first + count)


@dataclass(eq=False)
class PreservedRig:
    """The writer is not run: the test gives the answers of the target."""

    clock: FakeClock = field(default_factory=FakeClock)
    stored: list[tuple[TopicPartition, list[NewRecord]]] = field(default_factory=list)
    on_log: bool = True
    woken: int = 0
    shares: ReadShares = field(default_factory=ReadShares)
    found: FirstForeign | KafkaError = field(default_factory=lambda: FirstForeign(7, 0, 0))
    topic_id: str = "id"
    """Of the target topic as it is now."""
    told: list[tuple[TopicPartition, orders.ForeignWrite]] = field(default_factory=list)
    """Foreign writes."""
    copies: dict[TopicPartition, PartitionCopy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.preserved = preserved_of(
            self.clock,
            ProducerIdentity(1, 0),
            foreign_write=self.foreign_write,
            tell_foreign=lambda partition, write: self.told.append((partition, write)),
            delete_before=self.delete_before,
            store_position=self.store_position,
            is_stored=lambda _: self.on_log,
            wake_reader=self.wake_reader,
            shares=self.shares,
        )

    @property
    def changed(self) -> Changed:
        return self.preserved.writer.changed

    @property
    def failed(self) -> Failed:
        return self.preserved.writer.failed

    async def foreign_write(
        self, partition: TopicPartition, foreign_at: int, lost_since: int | None, topic_id: str
    ) -> FirstForeign:
        if topic_id != self.topic_id:
            raise TransientKafkaError("another topic", reason="TARGET_RECREATED")
        if isinstance(self.found, KafkaError):
            raise self.found
        return self.found

    async def delete_before(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        raise AssertionError

    def store_position(self, partition: TopicPartition, records: Sequence[NewRecord]) -> None:
        self.stored.append((partition, list(records)))

    def facts(self) -> list[Fact | None]:
        """What was given away to be stored beside positions."""
        parsed = [parse_control("A", each.key, each.value) for _, records in self.stored for each in records]
        return [each.fact for each in parsed if each is not None]

    def wake_reader(self) -> None:
        self.woken += 1

    def assigned(
        self,
        partition: TopicPartition,
        end: int = 0,
        *,
        required: bool = False,
        stored: int | None = None,
        filled: tuple[Hole, ...] = (),
        end_reason: str = "",
        has_former_task: bool = False,
        is_end_read: bool = True,
    ) -> PreservedCopy:
        """A copy whose end is known, unless `is_end_read` is False; `stored` is its position on the log, None
        = the end."""
        position = end if stored is None else stored
        copy = PartitionCopy(partition=partition, target_topic="t", committed=position, random=lambda: 1.0)
        self.copies[partition] = copy
        terms = PreservedTerms(
            since=3,
            required=required,
            end_reason=end_reason,
            former_task_seconds=0.0 if has_former_task else None,
        )
        self.preserved.assign(
            TaskAssignment(
                partition=partition,
                target_topic="t",
                position=position,
                position_stored=True,
                preserved=terms,
                target_topic_id="id",
            ),
            copy,
        )
        at_target = self.preserved.by_source[partition]
        assert isinstance(at_target.appends.next(), ReadEnd)
        if is_end_read:
            self.end_read(at_target, end, filled)
        return at_target

    def end_read(self, at_target: PreservedCopy, end: int, filled: tuple[Hole, ...] = ()) -> None:
        """The answer of the target's leader to the first question."""
        at_target.appends.end_read(Tail(end, 0, True, filled=filled))
        self.changed(at_target)

    def fetched(self, partition: TopicPartition, first: int, count: int, *, size_bytes: int = 100) -> None:
        copy = self.copies[partition]
        prepared = Prepared(batches=(_batch(first, count),), next_offset=first + count)
        copy.fetched = first + count
        self.preserved.offer(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, held_bytes=size_bytes)
        )

    def fetched_all(self, partition: TopicPartition, runs: Sequence[tuple[int, int]]) -> None:
        """One fetch with several batches: first offset and number of records."""
        copy = self.copies[partition]
        copy.fetched = sum(runs[-1])
        prepared = Prepared(batches=tuple(_batch(*run) for run in runs), next_offset=copy.fetched)
        self.preserved.offer(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, held_bytes=100)
        )

    def shown_nothing(self, partition: TopicPartition, until: int, *, echo_records: int = 0) -> None:
        """The source shows nothing up to an offset, but copies of the target's own records."""
        copy = self.copies[partition]
        prepared = Prepared(batches=(), next_offset=until, echo_records=echo_records)
        copy.fetched = until
        self.preserved.offer(
            PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, held_bytes=1)
        )

    def sent(self, at_target: PreservedCopy) -> Send:
        send = at_target.appends.next()
        assert isinstance(send, Send)
        return send

    def answered(self, at_target: PreservedCopy, send: Send, base: int) -> None:
        at_target.appends.answered(send, base)
        self.changed(at_target)
