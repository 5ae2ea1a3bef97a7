"""The writing half for preserved copies: every partition for itself, several batches in flight, no rounds.

The decisions are those of `AppendLog`; here requests are sent and answers are told. A produce request takes
one batch of each partition, and as many partitions of one leader as are ready. A refusal or a lost connection
makes the partitions concerned unsure of their end: it is read again before they write (docs/adr/0008).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from twinlog.batches import OutgoingBatch
from twinlog.batches.outgoing import Seal, sealed_header
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, translate
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw import DataClientPool, ProducerIdentity, ProducerSettings
from twinlog.kafka.raw.errors import partition_error
from twinlog.kafka.raw.produce.routes import Routes
from twinlog.kafka.raw.wire import ProducePart, ProduceResponse, produce_request
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_log import AppendLog, Fill, Phase, ReadEnd, Send
from twinlog_source.preserved.filler import Filler
from twinlog_source.preserved.tails import CopyTails

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 5.0
_LEADER_MOVED = frozenset((3, 5, 6, 9, 13, 56, 72, 74, 75, 100, 103))
_ABOUT_THE_SEQUENCE = frozenset((45, 46, 47, 59))
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID:
somebody else has written meanwhile, or the leader does not know the writer any more. The end of the log
tells."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class PreservedPartition:
    """One partition of the target as its writer sees it."""

    target: TopicPartition
    appends: AppendLog[OutgoingBatch]
    connection: DataConnection | None = None
    """Where its batches in flight were sent: only there does the leader see them in order."""
    retry_at: float = 0.0
    """Monotonic seconds before which nothing is done."""
    failures: int = 0
    """In a row, without an acknowledgement between."""
    problem: KafkaError | None = None
    """Why nothing is written; None while it is."""


Acknowledged = Callable[[PreservedPartition, OutgoingBatch, int], None]
"""A batch is on the target, at this offset."""
Changed = Callable[[PreservedPartition], None]
"""The position, the problem or what is wanted has changed."""


@dataclass(slots=True, kw_only=True)
class PreservedWriter:
    """Of one task. `add` partitions, `offer` to their logs and `wake`; `run` until stop."""

    session: DataClientPool
    settings: ProducerSettings
    identity: ProducerIdentity
    tails: CopyTails
    filler: Filler
    clock: Clock
    acknowledged: Acknowledged
    changed: Changed
    partitions: dict[TopicPartition, PreservedPartition] = field(default_factory=dict)
    """By target partition."""
    _ready: dict[TopicPartition, PreservedPartition] = field(default_factory=dict)
    """Those that may have something to do, in turn."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: asyncio.TaskGroup | None = None
    _filling: bool = False
    _holes: dict[TopicPartition, Fill] = field(default_factory=dict)
    _reading: bool = False
    _to_read: dict[TopicPartition, ReadEnd] = field(default_factory=dict)

    def add(self, partition: PreservedPartition) -> None:
        self.partitions[partition.target] = partition
        self.wake(partition)

    def wake(self, partition: PreservedPartition) -> None:
        """Something was offered to it."""
        self._ready[partition.target] = partition
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        return all(each.appends.is_idle for each in self.partitions.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Loop until `stop`; what is in flight then is left to the end of the log. Raises KafkaError when the
        filler was fenced."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            routes = Routes(self.session, self.settings, self._spawn, self._wake.set)
            stopping = tasks.create_task(self._wake_at(stop), name="wake at stop")
            while not stop.is_set():
                await self._wake.wait()
                self._wake.clear()
                await self._dispatch(routes)
            stopping.cancel()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        assert self._tasks is not None
        self._tasks.create_task(work, name=name)

    async def _dispatch(self, routes: Routes) -> None:
        try:
            client = await self.session.client("write preserved copies")
        except KafkaError as error:
            self._set_back(self._ready.values(), error)
            return
        while requests := self._next_requests(client, routes):
            for connection, sends in requests.items():
                self._post(connection, sends, routes)
        self._start_reading()
        self._start_filling()
        routes.refresh_if_stale(client, self._ready, self._refuse, self.clock.monotonic())

    def _next_requests(
        self, client: DataClient, routes: Routes
    ) -> dict[DataConnection, list[tuple[PreservedPartition, Send[OutgoingBatch]]]]:
        """At most one batch of each partition and one request to each leader."""
        now = self.clock.monotonic()
        chosen: dict[DataConnection, list[tuple[PreservedPartition, Send[OutgoingBatch]]]] = {}
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
            match each.appends.next():
                case Send() as send:
                    each.connection = connection
                    chosen.setdefault(connection, []).append((each, send))
                    sizes[connection] = sizes.get(connection, 0) + send.size_bytes
                    self._ready[target] = self._ready.pop(target)
                case ReadEnd() as read:
                    self._to_read[target] = read
                case Fill() as fill:
                    self._holes[target] = fill
                case None:
                    del self._ready[target]
        return chosen

    def _post(
        self,
        connection: DataConnection,
        sends: list[tuple[PreservedPartition, Send[OutgoingBatch]]],
        routes: Routes,
    ) -> None:
        parts = []
        for each, send in sends:
            batch = send.batches[0].payload
            seal = Seal(*self.identity, send.base_sequence, False)
            parts.append(ProducePart(each.target, sealed_header(batch, seal), batch.records))
        request = produce_request(
            parts,
            transactional_id=None,
            timeout_ms=int(self.settings.request_timeout_seconds * 1000),
        )
        try:
            answered = connection.post(request)
        except KAFKA_CLIENT_ERRORS as error:
            self._lost(sends, error, routes)
            return
        answered.add_done_callback(partial(self._answered, sends, routes))

    def _answered(
        self,
        sends: list[tuple[PreservedPartition, Send[OutgoingBatch]]],
        routes: Routes,
        answered: "asyncio.Future[ProduceResponse]",
    ) -> None:
        if answered.cancelled():
            return
        error = answered.exception()
        if error is not None:
            self._lost(sends, error, routes)
            return
        by_target = {answer.partition: answer for answer in answered.result().answers}
        for each, send in sends:
            answer = by_target.get(each.target)
            if answer is not None and answer.error_code == 0:
                self._acknowledge(each, send, answer.base_offset)
                continue
            each.appends.refused(send)
            code = answer.error_code if answer is not None else -1
            if code in _LEADER_MOVED:
                routes.suspect(connection=False)
            detail = answer.message if answer is not None else "no answer"
            doing, alias = "write a preserved copy", self.session.alias
            self._set_back([each], partition_error(code, each.target, doing, alias=alias, detail=detail))

    def _acknowledge(self, each: PreservedPartition, send: Send[OutgoingBatch], base_offset: int) -> None:
        each.appends.answered(send, base_offset)
        if each.appends.phase is not Phase.FOREIGN:
            each.failures, each.problem = 0, None
            offset = base_offset
            for append in send.batches:
                self.acknowledged(each, append.payload, offset)
                offset += append.count
        self.changed(each)
        self.wake(each)

    def _lost(
        self,
        sends: list[tuple[PreservedPartition, Send[OutgoingBatch]]],
        error: BaseException,
        routes: Routes,
    ) -> None:
        """The connection is closed: what was sent on it may be in the log or not."""
        routes.suspect(connection=True)
        failure = translate(error, "write preserved copies", alias=self.session.alias)
        for each, send in sends:
            each.appends.refused(send)
        self._set_back([each for each, _ in sends], failure)

    # ------------------------------------------------------------------------------------ ends and holes

    def _start_reading(self) -> None:
        if self._to_read and not self._reading:
            self._reading = True
            self._spawn(self._read_ends(), "read the ends of copies")

    async def _read_ends(self) -> None:
        try:
            while self._to_read:
                asked, self._to_read = self._to_read, {}
                try:
                    tails = await self.tails.read(
                        {target: read.checked_from for target, read in asked.items()}
                    )
                except KafkaError as error:
                    tails = dict.fromkeys(asked, error)
                for target in asked:
                    each, tail = self.partitions[target], tails[target]
                    if isinstance(tail, KafkaError):
                        each.appends.end_not_read()
                        self._set_back([each], tail)
                    else:
                        each.appends.end_read(tail)
                        self.changed(each)
                        self.wake(each)
        finally:
            self._reading = False

    def _start_filling(self) -> None:
        if self._holes and not self._filling:
            self._filling = True
            self._spawn(self._fill_holes(), "fill holes")

    async def _fill_holes(self) -> None:
        try:
            while self._holes:
                holes, self._holes = self._holes, {}
                await self._fill(holes)
        finally:
            self._filling = False

    async def _fill(self, holes: Mapping[TopicPartition, Fill]) -> None:
        filled: set[TopicPartition] = set()
        problem: KafkaError | None = None
        try:
            if not self.filler.is_open:
                await self.filler.open()
            filled = await self.filler.fill(
                {target: (hole.first, hole.count) for target, hole in holes.items()}
            )
        except KafkaError as error:
            problem = error
        for target in holes:
            each = self.partitions[target]
            each.appends.filled(for_certain=target in filled)
            if problem is not None and target not in filled:
                self._set_back([each], problem)
            self.changed(each)
            self.wake(each)

    # ------------------------------------------------------------------------------------ setbacks

    def _set_back(self, partitions: Iterable[PreservedPartition], error: KafkaError) -> None:
        """Wait a moment, longer after each failure; the caller decides what becomes of a lasting problem."""
        now = self.clock.monotonic()
        for each in list(partitions):
            doublings = min(each.failures, 8)
            pause_seconds = min(FIRST_PAUSE_SECONDS * 2**doublings, LONGEST_PAUSE_SECONDS)
            each.failures += 1
            each.problem = error
            each.retry_at = now + pause_seconds
            self._ready[each.target] = each
            asyncio.get_running_loop().call_later(pause_seconds + 0.001, self._wake.set)
            self.changed(each)

    def _refuse(self, refused: dict[TopicPartition, KafkaError]) -> None:
        for target, error in refused.items():
            self._set_back([self.partitions[target]], error)
