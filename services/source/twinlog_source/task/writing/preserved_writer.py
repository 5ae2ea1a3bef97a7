"""Writes preserved copies: each partition independently, with several batches in flight and without rounds.

`AppendLog` decides; this module gives its batches to the dispatcher and reports answers. After a refusal or a
lost connection the affected partitions no longer know their end, and read it again before they write
(docs/adr/0008).

Invariant: a task whose lease is over (`may_write`) writes nothing and initialises no id.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from twinlog.backoff import backoff_seconds
from twinlog.batches import merge
from twinlog.batches.outgoing import OffsetRun, Seal, sealed_header
from twinlog.clock import Clock
from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw import DataClientPool, ProducerIdentity, ProducerSettings
from twinlog.kafka.raw.leaders import partition_error
from twinlog.kafka.raw.produce.answers import told_of
from twinlog.kafka.raw.produce.dispatcher import Dispatcher, HasRoom
from twinlog.kafka.raw.produce.wire import ProduceAnswer, SealedBatch
from twinlog.kafka.raw.settings import TIMER_MARGIN_SECONDS
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.leader_filler import LeaderFiller
from twinlog_source.preserved.tails import CopyTails
from twinlog_source.reasons import EndReason
from twinlog_source.task.writing.hole_filling import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, HoleFilling
from twinlog_source.task.writing.preserved_copy import PreservedCopy

MOST_IN_FLIGHT_BYTES = 48 << 20
LEAST_IN_FLIGHT_BYTES = 256 << 10
MOST_MERGED_BYTES = 8 << 20
"""The uncompressed size limit of merged small batches."""
_ABOUT_THE_SEQUENCE = frozenset(
    (
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.unknown_producer_id,
    )
)
"""Another producer has written meanwhile, or the leader no longer knows the writer. The end of the log shows
which."""

Changed = Callable[[PreservedCopy], None]
"""Called when the position, the problem or `wanted` has changed."""
Failed = Callable[[PreservedCopy, KafkaError], float | None]
"""Called after a failed write, fill or read of the end; returns for how many seconds to leave the partition
alone, None = briefly."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class PreservedWriter:
    """The writer of one task: `add` partitions, `offer` to their logs and `wake`; `run` until stop."""

    session: DataClientPool
    settings: ProducerSettings
    identity: ProducerIdentity
    tails: CopyTails
    filler: Filler
    clock: Clock
    may_write: Callable[[], bool]
    """Whether the task's lease holds; called right before each write."""
    markers: LeaderFiller | None = None
    changed: Changed = lambda _: None
    failed: Failed = lambda *_: None
    on_request: Callable[[float, int, int, KafkaError | None], None] = lambda *_: None
    """As that of a `Dispatcher`."""
    partitions: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """By target partition."""
    holes: HoleFilling = field(init=False)
    busy: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """Partitions that may have something to do, in order."""
    _dispatcher: "Dispatcher[_Sent] | None" = None
    """While the writer runs."""
    _over: KafkaError | None = None
    """Why this task may no longer write."""
    _to_read: dict[DataConnection, dict[TopicPartition, ReadEnd]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.holes = HoleFilling(
            transactions=self.filler,
            markers=self.markers,
            partitions=self.partitions,
            clock=self.clock,
            may_write=lambda: self._over is None and self._has_lease(),
            fenced=self._end,
            back_off=self.back_off,
            moved=self._moved,
        )

    def add(self, partition: PreservedCopy) -> None:
        self.partitions[partition.target] = partition
        self.wake(partition)

    def remove(self, partition: PreservedCopy) -> None:
        """Write nothing more to the partition."""
        self.partitions.pop(partition.target, None)
        self.busy.pop(partition.target, None)

    def wake(self, partition: PreservedCopy) -> None:
        """Something was offered to the partition, or it may be tried again."""
        if partition.target in self.partitions:
            self.busy[partition.target] = partition
            self._wake()

    def _wake(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.wake.set()

    def _moved(self, partition: PreservedCopy) -> None:
        self.changed(partition)
        self.wake(partition)

    @property
    def is_idle(self) -> bool:
        return all(each.appends.is_idle for each in self.partitions.values())

    @property
    def is_filling(self) -> bool:
        return any(each.appends.phase is Phase.FILLING for each in self.partitions.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`; requests in flight are left to the next reading of the log's end. Raises
        KafkaError when the filler was fenced (PRODUCER_FENCED) or the lease is over (LEASE_LOST)."""
        self._dispatcher = dispatcher = Dispatcher(
            self.session,
            self.settings,
            self,
            doing="write preserved copies",
            most_bytes=MOST_IN_FLIGHT_BYTES,
            least_bytes=LEAST_IN_FLIGHT_BYTES,
            on_request=self.on_request,
        )
        async with asyncio.TaskGroup() as tasks:
            dispatcher.start(tasks.create_task)
            dispatcher.spawn(self._wake_at(stop), "wake at stop")
            dispatcher.spawn(self._take_over(), "take the filler's id over")
            dispatcher.wake.set()
            while not stop.is_set() and self._over is None:
                await dispatcher.next()
                self._start_reading(dispatcher)
                filling = self.holes.begin()
                if filling is not None:
                    dispatcher.spawn(filling, "fill holes")
            dispatcher.stop()
        if self._over is not None:
            raise self._over

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake()

    def _end(self, error: KafkaError) -> None:
        self._over = self._over or error
        self._wake()

    def _has_lease(self) -> bool:
        if self.may_write():
            return True
        self._end(
            FatalKafkaError(
                "the task slept, or its driver was silent, for longer than the lease",
                reason=EndReason.LEASE_LOST,
            )
        )
        return False

    # ------------------------------------------------------------------------------------ batches

    def begin(self, client: DataClient) -> bool:
        return self._has_lease()

    def turns(self) -> Iterator[TopicPartition]:
        now = self.clock.monotonic()
        return (target for target, each in list(self.busy.items()) if now >= each.retry_at)

    def take(self, target: TopicPartition, connection: DataConnection, has_room: HasRoom) -> "_Sent | None":
        each = self.busy[target]
        appends, moved = each.appends, each.connection is not connection
        if (moved and appends.in_flight_bytes) or (appends.phase is Phase.SURE and not has_room(0)):
            return None
        if moved:
            appends.meet_connection()
        match appends.next():
            case Send() as send:
                each.connection = connection
                self.busy[target] = self.busy.pop(target)
                return self._sealed(each, send)
            case ReadEnd() as read:
                each.connection = connection
                self._to_read.setdefault(connection, {})[target] = replace(
                    read, topic_id=each.topic_id, common_until=each.common_until
                )
            case Hole() as hole:
                self.holes.add(each, hole)
            case None:
                del self.busy[target]
        return None

    def _sealed(self, each: PreservedCopy, send: Send) -> "_Sent | None":
        try:
            batch = send.batches[0]
            if len(send.batches) > 1:
                batch = merge(send.batches, level=None, max_open_bytes=MOST_MERGED_BYTES)
        except WireFormatError as error:
            # The source has a batch that cannot be opened: send it unchanged.
            each.appends.pack_below_bytes = 0
            each.appends.refused(send)
            log.warning("batches_not_packed", partition=str(each.target), error=str(error))
            self.wake(each)
            return None
        header = sealed_header(batch, Seal(*self.identity, send.base_sequence, False))
        return _Sent(partition=each.target, batch=batch, header=header, each=each, send=send)

    def settle(self, answers: "Sequence[tuple[_Sent, ProduceAnswer | None]]") -> None:
        for sent, answer in answers:
            each, send = sent.each, sent.send
            if answer is not None and answer.error_code == 0:
                self._acknowledge(each, send, answer.base_offset)
                continue
            each.appends.refused(send)
            code = answer.error_code if answer is not None else -1
            if code in LEADER_MOVED and self._dispatcher is not None:
                self._dispatcher.routes.suspect(connection=False)
            run = OffsetRun(send.first, send.end - send.first)
            detail = told_of(answer, [run]) if answer is not None else "no answer"
            doing, alias = "write a preserved copy", self.session.alias
            refusal = partition_error(code, each.target, doing, alias=alias, detail=detail)
            heals = code in LEADER_MOVED or code in _ABOUT_THE_SEQUENCE
            self.back_off([each], refusal, heals=heals)

    def lost(self, batches: "Sequence[_Sent]", error: KafkaError) -> None:
        """The log may or may not have them."""
        now = self.clock.monotonic()
        for sent in batches:
            sent.each.lost_at = now
            sent.each.appends.refused(sent.send)
        self.back_off([sent.each for sent in batches], error)

    def not_connected(self, error: KafkaError) -> None:
        self.back_off(self.busy.values(), error)

    def leaderless(self, found: Mapping[TopicPartition, KafkaError]) -> None:
        for target, error in found.items():
            each = self.partitions.get(target)
            if each is not None and not error.retriable:
                self.back_off([each], error)
            elif each is not None and not (each.is_idle and each.appends.phase is Phase.SURE):
                # Nothing failed: it is written as soon as there is a leader.
                self._note(each, error)

    def _acknowledge(self, each: PreservedCopy, send: Send, base_offset: int) -> None:
        each.appends.answered(send, base_offset)
        if each.appends.phase is not Phase.FOREIGN:
            each.failures, each.problem = 0, None
        self._moved(each)

    # ------------------------------------------------------------------------------------ ends and holes

    async def _take_over(self) -> None:
        await self.holes.open()
        self._wake()

    def _start_reading(self, dispatcher: "Dispatcher[_Sent]") -> None:
        """Read the ends, with one request to each leader: a slow one delays only its own partitions."""
        if self.holes.is_open:
            to_read, self._to_read = self._to_read, {}
            for asked in to_read.values():
                dispatcher.spawn(self._read_ends(asked), "read the ends of copies")

    async def _read_ends(self, asked: Mapping[TopicPartition, ReadEnd]) -> None:
        await self.tails.read(asked, self._end_read)

    def _end_read(self, target: TopicPartition, tail: Tail | KafkaError) -> None:
        each = self.partitions.get(target)
        if each is None:
            return
        if isinstance(tail, KafkaError):
            each.appends.end_not_read()
            self.back_off([each], tail)
            return
        each.appends.end_read(tail)
        if each.appends.is_idle:
            each.failures, each.problem = 0, None
        self._moved(each)

    # ------------------------------------------------------------------------------------ failures

    def back_off(
        self, partitions: Iterable[PreservedCopy], error: KafkaError, *, heals: bool = False
    ) -> None:
        """Leave them alone for a moment, longer after each failure, or as long as `failed` returns."""
        now = self.clock.monotonic()
        for each in list(partitions):
            self._note(each, error)
            if each.retry_at > now:
                # Several batches in flight count as one failure; after the last one the copy may be at rest.
                self.changed(each)
                continue
            pause_seconds = None if heals else self.failed(each, error)
            if pause_seconds is None:
                pause_seconds = backoff_seconds(
                    each.failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS
                )
            each.failures += 1
            each.retry_at = now + pause_seconds
            asyncio.get_running_loop().call_later(pause_seconds + TIMER_MARGIN_SECONDS, self._wake)
            self._moved(each)

    def _note(self, each: PreservedCopy, error: KafkaError) -> None:
        if each.problem is None:
            each.problem_since = self.clock.monotonic()
        each.problem = error


@dataclass(slots=True, eq=False, kw_only=True)
class _Sent(SealedBatch):
    each: PreservedCopy
    send: Send
