"""Finds the partition's leader for a batch: metadata, and one connection per broker, opened when first
needed.

Works in the background of a `Delivery`: `changed` is called when something missing has been found.

What is in flight to each broker: the limit, the end of a throttle, and when the broker last accepted
something.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.leaders import leader_of, meet_leaders, no_leader, refresh_metadata
from twinlog.kafka.raw.produce.partition_queue import PendingBatch
from twinlog.kafka.raw.settings import ProducerSettings, Window
from twinlog.model import TopicPartition

_LEAST_WINDOW_BYTES = 1 << 20
_SLOW_SECONDS = 5.0
"""A request without an answer for this long is slow: a third of the default time-out."""
_LONG_THROTTLE_SECONDS = 1.0
_TIMER_MARGIN_SECONDS = 0.001
"""A timer may fire slightly early, when there is nothing to send yet."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    node: int
    connection: DataConnection
    pending_batches: Sequence[PendingBatch]
    size_bytes: int
    sent_at: float


@dataclass(slots=True)
class _Way:
    """What is in flight to one broker."""

    window: Window
    requests: int = 0
    size_bytes: int = 0


class BrokerWays:
    """Use it on the loop on which it was created. Times are the loop's."""

    def __init__(self, settings: ProducerSettings, throttle_over: Callable[[], None]) -> None:
        self._settings = settings
        self._throttle_over = throttle_over
        self._loop = asyncio.get_running_loop()
        self._ways: dict[int, _Way] = {}
        self._taken_until: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        self._timer: asyncio.TimerHandle | None = None

    def may_send(self, node: int, connection: DataConnection) -> bool:
        """Whether the broker gets another request now. If a throttle forbids it, `throttle_over` is called at
        its end."""
        return self._way(node).requests < self._settings.max_in_flight and not self._is_throttled(connection)

    def has_room(self, node: int, size_bytes: int) -> bool:
        """Whether there is room for this much; a batch that is larger than the window is sent alone."""
        way = self._way(node)
        return way.requests == 0 or way.size_bytes + size_bytes <= way.window.size_bytes

    def most_bytes(self, node: int) -> int:
        """The size limit of a request to this broker."""
        return min(self._settings.max_request_bytes, self._way(node).window.size_bytes)

    def sent(
        self, node: int, connection: DataConnection, pending_batches: Sequence[PendingBatch]
    ) -> SentRequest:
        size_bytes = sum(pending.batch.size_bytes for pending in pending_batches)
        way = self._way(node)
        way.requests += 1
        way.size_bytes += size_bytes
        return SentRequest(node, connection, pending_batches, size_bytes, self._loop.time())

    def answered(self, sent: SentRequest, *, was_taken: bool) -> None:
        """The request has ended; without an answer it was not accepted."""
        way, now = self._way(sent.node), self._loop.time()
        under_way = way.size_bytes
        way.requests -= 1
        way.size_bytes -= sent.size_bytes
        throttled_seconds = sent.connection.throttled_seconds
        if not was_taken or throttled_seconds > _LONG_THROTTLE_SECONDS:
            way.window.shrink(under_way, began=sent.sent_at, now=now)
        else:
            way.window.passed(under_way, began=sent.sent_at, now=now)
        if was_taken:
            self._taken_until[sent.connection] = now + throttled_seconds

    def taken_until(self, connection: object) -> float:
        """When the broker last accepted something on a connection, or its throttle ends."""
        return self._taken_until.get(connection, 0.0) if connection is not None else 0.0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _way(self, node: int) -> _Way:
        way = self._ways.get(node)
        if way is None:
            most_bytes = self._settings.max_request_bytes * self._settings.max_in_flight
            window = Window(
                most_bytes=most_bytes, least_bytes=_LEAST_WINDOW_BYTES, slow_seconds=_SLOW_SECONDS
            )
            way = self._ways[node] = _Way(window)
        return way

    def _is_throttled(self, connection: DataConnection) -> bool:
        left_seconds = connection.throttled_seconds
        if left_seconds <= 0:
            return False
        over_at = self._loop.time() + left_seconds + _TIMER_MARGIN_SECONDS
        if self._timer is None or over_at < self._timer.when():
            # The first one that ends: brokers throttle for different times.
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(over_at, self._over)
        return True

    def _over(self) -> None:
        self._timer = None
        self._throttle_over()


_PRODUCE_CONNECTION = 1
"""One connection per broker for all batches, because their order matters; other requests use other
connections."""
_UNKNOWN_TOPIC_REASON = "TOPIC_UNKNOWN"

Spawn = Callable[[Coroutine[None, None, None], str], None]


async def prepare_to_produce(session: DataClientPool, topics: Collection[str]) -> None:
    """Find the leaders of topics and connect to them, so that the first batch waits for neither. Raises
    KafkaError; takes at most 10 s."""
    await meet_leaders(session, topics, _PRODUCE_CONNECTION)


class Routes:
    """Knows where batches are sent, or finds it out."""

    def __init__(
        self, session: DataClientPool, settings: ProducerSettings, spawn: Spawn, changed: Callable[[], None]
    ) -> None:
        self._session = session
        self._settings = settings
        self._spawn = spawn
        self._changed = changed
        self._connecting: set[int] = set()
        self._stale = False
        self._refreshing = False
        self._unknown_since: dict[TopicPartition, float] = {}

    def find(self, client: DataClient, partition: TopicPartition) -> tuple[int, DataConnection] | None:
        """The leader's node id and the connection to it; None while one of them is missing."""
        leader = leader_of(client, partition)
        if leader is None:
            self._stale = True
            return None
        connection: DataConnection | None = client._conns.get((leader, _PRODUCE_CONNECTION))
        if connection is not None and connection.connected():
            return leader, connection
        if leader not in self._connecting:
            self._connecting.add(leader)
            self._spawn(self._connect(client, leader), f"connect to {leader}")
        return None

    def suspect(self, *, connection: bool) -> None:
        """The leader may have moved; with `connection`, no broker may be reachable."""
        self._stale = True
        if connection:
            self._session.suspect()

    def refresh_if_stale(
        self,
        client: DataClient,
        partitions: Iterable[TopicPartition],
        refuse: Callable[[dict[TopicPartition, KafkaError]], None],
        now: float,
    ) -> None:
        """Read the metadata again if that was requested; `refuse` gets partitions that do not exist."""
        if self._stale and not self._refreshing:
            self._stale = False
            self._refreshing = True
            self._spawn(self._refresh(client, list(partitions), refuse, now), "refresh metadata")

    async def _connect(self, client: DataClient, node: int) -> None:
        try:
            if not await client.ready(node, group=_PRODUCE_CONNECTION):
                self.suspect(connection=True)
                await pause(self._settings.retry_pause_seconds)
        finally:
            self._connecting.discard(node)
            self._changed()

    async def _refresh(
        self,
        client: DataClient,
        partitions: list[TopicPartition],
        refuse: Callable[[dict[TopicPartition, KafkaError]], None],
        now: float,
    ) -> None:
        try:
            with contextlib.suppress(KafkaError):
                await refresh_metadata(self._session, client, {partition.topic for partition in partitions})
                refused = self._judge_leaderless(client, partitions, now)
                if refused:
                    refuse(refused)
            await pause(self._settings.retry_pause_seconds)
        finally:
            self._refreshing = False
            self._changed()

    def _judge_leaderless(
        self, client: DataClient, partitions: list[TopicPartition], now: float
    ) -> dict[TopicPartition, KafkaError]:
        """Partitions that are refused, or still unknown after `unknown_topic_seconds`."""
        refused: dict[TopicPartition, KafkaError] = {}
        for partition in partitions:
            if leader_of(client, partition) is not None:
                self._unknown_since.pop(partition, None)
                continue
            error = no_leader(self._session, client, partition)
            since = self._unknown_since.setdefault(partition, now)
            unknown_seconds = now - since
            not_known_yet = (
                error.reason == _UNKNOWN_TOPIC_REASON
                and unknown_seconds < self._settings.unknown_topic_seconds
            )
            if not error.retriable and not not_known_yet:
                refused[partition] = error
        return refused
