"""The settings of a producer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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
    max_in_flight: int = 5
    """Requests per broker and, in transactions, batches per partition; with more than 5 a broker could not
    keep the order. Without transactions a partition's batches are sent one by one."""

    @property
    def longest_delivery_seconds(self) -> float:
        """The longest time for a batch that waits while its broker accepts others, because a transaction has
        to end in time."""
        return max(self.delivery_timeout_seconds, self.transaction_timeout_seconds / 2)
