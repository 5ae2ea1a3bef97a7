"""What is in flight to each broker: the limit, the end of a throttle, and when the broker last accepted
something."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.produce.partition_queue import PendingBatch
from twinlog.kafka.raw.settings import ProducerSettings, Window

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
