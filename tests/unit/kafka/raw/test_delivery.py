"""What a producer sends to brokers that throttle it (KIP-219), each for a time of its own."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from twinlog.batches import NewRecord, build_batch
from twinlog.errors import TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.raw import ProducerSettings
from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.kafka.raw.produce.delivery import Delivery
from twinlog.kafka.raw.produce.wire import ProduceAnswer, ProduceResponse
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator
from twinlog.kafka.raw.transactions.wire import ProducerIdentity
from twinlog.model import TopicPartition

LONG, SHORT = TopicPartition("t", 1), TopicPartition("t", 2)
"""Each is led by the broker of its number."""
_PRODUCE_CONNECTION = 1


class _Connection:
    """Takes every batch at once, once its throttle is over."""

    def __init__(self, partition: TopicPartition, throttled_until: float) -> None:
        self._partition = partition
        self._until = throttled_until
        self.posted_at: list[float] = []

    @property
    def throttled_seconds(self) -> float:
        return max(0.0, self._until - asyncio.get_running_loop().time())

    def connected(self) -> bool:
        return True

    def post(self, _request: object) -> "asyncio.Future[ProduceResponse]":
        loop = asyncio.get_running_loop()
        self.posted_at.append(loop.time())
        answered: asyncio.Future[ProduceResponse] = loop.create_future()
        answered.set_result(ProduceResponse([ProduceAnswer(self._partition, 0, 7, "")], 0))
        return answered


class _Leaders:
    def leader_for_partition(self, partition: TopicPartition) -> int:
        return partition.partition


@dataclass(slots=True)
class _Client:
    _conns: dict[tuple[int, int], Any]
    cluster: _Leaders = field(default_factory=_Leaders)


@dataclass(slots=True)
class _Session:
    """What `Delivery` asks of a `DataClientPool`."""

    opened: _Client
    alias: str = "B"

    async def client(self, _doing: str) -> _Client:
        return self.opened


class _Away(_Session):
    async def client(self, _doing: str) -> _Client:
        raise TransientKafkaError("no broker", reason="KAFKA_UNAVAILABLE")


async def test_a_transaction_that_takes_too_long_fails_before_its_coordinator_aborts_it() -> None:
    """Data and positions have their own time-outs, which together may be longer."""

    session = cast("DataClientPool", _Away(_Client({})))
    coordinator = TransactionCoordinator(session, "id", transaction_timeout_seconds=60)
    delivery = Delivery(session, ProducerSettings(delivery_timeout_seconds=40), coordinator, "id")
    tasks = OwnedTasks("a test", lambda _: None)
    await tasks.open()
    delivery.start(tasks, ProducerIdentity(1, 0))
    batch = build_batch([NewRecord(None, b"v", 0)])
    loop = asyncio.get_running_loop()
    assert delivery.end_seconds == 40
    data = delivery.put(LONG, batch)
    await pause(30.0)
    delivery.batches.finish(delivery.batches.queue_of(LONG).waiting.popleft(), 7)
    assert await data == 7
    assert delivery.end_seconds == 30
    with pytest.raises(TransientKafkaError) as late:
        await delivery.put(SHORT, batch)
    assert late.value.reason == "KAFKA_TIMEOUT"
    assert 53.9 <= loop.time() <= 54.1
    delivery.stop()
    await tasks.close()


async def test_a_broker_whose_throttle_is_over_does_not_wait_for_that_of_another() -> None:
    long, short = _Connection(LONG, 10.0), _Connection(SHORT, 0.5)
    client = _Client(
        {(LONG.partition, _PRODUCE_CONNECTION): long, (SHORT.partition, _PRODUCE_CONNECTION): short}
    )
    session = cast("DataClientPool", _Session(client))
    coordinator = TransactionCoordinator(session, None, transaction_timeout_seconds=60)
    delivery = Delivery(session, ProducerSettings(), coordinator, None)
    mistakes: list[Exception] = []
    tasks = OwnedTasks("a test", mistakes.append)
    await tasks.open()
    delivery.start(tasks, ProducerIdentity(1, 0))
    batch = build_batch([NewRecord(None, b"v", 0)])
    sent = [delivery.put(partition, batch) for partition in (LONG, SHORT)]
    assert [await acknowledged for acknowledged in sent] == [7, 7]
    delivery.stop()
    await tasks.close()
    assert not mistakes
    assert 10.0 <= long.posted_at[0] < 10.1
    assert 0.5 <= short.posted_at[0] < 0.6


async def test_a_session_knows_that_a_broker_throttles_what_a_producer_sends() -> None:
    """Its batches do not go by the session: a task that waits for nothing else would not know for what."""

    class Opened(_Client):
        async def bootstrap(self) -> None:
            return None

    opened = Opened({(1, _PRODUCE_CONNECTION): _Connection(LONG, 10.0)})
    session = DataClientPool("B", {}, timeout_seconds=30, new_client=lambda **_: cast("DataClient", opened))
    assert not session.is_throttled
    await session.client("write")
    assert session.is_throttled
    await pause(10.0)
    assert not session.is_throttled
