"""Sends batches to the leaders of their partitions.

Not aiokafka's sender, which copies large requests several times, allows one request per broker at a time,
retries without a deadline, cannot be stopped while a broker is down, and loses the codes of many refusals.
Its connection is used. Each round takes at most one batch of a partition, and makes one request to a leader:

    Lane.take ──▶ room on the way to the leader ──▶ one request ──▶ broker
        ▲                                                                          │
        └──────────────────── Lane.settle, or Lane.lost without an answer ◀────────┘
"""

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, translate
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.produce.partition_queue import Routes
from twinlog.kafka.raw.produce.wire import ProduceAnswer, ProduceResponse, SealedBatch, produce_request
from twinlog.kafka.raw.settings import TIMER_MARGIN_SECONDS, InFlightWindow, ProducerSettings
from twinlog.model import TopicPartition

_SLOW_SECONDS = 5.0
"""A request without an answer for this long is slow: a third of the default time-out."""
_LONG_THROTTLE_SECONDS = 1.0


B = TypeVar("B", bound=SealedBatch)
HasRoom = Callable[[int], bool]
"""Whether the request has room for a batch of this size now."""


class Sending(Protocol[B]):
    """What is sent, and what an answer means. For one dispatcher."""

    @property
    def busy(self) -> Collection[TopicPartition]:
        """The partitions that may have something to send."""
        ...

    def begin(self, client: DataClient) -> bool:
        """Whether anything may be sent now."""
        ...

    def turns(self) -> Iterable[TopicPartition]:
        """Those of `busy` that may send now, in order of their turns."""
        ...

    def take(self, partition: TopicPartition, connection: DataConnection, has_room: HasRoom) -> B | None:
        """The next batch of the partition, if it may be sent to its leader now."""
        ...

    def settle(self, answers: Sequence[tuple[B, ProduceAnswer | None]]) -> None:
        """A request was answered; None: it says nothing of this batch."""
        ...

    def lost(self, batches: Sequence[B], error: KafkaError) -> None:
        """The connection was closed: the leader may have the batches, or not."""
        ...

    def leaderless(self, found: Mapping[TopicPartition, KafkaError]) -> None:
        """These partitions have no leader, and those with an error that is not retriable will get none."""
        ...

    def not_connected(self, error: KafkaError) -> None:
        """No broker can be reached; somebody has to wake the dispatcher later."""
        ...


class Dispatcher(Generic[B]):
    """For one loop. It knows what is in flight to each broker: the limit, the end
    of a throttle, and when the broker last accepted something."""

    def __init__(
        self,
        session: DataClientPool,
        settings: ProducerSettings,
        lane: Sending[B],
        *,
        doing: str,
        most_bytes: int,
        least_bytes: int,
        most_requests: float = math.inf,
        transactional_id: str | None = None,
        adds_partitions: Callable[[], bool] = lambda: False,
        on_request: Callable[[float, int, int, KafkaError | None], None] = lambda *_: None,
    ) -> None:
        """`most_bytes` and `most_requests` may be in flight to one broker, and `least_bytes` however slow it
        is. `adds_partitions`: whether brokers add partitions to the transaction. `on_request` is called for
        each request that was answered or lost: how many seconds it took, its partitions and bytes, and why it
        failed as a whole."""
        self.wake = asyncio.Event()
        self.routes = Routes(session, settings, self.spawn, self.wake.set)
        self._session, self._settings, self._lane, self._doing = session, settings, lane, doing
        self._transactional_id, self._adds_partitions = transactional_id, adds_partitions
        self._on_request, self._most_requests = on_request, most_requests
        self._new_window = partial(
            InFlightWindow, most_bytes=most_bytes, least_bytes=least_bytes, slow_seconds=_SLOW_SECONDS
        )
        self._loop = asyncio.get_running_loop()
        self._ways: dict[int, _Way] = {}
        self._taken_until: WeakKeyDictionary[DataConnection, float] = WeakKeyDictionary()
        self._throttle: asyncio.TimerHandle | None = None
        self._children: set[asyncio.Task[None]] = set()
        self._create_task: Callable[..., asyncio.Task[None]]

    def start(self, create_task: "Callable[..., asyncio.Task[None]]") -> None:
        """`create_task` of the TaskGroup that what runs in the background belongs to."""
        self._create_task = create_task

    def stop(self) -> None:
        """Cancel what runs in the background. Answers still come."""
        for child in self._children:
            child.cancel()
        if self._throttle is not None:
            self._throttle.cancel()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        child = self._create_task(work, name=name)
        self._children.add(child)
        child.add_done_callback(self._children.discard)

    async def next(self) -> None:
        """Wait until something may be sent, and send it."""
        await self.wake.wait()
        self.wake.clear()
        if not self._lane.busy:
            return
        try:
            client = await self._session.client(self._doing)
        except KafkaError as error:
            self._lane.not_connected(error)
            return
        if not self._lane.begin(client):
            return
        while requests := self._requests(client):
            for (node, connection), batches in requests.items():
                self._post(node, connection, batches)
        self.routes.refresh_if_stale(client, self._lane.busy, self._lane.leaderless, self._loop.time())

    def _requests(self, client: DataClient) -> dict[tuple[int, DataConnection], list[B]]:
        chosen: dict[tuple[int, DataConnection], list[B]] = {}
        sizes: dict[int, int] = {}
        for partition in self._lane.turns():
            route = self.routes.find(client, partition)
            if route is None:
                continue
            leader, connection = route
            size_bytes = sizes.get(leader, 0)
            has_room = partial(self._has_room, leader, connection, size_bytes)
            batch = self._lane.take(partition, connection, has_room)
            if batch is not None:
                chosen.setdefault(route, []).append(batch)
                sizes[leader] = size_bytes + batch.batch.size_bytes
        return chosen

    def _post(self, node: int, connection: DataConnection, batches: Sequence[B]) -> None:
        """Write the request at once, so that requests are on the wire in call order."""
        request = produce_request(
            batches,
            transactional_id=self._transactional_id,
            timeout_ms=int(self._settings.request_timeout_seconds * 1000),
            adds_partitions=self._adds_partitions(),
            topic_ids=self._settings.topic_ids,
        )
        try:
            answered = connection.post(request)
        except KAFKA_CLIENT_ERRORS as error:
            self._lost(batches, error)
            return
        size_bytes = sum(each.batch.size_bytes for each in batches)
        way = self._way(node)
        way.requests += 1
        way.size_bytes += size_bytes
        sent = _Sent(way, connection, size_bytes, self._loop.time())
        answered.add_done_callback(partial(self._answered, sent, batches))

    def _answered(
        self, sent: "_Sent", batches: Sequence[B], answered: "asyncio.Future[ProduceResponse]"
    ) -> None:
        if answered.cancelled():
            return
        error, failure, now = answered.exception(), None, self._loop.time()
        self._passed(sent, now, was_taken=error is None)
        if error is None:
            by_partition = {each.partition: each for each in answered.result().answers}
            self._lane.settle([(batch, by_partition.get(batch.partition)) for batch in batches])
        else:
            failure = self._lost(batches, error)
        self._on_request(now - sent.at, len(batches), sent.size_bytes, failure)
        self.wake.set()

    def _lost(self, batches: Sequence[B], error: BaseException) -> KafkaError:
        self.routes.suspect(connection=True)
        failure = translate(error, self._doing, alias=self._session.alias)
        self._lane.lost(batches, failure)
        return failure

    # ------------------------------------------------------------------------------------ room

    def taken_until(self, connection: object) -> float:
        """When the broker last accepted something on a connection, or its throttle ends; in the loop's
        time."""
        if not isinstance(connection, DataConnection):
            return 0.0
        return max(connection.throttled_until, self._taken_until.get(connection, 0.0))

    def throttled_until(self, connection: object) -> float:
        """When the broker's last throttle of a connection ends, or ended, whatever it was for; in the loop's
        time."""
        return connection.throttled_until if isinstance(connection, DataConnection) else 0.0

    def _way(self, node: int) -> "_Way":
        way = self._ways.get(node)
        if way is None:
            way = self._ways[node] = _Way(self._new_window())
        return way

    def _has_room(self, node: int, connection: DataConnection, chosen_bytes: int, size_bytes: int) -> bool:
        """Whether a request of `chosen_bytes` so far may get this much more, and be sent now. A batch that is
        larger than the limits is sent alone."""
        way = self._way(node)
        if way.requests >= self._most_requests or self._is_throttled(connection):
            return False
        most_bytes, whole_bytes = way.window.size_bytes, chosen_bytes + size_bytes
        if chosen_bytes and whole_bytes > min(self._settings.max_request_bytes, most_bytes):
            return False
        return way.requests == 0 or way.size_bytes + whole_bytes <= most_bytes

    def _passed(self, sent: "_Sent", now: float, *, was_taken: bool) -> None:
        """The request has ended; without an answer it was not accepted."""
        way, under_way = sent.way, sent.way.size_bytes
        way.requests -= 1
        way.size_bytes -= sent.size_bytes
        throttled_seconds = sent.connection.throttled_seconds
        if not was_taken or throttled_seconds > _LONG_THROTTLE_SECONDS:
            way.window.shrink(under_way, began=sent.at, now=now)
        else:
            way.window.passed(under_way, began=sent.at, now=now)
        if was_taken:
            self._taken_until[sent.connection] = now

    def _is_throttled(self, connection: DataConnection) -> bool:
        left_seconds = connection.throttled_seconds
        if left_seconds <= 0:
            return False
        over_at = self._loop.time() + left_seconds + TIMER_MARGIN_SECONDS
        if self._throttle is None or over_at < self._throttle.when():
            # The first one that ends: brokers throttle for different times.
            if self._throttle is not None:
                self._throttle.cancel()
            self._throttle = self._loop.call_at(over_at, self._throttle_over)
        return True

    def _throttle_over(self) -> None:
        self._throttle = None
        self.wake.set()


@dataclass(slots=True)
class _Way:
    """What is in flight to one broker."""

    window: InFlightWindow
    requests: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request in flight."""

    way: _Way
    connection: DataConnection
    size_bytes: int
    at: float
