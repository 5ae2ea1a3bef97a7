"""aiokafka's client with corrections: a host that hangs delays no other, and the actual error is reported.

aiokafka's client learns new broker addresses only from brokers that it can still reach, reports "unable to
bootstrap" for a wrong password as for a dead host, and tries hosts, addresses and brokers one after the
other, waiting the full time-out for one that hangs; meanwhile it connects to no other. While it knows no
topic it reads the metadata of the whole cluster.
"""

import asyncio
import contextlib
import logging
import math
import random
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from functools import cached_property, partial
from typing import Any, TypeVar

import aiokafka.errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.protocol.metadata import MetadataRequest

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import (
    KAFKA_CLIENT_ERRORS,
    NO_LEADER,
    UNAVAILABLE,
    from_code,
    from_reason,
)
from twinlog.kafka.protocol.data_connection import DataConnection
from twinlog.kafka.protocol.reach import (
    SLOW_SECONDS,
    AddressOrder,
    Attempt,
    NodeChoice,
    address_seconds,
    first_answer,
)
from twinlog.model import TopicPartition

_CLOSE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_LOOK_AGAIN_SECONDS = 0.5
_UNKNOWN_TOPIC_SECONDS = 1.0
"""How long an unknown topic is looked up again: brokers learn of a new topic one after the other."""

T = TypeVar("T")

log = logging.getLogger("aiokafka.client")


def request_timeout_ms(timeout_seconds: float) -> int:
    """How long one broker may take for one request: half of the whole call's time, so that another broker can
    still be asked when one hangs."""
    return max(1, int(timeout_seconds * 500))


class DataClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's client with a bootstrap that tries hosts concurrently and raises the actual error."""

    _sync_task: asyncio.Task[None] | None
    _topics: set[str]
    _abandoned = False
    _forgets_unknown_topics = True
    """Whoever wants one asks for it again: otherwise the topics of a process would only grow."""
    told_last: int | None = None
    """The broker of the last answer that any could give."""
    is_left_out: Callable[[int], bool] = staticmethod(lambda _node_id: False)
    """Brokers that are asked last."""

    async def bootstrap(self) -> None:
        """Connect to any bootstrap server and read the brokers' addresses.

        Raises the most informative error of all hosts. A broker that knows of no broker that is up (it is
        itself fenced, as after a start or a long pause) counts as unreachable, because a client without
        addresses could never ask anybody.
        """
        metadata = await first_answer(
            Attempt(f"bootstrap {host}:{port}", partial(self._ask_host, host, port))
            for host, port, _ in self.hosts
        )
        self.cluster.update_metadata(metadata)
        if self._sync_task is None:
            self._sync_task = self._loop.create_task(self._md_synchronizer(), name="metadata")

    # The state is made when it is first needed, because a producer's client becomes one of this class later.

    @cached_property
    def _connecting(self) -> defaultdict[tuple[int, int], asyncio.Lock]:
        return defaultdict(asyncio.Lock)

    @cached_property
    def _connect_failed_at(self) -> dict[tuple[int, int], float]:
        return {}

    @cached_property
    def _looked_for_at(self) -> dict[int, float]:
        """When the metadata was read again because a broker could not be reached."""
        return {}

    @cached_property
    def _choice(self) -> NodeChoice:
        return NodeChoice()

    @cached_property
    def _addresses(self) -> AddressOrder:
        return AddressOrder()

    def _nodes(self, *, first: int | None = None, told_last: int | None = None) -> list[int]:
        """All known brokers, the best one to ask first."""
        nodes = sorted(broker.nodeId for broker in self.cluster.brokers())  # A set: its order changes.
        random.shuffle(nodes)
        now = self._loop.time()
        ordered = self._choice.ordered(nodes, self._connected_nodes(), now, first=first, told_last=told_last)
        return sorted(ordered, key=self.is_left_out)

    def _connected_nodes(self) -> set[int]:
        return {node_id for (node_id, _), each in self._conns.items() if each.connected()}

    def get_random_node(self) -> int | None:
        """aiokafka's method: a broker that is likely to answer; None if none is known."""
        return next(iter(self._nodes()), None)

    async def ask_any(
        self, ask: Callable[[int], Coroutine[Any, Any, T]], *, slow_seconds: float = SLOW_SECONDS
    ) -> T:
        """The answer of any broker, by its node id: another one is asked when one fails, or takes longer than
        `slow_seconds` on an open connection.

        Raises one of KAFKA_CLIENT_ERRORS, or what `ask` raises. Bounded by what `ask` waits for one broker.
        """

        async def told(node_id: int) -> tuple[int, T]:
            return node_id, await ask(node_id)

        nodes = self._nodes(told_last=self.told_last)
        met = await self._first_met(nodes)
        nodes.sort(key=lambda node_id: node_id != met)
        self.told_last, answer = await self._first_of(nodes, told, slow_seconds)
        return answer

    async def reachable_node(self, *, first: int | None = None) -> int:
        """The node id of any broker with an open connection, if possible of `first`. Raises one of
        KAFKA_CLIENT_ERRORS."""
        return await self._first_met(self._nodes(first=first))

    async def ask_controller(
        self, ask: Callable[[int], Coroutine[Any, Any, T]], *, no_other: bool = False
    ) -> T:
        """The answer of the broker that the metadata names as controller; if it is not to be met, of another
        one, unless `no_other`. Raises as `ask_any`.

        With KRaft any broker is named, and each passes changes on.
        """
        named = self.cluster.controller
        node_id = None if named is None else int(named.nodeId)
        if node_id is None or not no_other:
            node_id = await self.reachable_node(first=node_id)
        return await self._ask(node_id, ask)

    async def _first_met(self, nodes: list[int]) -> int:
        if nodes and nodes[0] in self._connected_nodes():
            return nodes[0]
        return await self._first_of(nodes, self._meet, SLOW_SECONDS)

    async def _meet(self, node_id: int) -> int:
        if node_id not in self._connected_nodes():
            await self._connected(node_id)
        return node_id

    async def _first_of(
        self, nodes: list[int], ask: Callable[[int], Coroutine[Any, Any, T]], slow_seconds: float
    ) -> T:
        attempts = [Attempt(f"ask broker {node_id}", partial(self._ask, node_id, ask)) for node_id in nodes]
        answer: T = await first_answer(attempts, slow_seconds=slow_seconds)
        return answer

    async def _ask(self, node_id: int, ask: Callable[[int], Coroutine[Any, Any, T]]) -> T:
        try:
            answer = await ask(node_id)
        except BaseException:
            # Also when another broker was faster by half a second.
            self._choice.failed(node_id, self._loop.time())
            raise
        self._choice.answered(node_id)
        return answer

    def has_heard_within(self, seconds: float) -> bool:
        """Whether a broker has answered lately on a connection that is still open."""
        return any(each.connected() and each.has_heard_within(seconds) for each in self._conns.values())

    def force_metadata_update(self) -> "asyncio.Future[bool]":
        """Request fresh metadata; False at once when the client is closed, so that nothing waits for ever."""
        if self._abandoned:
            nothing: asyncio.Future[bool] = self._loop.create_future()
            nothing.set_result(False)
            return nothing
        # aiokafka does not, while an update of every few minutes is on its way: with other topics since, the
        # next one would begin only minutes later.
        if not self._md_update_waiter.done():
            self._md_update_waiter.set_result(None)
        update: asyncio.Future[bool] = super().force_metadata_update()
        return update

    async def leader(self, partition: TopicPartition, doing: str, *, alias: str) -> int:
        """The node id of the partition's leader; waits while there is none. The caller's deadline applies.
        Raises TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED (both after asking again) or KAFKA_UNAVAILABLE."""
        while True:
            answer = (await self.leaders((partition,), doing, alias=alias))[partition]
            if not isinstance(answer, KafkaError):
                return answer
            if answer.reason != NO_LEADER.name:
                raise answer

    async def leaders(
        self, partitions: Collection[TopicPartition], doing: str, *, alias: str
    ) -> dict[TopicPartition, int | KafkaError]:
        """The node ids of the partitions' leaders, or the errors: TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED,
        LEADER_UNAVAILABLE (all after asking again for up to a second) or KAFKA_UNAVAILABLE."""
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
                    code = ErrorCode.topic_authorization_failed
                    found[one] = from_code(code, f"{doing}, {one}", alias=alias)
        for one in partitions:
            if one not in found:
                found[one] = self._leader_of(one, f"{doing}, {one}", alias)
        return found

    def _is_led(self, partition: TopicPartition) -> bool:
        leader = self.cluster.leader_for_partition(partition)
        return leader is not None and leader >= 0

    def _leader_of(self, partition: TopicPartition, doing: str, alias: str) -> int | KafkaError:
        leader = self.cluster.leader_for_partition(partition)
        if leader is None:
            return from_code(ErrorCode.unknown_topic_or_partition, doing, alias=alias)
        if leader >= 0:
            return int(leader)
        return from_reason(NO_LEADER, doing, alias=alias, detail=self.who_may_lead(partition))

    def who_may_lead(self, partition: TopicPartition) -> str:
        """Which brokers have to be there, in words; empty if the partition is not known. The leader
        may be dead: too few controllers are left to elect another one."""
        known = self.cluster._partitions.get(partition.topic, {}).get(partition.partition)
        if known is None:
            return ""
        able = [known.leader] if known.leader >= 0 else sorted(known.isr or known.replicas)
        role = "its leader is" if known.leader >= 0 else "its newest records are on"
        return f"{role} broker {' or '.join(map(self._place, able))}"

    def in_sync(self, partition: TopicPartition) -> str:
        """Which brokers have to have each of its records, in words; empty if that is not known."""
        known = self.cluster._partitions.get(partition.topic, {}).get(partition.partition)
        return "" if known is None else " and ".join(map(self._place, sorted(known.isr)))

    def _place(self, node_id: int) -> str:
        at = self.cluster.broker_metadata(node_id)
        return str(node_id) if at is None else f"{node_id} at {at.host}:{at.port}"

    async def _metadata_update(self, cluster_metadata: Any, topics: Collection[str] | None) -> bool:
        """Called by aiokafka every few minutes, and when something moved; False when no broker answered.

        A client that was never asked about a topic (one that holds a lease, or asks about groups) only needs
        brokers. Four services with a hundred flows have about a thousand of those, and a cluster may have ten
        thousand topics.
        """
        request = MetadataRequest(list(topics or ()), allow_auto_topic_creation=False)

        async def ask(node_id: int) -> Any:
            return _with_brokers(await (await self._connected(node_id)).send(request))

        try:
            metadata = await self.ask_any(ask)
        except KAFKA_CLIENT_ERRORS as error:
            log.debug("no metadata: %s", error)
            cluster_metadata.failed_update(None)
            return False
        cluster_metadata.update_metadata(metadata)
        if self._forgets_unknown_topics:
            # The same set: another one is a reason to ask again, and whoever waits would wait for minutes.
            self._topics.difference_update(
                topic for code, topic, *_ in metadata.topics if code == ErrorCode.unknown_topic_or_partition
            )
        return True

    async def refreshed(self) -> bool:
        """Read the metadata again; False when no broker answered."""
        if self._sync_task is None or self._sync_task.done():
            return False
        return bool(await self.force_metadata_update())

    def abandon(self) -> None:
        """Close all connections at once: requests in flight fail with KafkaConnectionError."""
        self._abandoned = True
        if self._sync_task is not None:
            self._sync_task.cancel()
        if self._md_update_fut is not None and not self._md_update_fut.done():
            self._md_update_fut.set_result(False)
        for connection in self._conns.values():
            if connection._writer is not None:
                connection._writer.transport.abort()
            connection.close()

    async def _ask_host(self, host: str, port: int) -> Any:
        """The metadata from one host. Raises one of KAFKA_CLIENT_ERRORS."""
        connection = await self._connect(host, port)
        try:
            return _with_brokers(await connection.send(MetadataRequest([], allow_auto_topic_creation=False)))
        finally:
            connection.close()

    async def _connect(
        self, host: str, port: int, on_close: Callable[..., None] | None = None
    ) -> DataConnection:
        """Connect and log in at one of the host's addresses, within a request's time-out. Raises one of
        KAFKA_CLIENT_ERRORS, whatever the broker or the login does."""
        try:
            host.encode("idna")
        except UnicodeError as error:
            # Brokers may advertise anything; the resolver would raise this.
            raise aiokafka.errors.KafkaConnectionError(f"{host!r} is not a host name: {error}") from error
        timeout_seconds = self._request_timeout_ms / 1000
        async with asyncio.timeout(timeout_seconds):
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            *others, last = self._addresses.of(host, (place[0] for *_, place in found))
            for address in others:
                try:
                    async with asyncio.timeout(address_seconds(timeout_seconds, len(others) + 1)):
                        return await self._connect_to(address, host, port, on_close)
                except ssl.SSLCertVerificationError:
                    raise
                except (OSError, aiokafka.errors.KafkaConnectionError) as error:
                    log.debug("unable to connect to %s at %s: %s", host, address, error)
                    self._addresses.failed(host, address)
            return await self._connect_to(last, host, port, on_close)

    async def _connect_to(
        self, address: str, host: str, port: int, on_close: Callable[..., None] | None
    ) -> DataConnection:
        connection = DataConnection(
            host,
            port,
            address=address,
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
        try:
            await connection.connect()
        except KAFKA_CLIENT_ERRORS:
            # A certificate that cannot be verified is a ValueError, too.
            raise
        except (ValueError, AssertionError, LookupError) as error:
            # SCRAM: the server did not prove its identity, or sent something that is not a SCRAM message.
            # Kerberos: the ticket has expired, or no KDC answers.
            raise aiokafka.errors.AuthenticationFailedError(str(error)) from error
        return connection

    async def _get_conn(
        self, node_id: int, *, group: int = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> DataConnection | None:
        """aiokafka's method, with connections of our own; None when the broker cannot be reached."""
        try:
            return await self._connected(node_id, group)
        except KAFKA_CLIENT_ERRORS as error:
            log.debug("unable to connect to node %s: %s", node_id, error)
            now = self._loop.time()
            if now - self._looked_for_at.get(node_id, -math.inf) >= _LOOK_AGAIN_SECONDS:
                self._looked_for_at[node_id] = now
                self.force_metadata_update()
            return None

    async def _connected(self, node_id: int, group: int = ConnectionGroup.DEFAULT) -> DataConnection:
        """The open connection to a broker. Waits for no other broker. Raises one of KAFKA_CLIENT_ERRORS."""
        key = (node_id, group)
        asked_at = self._loop.time()
        async with self._connecting[key]:
            present: DataConnection | None = self._conns.get(key)
            if present is not None and present.connected():
                return present
            self._conns.pop(key, None)
            broker = self.cluster.broker_metadata(node_id)
            if broker is None:
                raise aiokafka.errors.StaleMetadata(f"Broker id {node_id} not in current metadata")
            if self._connect_failed_at.get(key, asked_at) > asked_at:
                raise aiokafka.errors.NodeNotReadyError(f"Broker id {node_id} was not reached just now")
            try:
                connection = await self._connect(broker.host, broker.port, self._on_connection_closed)
            except KAFKA_CLIENT_ERRORS:
                self._connect_failed_at[key] = self._loop.time()
                self._choice.failed(node_id, self._loop.time())
                raise
            self._choice.answered(node_id)
            self._conns[key] = connection
        if self._abandoned:
            connection.close()
            raise aiokafka.errors.KafkaConnectionError("the client was closed meanwhile")
        return connection


async def close_client(client: DataClient) -> None:
    """Close within a second, also when brokers hang: TLS would wait 30 s for the other side to close."""
    with contextlib.suppress(TimeoutError, *KAFKA_CLIENT_ERRORS):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()
    client.abandon()


def _with_brokers(answer: Any) -> Any:
    """Return the answer; raise the error for one without any broker."""
    if answer.brokers:
        return answer
    raise aiokafka.errors.BrokerNotAvailableError("the broker that answers knows of none that is up")
