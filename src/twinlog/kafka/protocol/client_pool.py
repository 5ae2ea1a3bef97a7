"""The client behind readers and writers: opened when first needed, replaced after a failure.

A client that gets no answers is discarded: after an outage of any length, the next call starts again from
`bootstrap.servers`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeGuard

from twinlog.backoff import backoff_seconds
from twinlog.errors import TransientKafkaError
from twinlog.kafka.deadline import is_silent, pause
from twinlog.kafka.errors import KAFKA_CLIENT_ERRORS, TIMEOUT, from_reason, translate
from twinlog.kafka.protocol.connection import DataClient, close_client, request_timeout_ms
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.protocol.reach import SLOW_SECONDS
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.model import TopicPartition

_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
FIRST_CONNECTION_GROUP = 2
"""The connection group of the first running request at a broker; aiokafka uses lower numbers (metadata,
coordination)."""


class DataClientPool:
    """One lazily opened client with the calls that readers need. Do not share it between event loops."""

    def __init__(
        self,
        alias: str,
        options: Mapping[str, Any],
        *,
        timeout_seconds: float,
        new_client: Callable[..., DataClient] = DataClient,
    ) -> None:
        """`options` are those of `aiokafka_client_options`, the arguments of `new_client`."""
        self.alias = alias
        self._new_client = new_client
        self.options = {"request_timeout_ms": request_timeout_ms(timeout_seconds), **options}
        self.timeout_seconds = timeout_seconds
        self._client: DataClient | None = None
        self._suspect = False
        self._opening = asyncio.Lock()
        self.busy: set[tuple[int, int]] = set()
        self._looks: dict[int, int] = {}
        """How often the metadata did not name a broker that was looked for."""
        self._look_again_at: dict[int, float] = {}
        """Loop time."""
        self.throttled_until: dict[tuple[int, int], float] = {}
        """By broker and API key, loop time."""

    async def client(self, doing: str) -> DataClient:
        """The connected client. Raises KafkaError; the caller's deadline applies."""
        if self._client is not None and not self._suspect:
            return self._client
        async with self._opening:
            if self._client is not None and self._suspect and not await self._answers(self._client):
                await self._drop()
            if self._client is None:
                client = self._new_client(**self.options)
                client.is_left_out = partial(is_silent, self.alias)
                try:
                    await client.bootstrap()
                except KAFKA_CLIENT_ERRORS as error:
                    raise translate(error, doing, alias=self.alias) from error
                self._client = client
            self._suspect = False
            return self._client

    def suspect(self) -> None:
        """A request got no answer: the next call checks that brokers can still be reached."""
        self._suspect = True

    async def leader(self, partition: TopicPartition, doing: str) -> int:
        """The node id of the partition's leader; see `DataClient.leader`."""
        client = await self.client(doing)
        try:
            return await client.leader(partition, doing, alias=self.alias)
        except TransientKafkaError:
            self.suspect()
            raise

    async def any_node(self, doing: str) -> int:
        """The node id of any broker that can be reached. Raises KafkaError; the caller's deadline applies."""
        client = await self.client(doing)
        try:
            return await client.reachable_node()
        except KAFKA_CLIENT_ERRORS as error:
            self.suspect()
            raise translate(error, doing, alias=self.alias) from error

    async def send_any(
        self,
        request: Any,
        doing: str,
        *,
        check: Callable[[Any], None] = lambda _answer: None,
        slow_seconds: float = SLOW_SECONDS,
    ) -> Any:
        """Send one request to any broker; another one gets it, too, when that one fails or takes longer
        than `slow_seconds`, so it must change nothing. `check` raises KafkaError for an answer that does
        not count. Raises KafkaError; the caller's deadline applies."""
        client = await self.client(doing)

        async def ask(node_id: int) -> Any:
            answer = await self.send(node_id, request, doing)
            check(answer)
            return answer

        try:
            return await client.ask_any(ask, slow_seconds=slow_seconds)
        except KAFKA_CLIENT_ERRORS as error:
            self.suspect()
            raise translate(error, doing, alias=self.alias) from error

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """Read the metadata again if a broker's address is unknown; for one that the metadata did not name
        just now only after a while, because it is dead. Raises KafkaError."""
        client, now = await self.client(doing), asyncio.get_running_loop().time()
        unknown = [each for each in node_ids if client.cluster.broker_metadata(each) is None]
        if all(self._look_again_at.get(each, now) > now for each in unknown):
            return
        await client.refreshed()
        for each in unknown:
            failures = self._looks[each] = self._looks.get(each, 0) + 1
            seconds = backoff_seconds(failures, first=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
            self._look_again_at[each] = now + seconds
            if client.cluster.broker_metadata(each) is not None:
                self._looks.pop(each)

    async def forget_leader(self, doing: str) -> None:
        """Read the metadata again after a broker reported that it no longer leads."""
        await (await self.client(doing)).refreshed()
        await pause(_PAUSE_SECONDS)

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        """Send one request to one broker, on its own connection while it lasts (a waiting fetch blocks
        others).

        Waits while the broker throttles requests of this kind (`throttled_seconds`). Raises KafkaError. When
        the caller is cancelled the connection is closed, because an answer may still arrive.
        """
        if is_silent(self.alias, node_id):
            raise from_reason(TIMEOUT, doing, alias=self.alias, detail=f"broker {node_id} does not answer")
        client = await self.client(doing)
        api_key = _api_key(request)
        throttled_seconds = self.throttled_seconds(node_id, api_key)
        if throttled_seconds > 0:
            await pause(throttled_seconds)
        lane = FIRST_CONNECTION_GROUP
        while (node_id, lane) in self.busy or _is_muted(client._conns.get((node_id, lane))):
            lane += 1
        place = node_id, lane
        self.busy.add(place)
        try:
            connection: DataConnection | None = client._conns.get(place)
            if connection is not None and connection.connected() and isinstance(request, HandWrittenRequest):
                answer = await connection.post(request)
            else:
                answer = await client.send(node_id, request, group=lane)
            connection = client._conns.get(place)
            if _is_muted(connection):
                self.throttled_until[node_id, api_key] = (
                    asyncio.get_running_loop().time() + connection.throttled_seconds
                )
            return answer
        except KAFKA_CLIENT_ERRORS as error:
            self.suspect()
            raise translate(error, doing, alias=self.alias, node_id=node_id) from error
        except asyncio.CancelledError:
            self.suspect()
            connection = client._conns.pop(place, None)
            if connection is not None:
                connection.close()
            raise
        finally:
            self.busy.discard(place)

    def throttled_seconds(self, node_id: int, api_key: int) -> float:
        """For how much longer a broker throttles such requests, at most a minute; 0 if it does not."""
        until = self.throttled_until.get((node_id, api_key), 0.0)
        return max(0.0, until - asyncio.get_running_loop().time()) if until else 0.0

    @property
    def told_last(self) -> int | None:
        """The broker that gave the last answer of `send_any`."""
        return None if self._client is None else self._client.told_last

    @property
    def is_throttled(self) -> bool:
        """Whether any broker throttles this client because of a quota; also on shared connections, as
        producers use them."""
        now = asyncio.get_running_loop().time()
        connections = () if self._client is None else self._client._conns.values()
        return any(until > now for until in self.throttled_until.values()) or any(map(_is_muted, connections))

    async def close(self) -> None:
        """Close the client. Takes at most about a second."""
        await self._drop()

    async def _answers(self, client: DataClient) -> bool:
        """Whether brokers can be reached. One that cannot costs nobody the connections to the others."""
        patience_seconds = self.timeout_seconds / 4
        try:
            async with asyncio.timeout(patience_seconds):
                refreshed = await client.refreshed()
        except TimeoutError:
            refreshed = False
        return refreshed or client.has_heard_within(patience_seconds)

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_client(client)


def _is_muted(connection: DataConnection | None) -> TypeGuard[DataConnection]:
    """The broker throttles its client, and reads nothing from it."""
    return connection is not None and connection.connected() and connection.throttled_seconds > 0


def _api_key(request: Any) -> int:
    key: int = request.api_key if isinstance(request, HandWrittenRequest) else request.API_KEY
    return key
