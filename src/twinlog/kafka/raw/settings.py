"""The settings of a producer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

# How many bytes may be in flight to or from one peer: as many as pass within a moment. Pure.
#
# It grows by a share of what passes in time, and halves when something took too long, timed out or was
# throttled (AIMD, like TCP): so a slow line or a quota costs throughput, and causes no time-outs.

_GROWTH_SHARE = 8
"""One part in this many of what passed in time is added to the window."""


@dataclass(slots=True, kw_only=True)
class InFlightWindow:
    """Times are in seconds of any one clock. Invariant: `least_bytes <= size_bytes <= most_bytes`."""

    most_bytes: int
    least_bytes: int
    """What is tried however slow the peer is: about a batch, which is never split."""
    slow_seconds: float
    """What took longer was too much."""
    size_bytes: int = field(init=False)
    _shrunk_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.least_bytes = min(self.least_bytes, self.most_bytes)
        self.size_bytes = self.most_bytes

    def passed(self, passed_bytes: int, *, began: float, now: float) -> None:
        """This much was sent (or requested) at `began`, and has passed."""
        if now - began > self.slow_seconds:
            self.shrink(passed_bytes, began=began, now=now)
        elif passed_bytes * 2 >= self.size_bytes:
            grown = self.size_bytes + max(passed_bytes // _GROWTH_SHARE, 1)
            self.size_bytes = min(grown, self.most_bytes)

    def shrink(self, tried_bytes: int, *, began: float, now: float) -> None:
        """What began at this time was too much. Of several things in flight together the first one counts,
        because they met the same congestion."""
        if began < self._shrunk_at:
            return
        self._shrunk_at = now
        self.size_bytes = max(self.least_bytes, min(self.size_bytes, tried_bytes) // 2)


Admit = Callable[[int, str], Awaitable[None]]
"""Awaited with each new producer id and its transactional id ("" = none), before anything is written with it.
Bounds its own wait; raises KafkaError."""


async def admit_all(_producer_id: int, _transactional_id: str) -> None:
    """No producer id needs to be known before it is used."""


TIMER_MARGIN_SECONDS = 0.001
"""A timer may fire slightly early, when there is nothing to send yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Times are in seconds."""

    transaction_timeout_seconds: float = 60.0
    """After this the coordinator aborts an open transaction; at most the broker's
    transaction.max.timeout.ms."""
    delivery_timeout_seconds: float = 120.0
    """From `send` to the acknowledgement, or from when the broker last accepted an earlier batch: see
    `longest_delivery_seconds`. Also for each call to the coordinator."""
    request_timeout_seconds: float = 30.0
    """How long a broker may wait for its replicas."""
    unknown_topic_seconds: float = 5.0
    """Brokers learn of a new topic one after the other; until then it is unknown."""
    end_look_seconds: float = 5.0
    """This long after the end of a transaction, the leaders of its partitions are asked whether it ended
    there, unless another one has followed."""
    retry_pause_seconds: float = 0.05
    """Before the second attempt; doubles up to 32 times."""
    max_request_bytes: int = 4 << 20
    """The intended size of a request; a larger batch is still sent, alone."""
    admit: Admit = admit_all
    """Who has to know the producer's id before it is used."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Belongs to the caller and is looked up for each request: as in `produce_request`."""
    max_in_flight: int = 5
    """Requests per broker and, in transactions, batches per partition; with more than 5 a broker could not
    keep the order. Without transactions a partition's batches are sent one by one."""

    @property
    def longest_delivery_seconds(self) -> float:
        """The longest time for a batch that waits while its broker accepts others, because a transaction has
        to end in time."""
        return max(self.delivery_timeout_seconds, self.transaction_timeout_seconds / 2)
