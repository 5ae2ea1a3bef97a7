"""The order of one partition's batches on their way to the broker. Pure: the caller sends.

Invariants, each with its reason:
- batches are sent in the order of their arrival, and a batch keeps its sequence number at every attempt;
- at most `max_in_flight` are unanswered: a broker remembers the last five batches of a producer;
- only one is unanswered until the first is acknowledged: a broker that does not know the producer yet accepts
  any sequence number, so a second batch could pass a refused first one;
- all unanswered ones are on one connection: only there does a broker get them in order;
- after one has to be sent again nothing new is sent until all others are answered, and then it is sent first;
- nothing new is sent before all that were sent again are acknowledged: a broker may have one already, refuse
  it for want of replicas before it looks for duplicates, take those behind it, and forget it after five.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import islice

from twinlog.batches.outgoing import Seal, sealed_header
from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.leaders import leader_of, meet_leaders, no_leader, refresh_metadata
from twinlog.kafka.raw.produce.wire import SealedBatch
from twinlog.kafka.raw.settings import ProducerSettings
from twinlog.model import TopicPartition

_SEQUENCE_MASK = 0x7FFFFFFF
_NO_SEQUENCE = -1


@dataclass(slots=True, eq=False, kw_only=True)
class PendingBatch(SealedBatch):
    """One batch being delivered."""

    deadline: float
    """The loop time by which it must be acknowledged, unless its broker accepts earlier batches meanwhile."""
    acknowledged: asyncio.Future[int]
    """The target base offset."""
    latest: float = math.inf
    """The loop time by which it must be acknowledged in any case, because its transaction has a time
    limit."""
    base_sequence: int = _NO_SEQUENCE
    attempts: int = 0
    last_error: KafkaError | None = None
    """Why it failed, and has to be sent again. One that was only behind such a one has not failed."""


@dataclass(slots=True, kw_only=True)
class PartitionQueue:
    """The batches of one partition and one producer."""

    max_in_flight: int = 5
    next_sequence: int = 0
    retry_at: float = 0.0
    """The loop time before which nothing is sent."""
    waiting: deque[PendingBatch] = field(default_factory=deque)
    in_flight: list[PendingBatch] = field(default_factory=list)
    returned: list[PendingBatch] = field(default_factory=list)
    connection: object = None
    """The connection of the batches in flight; without any, that of the next one."""
    is_known: bool = False
    """The broker has acknowledged a batch of this producer on this partition."""

    @property
    def has_to_send(self) -> bool:
        return bool(self.waiting or self.returned)

    @property
    def is_empty(self) -> bool:
        return not (self.has_to_send or self.in_flight)

    def begin_epoch(self) -> None:
        """From now on as the next epoch of the same producer, which starts at sequence number 0. Only when
        empty.

        A broker that knows the producer accepts no other number first, so `is_known` stays.
        """
        assert self.is_empty
        self.next_sequence = 0

    def oldest(self, deadline_of: Callable[[PendingBatch], float]) -> PendingBatch | None:
        """The batch that must be acknowledged first."""
        here = (*self.in_flight, *self.returned, *islice(self.waiting, 1))
        return min(here, key=deadline_of, default=None)

    def lead_to(self, connection: object) -> None:
        """The leader and the connection to it are known: from now on batches only wait for their turn."""
        if not self.in_flight:
            self.connection = connection

    def put(self, pending: PendingBatch) -> None:
        self.waiting.append(pending)

    def peek(self, now: float, connection: object) -> PendingBatch | None:
        """The batch that may be sent now on this connection, if any."""
        if self.returned and not self.in_flight:
            self.returned.sort(key=_sent_order(self.next_sequence))
            self.waiting.extendleft(reversed(self.returned))
            self.returned.clear()
        if self.returned or not self.waiting or now < self.retry_at:
            return None
        limit = self.max_in_flight if self.is_known else 1
        if len(self.in_flight) >= limit or (self.in_flight and connection is not self.connection):
            return None
        pending = self.waiting[0]
        if pending.base_sequence == _NO_SEQUENCE and any(each.attempts > 1 for each in self.in_flight):
            return None
        self.connection = connection
        return pending

    def take(self, producer_id: int, producer_epoch: int, *, transactional: bool) -> PendingBatch:
        """Take the batch of `peek`; the first attempt sets its sequence number and its checksum."""
        pending = self.waiting.popleft()
        pending.attempts += 1
        if pending.base_sequence == _NO_SEQUENCE:
            pending.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + pending.batch.record_count) & _SEQUENCE_MASK
            seal = Seal(producer_id, producer_epoch, pending.base_sequence, transactional)
            pending.header = sealed_header(pending.batch, seal)
        self.in_flight.append(pending)
        return pending

    def acknowledge(self, pending: PendingBatch) -> None:
        self.in_flight.remove(pending)
        self.is_known = True

    def give_back(self, pending: PendingBatch, retry_at: float) -> None:
        """The batch has to be sent again, not before `retry_at`."""
        self.in_flight.remove(pending)
        self.returned.append(pending)
        self.retry_at = max(self.retry_at, retry_at)

    def has_earlier(self, pending: PendingBatch) -> bool:
        """Whether a batch that was sent before this one is still unanswered or has to be sent again.

        Then a broker that calls this one out of order is right, and it only has to wait for its turn.
        """
        order = _sent_order(self.next_sequence)
        return any(order(other) < order(pending) for other in (*self.in_flight, *self.returned))


def _sent_order(next_sequence: int) -> Callable[[PendingBatch], int]:
    """Sequence numbers wrap at 2^31: order by the distance to the next one, the largest first."""
    return lambda pending: -((next_sequence - pending.base_sequence) & _SEQUENCE_MASK)


# Finds the partition's leader for a batch: metadata, and one connection per broker, opened when first
# needed.
#
# Works in the background of a `Dispatcher`: `changed` is called when something missing has been found.

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
        self._unreached: set[int] = set()
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
        leaderless: Callable[[dict[TopicPartition, KafkaError]], None],
        now: float,
    ) -> None:
        """Read the metadata again if that was requested; `leaderless` gets partitions without a leader: those
        that do not exist, with an error that is not retriable, and those whose leader
        is away, or cannot be reached."""
        if self._stale and not self._refreshing:
            self._stale = False
            self._refreshing = True
            self._spawn(self._refresh(client, list(partitions), leaderless, now), "refresh metadata")

    async def _connect(self, client: DataClient, node: int) -> None:
        try:
            if await client.ready(node, group=_PRODUCE_CONNECTION):
                self._unreached.discard(node)
            else:
                self._unreached.add(node)
                self.suspect(connection=True)
                await pause(self._settings.retry_pause_seconds)
        finally:
            self._connecting.discard(node)
            self._changed()

    async def _refresh(
        self,
        client: DataClient,
        partitions: list[TopicPartition],
        leaderless: Callable[[dict[TopicPartition, KafkaError]], None],
        now: float,
    ) -> None:
        try:
            with contextlib.suppress(KafkaError):
                await refresh_metadata(self._session, client, {partition.topic for partition in partitions})
                if found := self._judge_leaderless(client, partitions, now):
                    leaderless(found)
            await pause(self._settings.retry_pause_seconds)
        finally:
            self._refreshing = False
            self._changed()

    def _judge_leaderless(
        self, client: DataClient, partitions: list[TopicPartition], now: float
    ) -> dict[TopicPartition, KafkaError]:
        """Why partitions have no leader; without those unknown for less than `unknown_topic_seconds`."""
        found: dict[TopicPartition, KafkaError] = {}
        for partition in partitions:
            leader = leader_of(client, partition)
            if leader is not None:
                self._unknown_since.pop(partition, None)
                if leader not in self._unreached:
                    continue
            error = no_leader(self._session, client, partition)
            since = self._unknown_since.setdefault(partition, now)
            unknown_seconds = now - since
            not_known_yet = (
                error.reason == _UNKNOWN_TOPIC_REASON
                and unknown_seconds < self._settings.unknown_topic_seconds
            )
            if not not_known_yet:
                found[partition] = error
        return found
