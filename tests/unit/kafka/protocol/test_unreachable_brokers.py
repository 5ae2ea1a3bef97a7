"""One broker or address whose packets vanish: work with all others goes on as if it were not there."""

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest, FindCoordinatorResponse_v1
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1
from aiokafka.protocol.transaction import InitProducerIdRequest, InitProducerIdResponse_v0

from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient, close_client
from twinlog.kafka.protocol.data_connection import DataConnection, _keep_alive
from twinlog.kafka.raw import fence
from twinlog.kafka.raw.leaders import meet_leaders
from twinlog.kafka.raw.transactions.wire import ProducerIdentity

REQUEST_SECONDS = 15.0
DEAD = "3"
HOSTS = {1: "1", 2: "2", 3: DEAD}
COORDINATOR = 1


class _Network:
    """Three brokers, of which one may swallow what it gets. Brokers answer at once."""

    def __init__(self, *, dead: str = DEAD) -> None:
        self.dead = dead
        self.connects: Counter[str] = Counter()
        self.is_metadata_answered = True
        self.leaders: dict[int, int] = {}

    def client(self, **options: Any) -> "_Client":
        return _Client(self, **options)

    def session(self) -> DataClientPool:
        options = {"bootstrap_servers": ["1:9092"], "request_timeout_ms": int(REQUEST_SECONDS * 1000)}
        return DataClientPool("B", options, timeout_seconds=30.0, new_client=self.client)

    def metadata(self) -> Any:
        partitions = [(0, number, leader, [leader], [leader]) for number, leader in self.leaders.items()]
        return MetadataResponse_v1(
            [(node_id, host, 9092, None) for node_id, host in HOSTS.items()],
            1,
            [(0, "t", False, partitions)] if partitions else [],
        )

    def answer(self, request: Any) -> Any:
        match request:
            case MetadataRequest():
                return self.metadata()
            case FindCoordinatorRequest():
                return FindCoordinatorResponse_v1(0, 0, "", COORDINATOR, "1", 9092)
            case InitProducerIdRequest():
                return InitProducerIdResponse_v0(0, 0, 7, 0)
        raise AssertionError(request)


class _Connection:
    """What `DataClient` and the session use of a connection."""

    def __init__(self, network: _Network, host: str) -> None:
        self._network = network
        self._host = host
        self._is_open = True
        self.throttled_seconds = 0.0

    def connected(self) -> bool:
        return self._is_open

    def has_heard_within(self, _seconds: float) -> bool:
        return True

    def close(self, reason: Any = None, exc: Any = None) -> "asyncio.Future[None]":
        self._is_open = False
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed

    _writer = None

    async def send(self, request: Any, expect_response: bool = True) -> Any:
        silent = isinstance(request, MetadataRequest) and not self._network.is_metadata_answered
        if self._host == self._network.dead or silent:
            await _swallowed()
        return self._network.answer(request)


class _Client(DataClient):
    def __init__(self, network: _Network, **options: Any) -> None:
        super().__init__(**options)
        self._network = network

    async def _connect(
        self, host: str, port: int, on_close: Callable[..., None] | None = None
    ) -> DataConnection:
        self._network.connects[host] += 1
        if host == self._network.dead:
            await _swallowed()
        return cast("DataConnection", _Connection(self._network, host))


async def _swallowed() -> None:
    async with asyncio.timeout(REQUEST_SECONDS):
        await asyncio.Event().wait()


async def _opened(network: _Network) -> _Client:
    client = network.client(bootstrap_servers=["1:9092"], request_timeout_ms=int(REQUEST_SECONDS * 1000))
    await client.bootstrap()
    return client


def _now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_connection_to_a_healthy_broker_waits_for_no_other_broker() -> None:
    client = await _opened(_Network())
    async with asyncio.TaskGroup() as group:
        dead = group.create_task(client.ready(3), name="to the dead one")
        await asyncio.sleep(0)  # noqa: TID251  # until it waits
        began = _now()
        assert await client.ready(1)
        assert _now() == began
    assert not dead.result()
    await close_client(client)


async def test_all_who_wait_for_a_dead_broker_wait_for_one_attempt() -> None:
    network = _Network()
    client = await _opened(network)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(client.ready(3), name="to the dead one") for _ in range(12)]
    assert not any(each.result() for each in waiting)
    assert _now() == REQUEST_SECONDS
    assert network.connects[DEAD] == 1
    await close_client(client)


async def test_metadata_is_read_from_those_who_answer() -> None:
    """Also where connections are open to all, and one falls silent."""
    network = _Network(dead="")
    client = await _opened(network)
    for node_id in HOSTS:
        assert await client.ready(node_id)
    network.dead = DEAD
    for _ in range(50):
        began = _now()
        assert await client.refreshed()
        assert _now() - began <= 0.5
    assert _now() <= 5.0, "after its first silence it is asked rarely"
    await close_client(client)


async def test_a_broker_that_lost_its_controller_is_not_the_only_one_that_tells_the_metadata() -> None:
    network = _Network(dead="")
    client = await _opened(network)
    told = []
    for _ in range(4):
        assert await client.refreshed()
        told.append(client.told_last)
    assert all(one != next_one for one, next_one in pairwise(told))
    assert len(set(told)) == 2, "two connections are enough"
    await close_client(client)


@pytest.mark.parametrize("count", [1, 12])
async def test_every_id_is_fenced_while_a_broker_is_silent_that_coordinates_none(count: int) -> None:
    for _ in range(10):
        session = _Network().session()
        began = _now()
        ids = [f"twinlog-A-B-{number}" for number in range(count)]
        outcome = await fence(session, ids, timeout_seconds=30.0, transaction_timeout_seconds=60.0)
        assert outcome == dict.fromkeys(ids, ProducerIdentity(7, 0))
        assert _now() - began <= 2.0
        await session.close()


async def test_any_node_is_one_that_can_be_reached() -> None:
    for _ in range(10):
        session = _Network().session()
        assert await session.any_node("look") in (1, 2)
        await session.close()


async def test_who_may_be_slow_to_answer_is_slow_to_connect_all_the_same() -> None:
    for _ in range(10):
        session = _Network().session()
        for _ in range(3):
            began = _now()
            await session.send_any(MetadataRequest(), "list topics", slow_seconds=7.5)
            assert _now() - began <= 0.5
        await session.close()


async def test_connections_that_answer_are_kept_when_no_broker_tells_the_metadata() -> None:
    network = _Network()
    session = network.session()
    client = await session.client("look")
    assert await client.ready(1)
    network.is_metadata_answered = False
    session.suspect()
    assert await session.client("look again") is client
    await session.close()


async def test_a_task_starts_without_the_leader_that_cannot_be_reached() -> None:
    network = _Network()
    network.leaders = {0: 1, 1: 3, 2: 2}
    session = network.session()
    await meet_leaders(session, ["t"], 2)
    assert _now() <= 5.0
    client = await session.client("look")
    assert {node_id for node_id, group in client._conns if group == 2} == {1, 2}
    await session.close()


def test_connections_are_kept_alive() -> None:
    """Otherwise one that a NAT has forgotten costs the time-out of a request."""
    options: dict[tuple[int, int], int] = {}

    class Opened:
        def setsockopt(self, level: int, option: int, value: int) -> None:
            options[level, option] = value

    _keep_alive(cast("socket.socket", Opened()))
    assert options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    assert [value for (level, _), value in options.items() if level == socket.IPPROTO_TCP] == [60]


class _Addresses:
    """A host name with several addresses, each with what happens there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **outcomes: Exception | None) -> None:
        self._outcomes = outcomes
        self.tried: list[str] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", self._resolve)
        monkeypatch.setattr(loop, "create_connection", self._create_connection)

    async def _resolve(self, host: str, port: int, **_: object) -> list[Any]:
        assert host == "kafka"
        return [(0, 0, 0, "", (address, port)) for address in self._outcomes]

    async def _create_connection(self, _protocol: object, address: str, port: int, **_: object) -> Any:
        self.tried.append(address)
        outcome = self._outcomes[address]
        if outcome is None:
            await asyncio.Event().wait()
        assert outcome is not None
        raise outcome


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")


async def test_each_address_of_a_name_is_tried_and_gets_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = _Addresses(monkeypatch, silent=None, refused=REFUSED)
    client = DataClient(bootstrap_servers=["kafka:9092"], request_timeout_ms=15_000)
    with pytest.raises(ConnectionRefusedError):
        await client._ask_host("kafka", 9092)
    assert addresses.tried == ["silent", "refused"]
    assert _now() == 3.0
    with pytest.raises(TimeoutError):
        await client._ask_host("kafka", 9092)
    assert addresses.tried[2:] == ["refused", "silent"], "the one that failed comes last now"
    assert _now() == 18.0


async def test_no_other_address_is_tried_with_a_certificate_that_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = _Addresses(monkeypatch, one=ssl.SSLCertVerificationError("expired"), other=REFUSED)
    client = DataClient(bootstrap_servers=["kafka:9092"])
    with pytest.raises(ssl.SSLCertVerificationError):
        await client._ask_host("kafka", 9092)
    assert addresses.tried == ["one"]
