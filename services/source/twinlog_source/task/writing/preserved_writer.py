"""Writes preserved copies: each partition independently, with several batches in flight and without rounds.

`AppendLog` decides; this module sends requests and reports answers. A produce request has one batch of each
partition, and as many partitions of one leader as are ready. After a refusal or a lost connection the
affected partitions no longer know their end, and read it again before they write (docs/adr/0008).

Invariant: a task whose lease is over (`may_write`) writes nothing and initialises no id.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from twinlog.backoff import backoff_seconds
from twinlog.batches import OutgoingBatch, merge
from twinlog.batches.outgoing import OffsetRun, Seal, sealed_header
from twinlog.clock import Clock
from twinlog.errors import FatalKafkaError, KafkaError, WireFormatError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, TIMEOUT, translate
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw import DataClientPool, ProducerIdentity, ProducerSettings, Window
from twinlog.kafka.raw.errors import partition_error
from twinlog.kafka.raw.produce.answers import told_of
from twinlog.kafka.raw.produce.routes import Routes
from twinlog.kafka.raw.produce.wire import ProducePart, ProduceResponse, produce_request
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import Phase
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from twinlog_source.preserved.fillers import HoleFiller
from twinlog_source.preserved.tails import CopyTails
from twinlog_source.reasons import EndReason
from twinlog_source.task.writing.hole_filling import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, HoleFilling
from twinlog_source.task.writing.preserved_copy import PreservedCopy

MOST_IN_FLIGHT_BYTES = 48 << 20
LEAST_IN_FLIGHT_BYTES = 256 << 10
SLOW_SECONDS = 5.0
"""A request that takes longer was too large for the way to the target."""
MOST_MERGED_BYTES = 8 << 20
"""The uncompressed size limit of merged small batches."""
_ABOUT_THE_SEQUENCE = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
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
    filler: HoleFiller
    clock: Clock
    may_write: Callable[[], bool]
    """Whether the task's lease holds; called right before each write."""
    changed: Changed = lambda _: None
    failed: Failed = lambda *_: None
    on_request: Callable[[float, int, int, KafkaError | None], None] = lambda *_: None
    """Called for each request that was answered or lost: when it was sent (monotonic seconds), its partitions
    and bytes, and why it failed as a whole."""
    partitions: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """By target partition."""
    holes: HoleFilling = field(init=False)
    _ready: dict[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """Partitions that may have something to do, in order."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: asyncio.TaskGroup | None = None
    _spawned: set[asyncio.Task[None]] = field(default_factory=set)
    _over: KafkaError | None = None
    """Why this task may no longer write."""
    _to_read: dict[DataConnection, dict[TopicPartition, ReadEnd]] = field(default_factory=dict)
    _in_flight_bytes: int = 0
    _window: Window = field(
        default_factory=lambda: Window(
            most_bytes=MOST_IN_FLIGHT_BYTES, least_bytes=LEAST_IN_FLIGHT_BYTES, slow_seconds=SLOW_SECONDS
        )
    )
    """Limits the unanswered bytes of all brokers together."""

    def __post_init__(self) -> None:
        self.holes = HoleFilling(
            filler=self.filler,
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
        self._ready.pop(partition.target, None)

    def wake(self, partition: PreservedCopy) -> None:
        """Something was offered to the partition, or it may be tried again."""
        if partition.target in self.partitions:
            self._ready[partition.target] = partition
            self._wake.set()

    def _moved(self, partition: PreservedCopy) -> None:
        self.changed(partition)
        self.wake(partition)

    @property
    def is_idle(self) -> bool:
        return all(each.appends.is_idle for each in self.partitions.values())

    @property
    def is_filling(self) -> bool:
        return any(each.appends.phase is Phase.FILLING for each in self.partitions.values())

    async def get_ready(self) -> None:
        """Initialise the filler's id before there is anything to write, so that no copy has to wait for it
        later. Raises KafkaError; `run` tries again."""
        await self.filler.open()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`; requests in flight are left to the next reading of the log's end. Raises
        KafkaError when the filler was fenced (PRODUCER_FENCED) or the lease is over (LEASE_LOST)."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            routes = Routes(self.session, self.settings, self._spawn, self._wake.set)
            stopping = tasks.create_task(self._wake_at(stop), name="wake at stop")
            self._spawn(self._take_over(), "take the filler's id over")
            while not stop.is_set() and self._over is None:
                await self._wake.wait()
                self._wake.clear()
                await self._dispatch(routes)
            for task in (stopping, *self._spawned):
                task.cancel()
        if self._over is not None:
            raise self._over

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        assert self._tasks is not None
        task = self._tasks.create_task(work, name=name)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def _end(self, error: KafkaError) -> None:
        self._over = self._over or error
        self._wake.set()

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

    async def _dispatch(self, routes: Routes) -> None:
        try:
            client = await self.session.client("write preserved copies")
        except KafkaError as error:
            self.back_off(self._ready.values(), error)
            return
        if not self._has_lease():
            return
        while requests := self._next_requests(client, routes):
            for connection, sends in requests.items():
                self._post(connection, sends, routes)
        self._start_reading()
        self._start_filling()
        routes.refresh_if_stale(client, self._ready, self._refuse, self.clock.monotonic())

    def _next_requests(
        self, client: DataClient, routes: Routes
    ) -> dict[DataConnection, list[tuple[PreservedCopy, Send[OutgoingBatch]]]]:
        """Build requests: at most one batch of each partition, and one request for each leader."""
        now = self.clock.monotonic()
        chosen: dict[DataConnection, list[tuple[PreservedCopy, Send[OutgoingBatch]]]] = {}
        sizes: dict[DataConnection, int] = {}
        for target, each in list(self._ready.items()):
            if now < each.retry_at:
                continue
            route = routes.find(client, target)
            if route is None:
                continue
            _, connection = route
            moved = each.connection is not connection and each.appends.in_flight_bytes
            if moved or sizes.get(connection, 0) >= self.settings.max_request_bytes:
                continue
            if self._in_flight_bytes >= self._window.size_bytes and each.appends.phase is Phase.SURE:
                continue
            if each.connection is not connection:
                each.appends.meet_connection()
            match each.appends.next():
                case Send() as send:
                    each.connection = connection
                    chosen.setdefault(connection, []).append((each, send))
                    sizes[connection] = sizes.get(connection, 0) + send.size_bytes
                    self._in_flight_bytes += send.size_bytes
                    self._ready[target] = self._ready.pop(target)
                case ReadEnd() as read:
                    each.connection = connection
                    self._to_read.setdefault(connection, {})[target] = replace(
                        read, topic_id=each.topic_id, common_until=each.common_until
                    )
                case Hole() as hole:
                    self.holes.add(each, hole)
                case None:
                    del self._ready[target]
        return chosen

    def _post(
        self,
        connection: DataConnection,
        sends: list[tuple[PreservedCopy, Send[OutgoingBatch]]],
        routes: Routes,
    ) -> None:
        parts = []
        for each, send in list(sends):
            try:
                batch = _batch_of(send)
            except WireFormatError as error:
                # The source has a batch that cannot be opened: send it unchanged.
                each.appends.pack_below_bytes = 0
                each.appends.refused(send)
                self._in_flight_bytes -= send.size_bytes
                sends.remove((each, send))
                log.warning("batches_not_packed", partition=str(each.target), error=str(error))
                self.wake(each)
                continue
            seal = Seal(*self.identity, send.base_sequence, False)
            parts.append(ProducePart(each.target, sealed_header(batch, seal), batch.records))
        if not parts:
            return
        request = produce_request(
            parts,
            transactional_id=None,
            timeout_ms=int(self.settings.request_timeout_seconds * 1000),
        )
        posted = _Posted(sends, self.clock.monotonic(), self._in_flight_bytes)
        try:
            answered = connection.post(request)
        except KAFKA_CLIENT_ERRORS as error:
            self._lost(posted, error, routes)
            return
        answered.add_done_callback(partial(self._answered, posted, routes))

    def _answered(
        self, posted: "_Posted", routes: Routes, answered: "asyncio.Future[ProduceResponse]"
    ) -> None:
        if answered.cancelled():
            return
        error = answered.exception()
        if error is not None:
            self._lost(posted, error, routes)
            return
        self._in_flight_bytes -= posted.size_bytes
        self._window.passed(posted.behind_bytes, began=posted.at, now=self.clock.monotonic())
        self.on_request(posted.at, len(posted.sends), posted.size_bytes, None)
        by_target = {answer.partition: answer for answer in answered.result().answers}
        for each, send in posted.sends:
            answer = by_target.get(each.target)
            if answer is not None and answer.error_code == 0:
                self._acknowledge(each, send, answer.base_offset)
                continue
            each.appends.refused(send)
            code = answer.error_code if answer is not None else -1
            if code in LEADER_MOVED:
                routes.suspect(connection=False)
            run = OffsetRun(send.first, send.end - send.first)
            detail = told_of(answer, [run]) if answer is not None else "no answer"
            doing, alias = "write a preserved copy", self.session.alias
            refusal = partition_error(code, each.target, doing, alias=alias, detail=detail)
            heals = code in LEADER_MOVED or code in _ABOUT_THE_SEQUENCE
            self.back_off([each], refusal, heals=heals)

    def _acknowledge(self, each: PreservedCopy, send: Send[OutgoingBatch], base_offset: int) -> None:
        each.appends.answered(send, base_offset)
        if each.appends.phase is not Phase.FOREIGN:
            each.failures, each.problem = 0, None
        self._moved(each)

    def _lost(self, posted: "_Posted", error: BaseException, routes: Routes) -> None:
        """The connection is closed: the log may or may not have what was sent on it."""
        now = self.clock.monotonic()
        self._in_flight_bytes -= posted.size_bytes
        routes.suspect(connection=True)
        failure = translate(error, "write preserved copies", alias=self.session.alias)
        self.on_request(posted.at, len(posted.sends), posted.size_bytes, failure)
        if failure.reason == TIMEOUT.name:
            self._window.shrink(posted.behind_bytes, began=posted.at, now=now)
        for each, send in posted.sends:
            each.lost_at = now
            each.appends.refused(send)
        self.back_off([each for each, _ in posted.sends], failure)

    # ------------------------------------------------------------------------------------ ends and holes

    async def _take_over(self) -> None:
        await self.holes.open()
        self._wake.set()

    def _start_reading(self) -> None:
        """Read the ends, with one request to each leader: a slow one delays only its own partitions."""
        if self.holes.is_open:
            to_read, self._to_read = self._to_read, {}
            for asked in to_read.values():
                self._spawn(self._read_ends(asked), "read the ends of copies")

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

    def _start_filling(self) -> None:
        filling = self.holes.begin()
        if filling is not None:
            self._spawn(filling, "fill holes")

    # ------------------------------------------------------------------------------------ failures

    def back_off(
        self, partitions: Iterable[PreservedCopy], error: KafkaError, *, heals: bool = False
    ) -> None:
        """Leave them alone for a moment, longer after each failure, or as long as `failed` returns."""
        now = self.clock.monotonic()
        for each in list(partitions):
            if each.problem is None:
                each.problem_since = now
            each.problem = error
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
            asyncio.get_running_loop().call_later(pause_seconds + 0.001, self._wake.set)
            self._moved(each)

    def _refuse(self, refused: dict[TopicPartition, KafkaError]) -> None:
        for target, error in refused.items():
            each = self.partitions.get(target)
            if each is not None:
                self.back_off([each], error)


def _batch_of(send: Send[OutgoingBatch]) -> OutgoingBatch:
    """Raises WireFormatError."""
    if len(send.batches) == 1:
        return send.batches[0].payload
    return merge([append.payload for append in send.batches], level=None, max_open_bytes=MOST_MERGED_BYTES)


@dataclass(frozen=True, slots=True)
class _Posted:
    """A request in flight."""

    sends: list[tuple[PreservedCopy, Send[OutgoingBatch]]]
    at: float
    behind_bytes: int
    """The unanswered bytes when it was sent."""

    @property
    def size_bytes(self) -> int:
        return sum(send.size_bytes for _, send in self.sends)
