"""Which broker to ask when any will do, and at which address to look for a host. Pure: `now` is in seconds of
the event loop."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import aiokafka.errors

from twinlog.backoff import backoff_seconds
from twinlog.errors import KafkaError
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, translate

# Asks several peers for the same thing: the next one when one is slow, and the first answer counts.

SLOW_SECONDS = 0.5
"""A peer that takes longer may never answer."""

T = TypeVar("T")


class Attempt(NamedTuple):
    name: str
    start: Callable[[], Coroutine[Any, Any, Any]]
    """Returns the answer, or raises one of KAFKA_CLIENT_ERRORS or KafkaError."""


async def first_answer(attempts: Iterable[Attempt], *, slow_seconds: float = SLOW_SECONDS) -> Any:
    """Start the attempts in this order: the next when one has failed, or has been slow. Cancels the others
    when one has an answer.

    Raises the most informative failure: refused credentials or certificates before unreachable peers. The
    caller's deadline applies.
    """
    waiting = list(reversed(list(attempts)))
    if len(waiting) == 1:
        return await waiting[0].start()
    failures: list[BaseException] = []
    async with asyncio.TaskGroup() as group:
        pending: set[asyncio.Task[Any]] = set()
        while waiting or pending:
            if waiting:
                attempt = waiting.pop()
                pending.add(group.create_task(_outcome(attempt), name=attempt.name))
            done, pending = await asyncio.wait(
                pending,
                timeout=slow_seconds if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                answer = task.result()
                if not isinstance(answer, BaseException):
                    for slow in pending:
                        slow.cancel()
                    return answer
                failures.append(answer)
    if not failures:
        raise aiokafka.errors.BrokerNotAvailableError("no broker is known")
    raise min(failures, key=lambda error: translate(error, "ask").retriable)


async def _outcome(attempt: Attempt) -> Any:
    """An error is a value, so that the other attempts go on."""
    try:
        return await attempt.start()
    except (KafkaError, *KAFKA_CLIENT_ERRORS) as error:
        return error


_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 10.0
_ADDRESS_SECONDS = 3.0
"""A lost packet of a new connection is sent again after 1 and 3 s."""


def address_seconds(timeout_seconds: float, address_count: int) -> float:
    """How long each address but the last one gets to connect and log in; the last one has the rest."""
    return min(_ADDRESS_SECONDS, timeout_seconds / address_count)


@dataclass(slots=True)
class NodeChoice:
    """Remembers which brokers could not be reached, or were slower than another one."""

    _failures: dict[int, int] = field(default_factory=dict)
    _away_until: dict[int, float] = field(default_factory=dict)

    def failed(self, node_id: int, now: float) -> None:
        """Leave the broker out of the choice: for half a second, then for twice as long each time, up to 10
        s."""
        failures = self._failures.get(node_id, 0)
        self._failures[node_id] = failures + 1
        self._away_until[node_id] = now + backoff_seconds(
            failures, first=_FIRST_SECONDS, longest=_LONGEST_SECONDS
        )

    def answered(self, node_id: int) -> None:
        self._failures.pop(node_id, None)
        self._away_until.pop(node_id, None)

    def ordered(
        self,
        node_ids: Iterable[int],
        connected: Collection[int],
        now: float,
        *,
        first: int | None = None,
        told_last: int | None = None,
    ) -> list[int]:
        """Those with an open connection first, otherwise in the given order; `first` before all others.

        `told_last` comes behind the others: a broker that has lost its controller answers, and knows nothing
        new. A broker that is left out comes last: it is asked if no other one answers.
        """

        def rank(node_id: int) -> tuple[bool, bool, bool, bool]:
            is_away = self._away_until.get(node_id, now) > now
            return is_away, node_id != first, node_id == told_last, node_id not in connected

        return sorted(node_ids, key=rank)


@dataclass(slots=True)
class AddressOrder:
    """The addresses of host names, as with Java's `client.dns.lookup=use_all_dns_ips`."""

    _failed: dict[str, str] = field(default_factory=dict)
    """By host, the address that failed last."""

    def of(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Each address once, beginning behind the one that failed last."""
        each = list(dict.fromkeys(addresses))
        last = self._failed.get(host)
        begin = each.index(last) + 1 if last in each else 0
        return each[begin:] + each[:begin]

    def failed(self, host: str, address: str) -> None:
        self._failed[host] = address


# How long to wait for the answers on one connection, and how long a broker throttles it. Pure: takes `now`,
# in seconds of the event loop.
#
# A broker answers the requests of a connection one after the other, and reads nothing from it while it
# throttles its client (KIP-219). So the time of the oldest request begins at the last event on the
# connection: the request was written, the answer before it came, a throttle ended, or bytes moved.

SLOWEST_BYTES_PER_SECOND = 4096
"""A connection that moves fewer bytes than this during a whole time-out makes no progress."""
LONGEST_THROTTLE_SECONDS = 60.0
"""A throttle is respected for at most this long; then the broker is asked again, on another connection: it
reads nothing from this one. Kafka's own last as long as the bytes of a request take by the quota, which may
be minutes."""


@dataclass(slots=True)
class Patience:
    """Invariant: `left_seconds` is above 0 as long as something moved within the last time-out."""

    timeout_seconds: float
    throttled_until: float = 0.0
    """The loop time at which the broker reads from the connection again."""
    _since: float = 0.0
    _moved_bytes: int = 0

    def answered(self, now: float, *, moved_bytes: int, throttle_ms: int) -> None:
        """An answer arrived. `moved_bytes`: sent and received since the connection was opened."""
        self._since = now
        self._moved_bytes = moved_bytes
        if throttle_ms > 0:
            self.throttled_until = max(
                self.throttled_until, now + min(throttle_ms / 1000, LONGEST_THROTTLE_SECONDS)
            )

    def is_throttled(self, now: float) -> bool:
        return now < self.throttled_until

    def left_seconds(self, now: float, *, sent_at: float, moved_bytes: int) -> float:
        """How much longer to wait for the answer to the oldest request; 0 or less: it will not arrive."""
        left = max(self._since, sent_at, self.throttled_until) + self.timeout_seconds - now
        if left > 0:
            return left
        if moved_bytes - self._moved_bytes < SLOWEST_BYTES_PER_SECOND * self.timeout_seconds:
            return left
        self._since = now
        self._moved_bytes = moved_bytes
        return self.timeout_seconds
