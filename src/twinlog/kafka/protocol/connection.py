"""The aiokafka connection under readers and writers: opened when first needed, replaced when it has failed.

aiokafka's client learns new broker addresses only from brokers it can still reach, says "unable to bootstrap"
for a wrong password as for a dead host, and asks hosts one after the other, waiting the full time-out for one
that hangs. While it knows of no topic it reads the metadata of the whole cluster. `DataClient` corrects that,
`DataClientPool` throws a client away that no longer gets an answer: after an outage of any length the next
call starts again from `bootstrap.servers`.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeGuard

import aiokafka.errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol.metadata import MetadataRequest

from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import (
    KAFKA_CLIENT_ERRORS,
    NO_LEADER,
    UNAVAILABLE,
    from_code,
    from_reason,
    translate,
)
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.security.oauth.login import TokenError
from twinlog.model import TopicPartition

_NEXT_HOST_AFTER_SECONDS = 0.5
_CLOSE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_UNKNOWN_TOPIC_SECONDS = 1.0
"""How long an unknown topic is asked for again: brokers learn of a new topic one after the other."""
FIRST_CONNECTION_GROUP = 2
"""Connection group of the first request that is under way at a broker; those below are aiokafka's own
(metadata, coordination)."""

log = logging.getLogger("aiokafka.client")


def request_timeout_ms(timeout_seconds: float) -> int:
    """How long one broker may take for one request: half of what the whole call may, so that when one broker
    hangs another can still be asked.
    """
    return max(1, int(timeout_seconds * 500))


class DataClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's client with a bootstrap that tries hosts side by side and raises what really went wrong."""

    _sync_task: asyncio.Task[None] | None
    _topics: set[str]
    _abandoned = False

    async def bootstrap(self) -> None:
        """Connect to any bootstrap server and read the brokers' addresses.

        Raises the most telling client error of all hosts: refused credentials or certificates before
        unreachable ones. A broker that knows of none that is up (it is itself fenced, as after a start or a
        long pause) counts as unreachable: a client without addresses would have nobody to ask ever after.
        """
        failures: list[BaseException] = []
        async with asyncio.TaskGroup() as group:
            pending: set[asyncio.Task[Any]] = set()
            hosts = list(self.hosts)
            while hosts or pending:
                if hosts:
                    host, port, _ = hosts.pop()
                    pending.add(group.create_task(self._ask(host, port), name=f"bootstrap {host}:{port}"))
                done, pending = await asyncio.wait(
                    pending,
                    timeout=_NEXT_HOST_AFTER_SECONDS if hosts else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                answers = [_with_brokers(task.result()) for task in done]
                failures += [answer for answer in answers if isinstance(answer, BaseException)]
                metadata = next((answer for answer in answers if not isinstance(answer, BaseException)), None)
                if metadata is not None:
                    for task in pending:
                        task.cancel()
                    self.cluster.update_metadata(metadata)
                    if self._sync_task is None:
                        self._sync_task = self._loop.create_task(self._md_synchronizer(), name="metadata")
                    return
        raise min(failures, key=lambda error: translate(error, "connect").retriable)

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        """Ask for fresh metadata; False at once when the client is closed, so that nothing waits for ever."""
        if self._abandoned:
            nothing: asyncio.Future[bool] = self._loop.create_future()
            nothing.set_result(False)
            return nothing
        update: asyncio.Future[bool] = super().force_metadata_update()
        return update

    async def leader(self, partition: TopicPartition, doing: str, *, alias: str) -> int:
        """Node id of the partition's leader; waits while it has none. Bounded by the caller's deadline.

        Raises TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED (both after asking again) or KAFKA_UNAVAILABLE.
        """
        while True:
            answer = (await self.leaders((partition,), doing, alias=alias))[partition]
            if not isinstance(answer, KafkaError):
                return answer
            if answer.reason != NO_LEADER.name:
                raise answer

    async def leaders(
        self, partitions: Collection[TopicPartition], doing: str, *, alias: str
    ) -> dict[TopicPartition, int | KafkaError]:
        """Node ids of the partitions' leaders, or why there is none: TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED,
        LEADER_UNAVAILABLE (all after asking again for up to a second) or KAFKA_UNAVAILABLE.
        """
        give_up_at = self._loop.time() + _UNKNOWN_TOPIC_SECONDS
        found: dict[TopicPartition, int | KafkaError] = {}
        fresh = False
        while True:
            missing = [one for one in partitions if one not in found and not self._is_led(one)]
            if not missing or (fresh and self._loop.time() > give_up_at):
                break
            if fresh:
                await pause(_PAUSE_SECONDS)
            self._topics = self._topics | {partition.topic for partition in missing}
            if not await self.refreshed():
                found |= {one: from_reason(UNAVAILABLE, doing, alias=alias) for one in missing}
                break
            fresh = True
            for one in missing:
                if one.topic in self.cluster.unauthorized_topics:
                    found[one] = from_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED, doing, alias=alias)
        for one in partitions:
            if one not in found:
                found[one] = self._leader_of(one, doing, alias)
        return found

    def _is_led(self, partition: TopicPartition) -> bool:
        leader = self.cluster.leader_for_partition(partition)
        return leader is not None and leader >= 0

    def _leader_of(self, partition: TopicPartition, doing: str, alias: str) -> int | KafkaError:
        leader = self.cluster.leader_for_partition(partition)
        if leader is None:
            return from_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, doing, alias=alias)
        return int(leader) if leader >= 0 else from_reason(NO_LEADER, doing, alias=alias)

    async def _metadata_update(self, cluster_metadata: Any, topics: Collection[str] | None) -> bool:
        """aiokafka's, every few minutes and when something moved; False when no broker answered.

        A client that was never asked for a topic (one that holds a lease, or asks about groups) needs brokers
        only. Four services with a hundred flows have some thousand of those, and a cluster ten thousand
        topics.
        """
        request = MetadataRequest(list(topics or ()), allow_auto_topic_creation=False)
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        for node_id in nodes:
            connection = await self._get_conn(node_id)
            if connection is None:
                continue
            try:
                metadata = await connection.send(request)
            except (aiokafka.errors.KafkaError, TimeoutError) as error:
                log.debug("no metadata from node %s: %s", node_id, error)
                continue
            if not metadata.brokers:
                return False
            cluster_metadata.update_metadata(metadata)
            return True
        cluster_metadata.failed_update(None)
        return False

    async def refreshed(self) -> bool:
        """Read the metadata again; False when no broker answered."""
        if self._sync_task is None or self._sync_task.done():
            return False
        return bool(await self.force_metadata_update())

    def abandon(self) -> None:
        """Let go of all connections now, without goodbye: requests in flight fail with
        KafkaConnectionError."""
        self._abandoned = True
        if self._sync_task is not None:
            self._sync_task.cancel()
        if self._md_update_fut is not None and not self._md_update_fut.done():
            self._md_update_fut.set_result(False)
        for connection in self._conns.values():
            if connection._writer is not None:
                connection._writer.transport.abort()
            connection.close()

    async def _ask(self, host: str, port: int) -> Any:
        """The metadata from one host, or the error as a value so that other hosts go on."""
        try:
            connection = await self._connect(host, port)
            try:
                return await connection.send(MetadataRequest([], allow_auto_topic_creation=False))
            finally:
                connection.close()
        except KAFKA_CLIENT_ERRORS as error:
            return error
        except (ValueError, AssertionError) as error:
            # SCRAM: the server proved nothing, or sent what is no SCRAM message.
            return aiokafka.errors.AuthenticationFailedError(str(error))

    async def _connect(
        self, host: str, port: int, on_close: Callable[..., None] | None = None
    ) -> DataConnection:
        connection = DataConnection(
            host,
            port,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            ssl_context=self._ssl_context,
            security_protocol=self._security_protocol,
            max_idle_ms=self._connections_max_idle_ms,
            on_close=on_close,
            sasl_mechanism=self._sasl_mechanism,
            sasl_plain_username=self._sasl_plain_username,
            sasl_plain_password=self._sasl_plain_password,
            sasl_oauth_token_provider=self._sasl_oauth_token_provider,
        )
        await connection.connect()
        return connection

    async def _get_conn(
        self, node_id: int, *, group: int = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> DataConnection | None:
        """aiokafka's, with connections of our own; None when the broker cannot be reached."""
        key = (node_id, group)
        present: DataConnection | None = self._conns.get(key)
        if present is not None and present.connected():
            return present
        self._conns.pop(key, None)
        try:
            broker = self.cluster.broker_metadata(node_id)
            if broker is None:
                raise aiokafka.errors.StaleMetadata(f"Broker id {node_id} not in current metadata")
            async with self._get_conn_lock:
                if key not in self._conns:
                    self._conns[key] = await self._connect(
                        broker.host, broker.port, self._on_connection_closed
                    )
        except (OSError, TimeoutError, aiokafka.errors.KafkaError, TokenError) as error:
            log.debug("unable to connect to node %s: %s", node_id, error)
            self.force_metadata_update()
            return None
        return self._conns[key]  # type: ignore[no-any-return]


async def close_client(client: DataClient) -> None:
    """Close within a second, also when brokers hang: TLS would wait 30 s for the other side's goodbye."""
    with contextlib.suppress(TimeoutError, *KAFKA_CLIENT_ERRORS):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()
    client.abandon()


class DataClientPool:
    """One lazily opened client with what readers need of it. Not to be shared between event loops."""

    def __init__(
        self,
        alias: str,
        options: Mapping[str, Any],
        *,
        timeout_seconds: float,
        new_client: Callable[..., DataClient] = DataClient,
    ) -> None:
        """`options` are those of `aiokafka_client_options`; `new_client` takes them."""
        self.alias = alias
        self._new_client = new_client
        self._options = {"request_timeout_ms": request_timeout_ms(timeout_seconds), **options}
        self.timeout_seconds = timeout_seconds
        self._client: DataClient | None = None
        self._suspect = False
        self._opening = asyncio.Lock()
        self._busy: set[tuple[int, int]] = set()
        self._throttled_until: dict[tuple[int, int], float] = {}
        """By broker and API key, loop time."""

    async def client(self, doing: str) -> DataClient:
        """The connected client. Raises KafkaError; bounded by the caller's deadline."""
        if self._client is not None and not self._suspect:
            return self._client
        async with self._opening:
            if self._client is not None and self._suspect and not await self._answers(self._client):
                await self._drop()
            if self._client is None:
                client = self._new_client(**self._options)
                try:
                    await client.bootstrap()
                except KAFKA_CLIENT_ERRORS as error:
                    raise translate(error, doing, alias=self.alias) from error
                self._client = client
            self._suspect = False
            return self._client

    def suspect(self) -> None:
        """Tell that a request got no answer: the next call makes sure that brokers can still be reached."""
        self._suspect = True

    async def leader(self, partition: TopicPartition, doing: str) -> int:
        """Node id of the partition's leader; see `DataClient.leader`."""
        client = await self.client(doing)
        try:
            return await client.leader(partition, doing, alias=self.alias)
        except TransientKafkaError:
            self.suspect()
            raise

    async def any_node(self, doing: str) -> int:
        """Node id of some broker. Raises KafkaError."""
        node_id: int | None = (await self.client(doing)).get_random_node()
        if node_id is None:
            self.suspect()
            raise from_reason(UNAVAILABLE, doing, alias=self.alias)
        return node_id

    async def make_known(self, node_ids: Collection[int], doing: str) -> None:
        """Read the metadata again when a broker's address is not known. Raises KafkaError."""
        client = await self.client(doing)
        if any(client.cluster.broker_metadata(node_id) is None for node_id in node_ids):
            await client.refreshed()

    async def forget_leader(self, doing: str) -> None:
        """Read the metadata again after a broker said that it no longer leads."""
        await (await self.client(doing)).refreshed()
        await pause(_PAUSE_SECONDS)

    async def send(self, node_id: int, request: Any, doing: str) -> Any:
        """One request to one broker, on a connection of its own while it lasts (a waiting fetch blocks
        others).

        A broker that throttles requests of this kind is not asked before it is over (`throttled_seconds`).
        Raises KafkaError. When the caller is cancelled its connection is closed: an answer may still be
        coming.
        """
        client = await self.client(doing)
        api_key = _api_key(request)
        throttled_seconds = self.throttled_seconds(node_id, api_key)
        if throttled_seconds > 0:
            await pause(throttled_seconds)
        lane = FIRST_CONNECTION_GROUP
        while (node_id, lane) in self._busy or _is_muted(client._conns.get((node_id, lane))):
            lane += 1
        place = node_id, lane
        self._busy.add(place)
        try:
            connection: DataConnection | None = client._conns.get(place)
            if connection is not None and connection.connected() and isinstance(request, HandWrittenRequest):
                answer = await connection.post(request)
            else:
                answer = await client.send(node_id, request, group=lane)
            connection = client._conns.get(place)
            if _is_muted(connection):
                self._throttled_until[node_id, api_key] = (
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
            self._busy.discard(place)

    def throttled_seconds(self, node_id: int, api_key: int) -> float:
        """For how much longer a broker asked not to be sent such requests, at most a minute; 0 if it did
        not."""
        until = self._throttled_until.get((node_id, api_key), 0.0)
        return max(0.0, until - asyncio.get_running_loop().time()) if until else 0.0

    @property
    def is_throttled(self) -> bool:
        """Whether any broker asks to be left alone for now, as a quota says: also one that told so on a
        connection which others use, as producers do."""
        now = asyncio.get_running_loop().time()
        connections = () if self._client is None else self._client._conns.values()
        return any(until > now for until in self._throttled_until.values()) or any(
            map(_is_muted, connections)
        )

    async def close(self) -> None:
        """Close the client. Takes at most a second or so."""
        await self._drop()

    async def _answers(self, client: DataClient) -> bool:
        try:
            async with asyncio.timeout(self.timeout_seconds / 4):
                return await client.refreshed()
        except TimeoutError:
            return False

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_client(client)


def _with_brokers(answer: Any) -> Any:
    """The answer, or the error that stands for one without any broker."""
    if isinstance(answer, BaseException) or answer.brokers:
        return answer
    return aiokafka.errors.BrokerNotAvailableError("the broker that answers knows of none that is up")


def _is_muted(connection: DataConnection | None) -> TypeGuard[DataConnection]:
    """The broker reads nothing from it: it throttles its client."""
    return connection is not None and connection.connected() and connection.throttled_seconds > 0


def _api_key(request: Any) -> int:
    key: int = request.api_key if isinstance(request, HandWrittenRequest) else request.API_KEY
    return key
