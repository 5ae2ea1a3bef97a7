"""Finds the partition's leader for a batch: metadata, and one connection per broker, opened when first
needed.

Works in the background of a `Dispatcher`: `changed` is called when something missing has been found.
"""

import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable

from twinlog.errors import KafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.raw.leaders import leader_of, meet_leaders, no_leader, refresh_metadata
from twinlog.kafka.raw.settings import ProducerSettings
from twinlog.model import TopicPartition

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
