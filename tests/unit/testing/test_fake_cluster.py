"""What the fake cluster has beyond the contract: faults, outages, holes, and a clock that tests move."""

import asyncio

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.fakes.cluster_state import Transaction

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster("A", clock=FakeClock(now_ms=5_000))
    fake.add_topic("orders")
    return fake


async def append(cluster: FakeCluster, *values: bytes) -> None:
    async with cluster.writer() as writer:
        for value in values:
            await writer.append(PARTITION, key=b"k", value=value)


async def test_a_fault_is_injected_until_it_is_undone(cluster: FakeCluster) -> None:
    def refuse(call: Call) -> None:
        assert call.operation == "append"
        assert call.arguments["partition"] == PARTITION
        raise FatalKafkaError("no", reason="TOPIC_UNAUTHORIZED", code=29)

    undo = cluster.intercept("append", refuse)
    with pytest.raises(FatalKafkaError):
        await append(cluster, b"refused")
    undo()
    undo()
    await append(cluster, b"taken")
    assert [record.value for record in cluster.records(PARTITION)] == [b"taken"]


async def test_an_answer_can_get_lost_after_the_deed(cluster: FakeCluster) -> None:
    seen: list[object] = []

    def lose(call: Call) -> None:
        seen.append(call.result)
        raise TransientKafkaError("lost", reason="KAFKA_TIMEOUT")

    cluster.intercept("append", lose, after=True)
    with pytest.raises(TransientKafkaError):
        await append(cluster, b"written")
    assert seen == [0]
    assert len(cluster.records(PARTITION)) == 1


async def test_a_hook_may_wait(cluster: FakeCluster) -> None:
    gate = asyncio.Event()

    async def slow(call: Call) -> None:
        await gate.wait()

    cluster.intercept("list_topics", slow)
    asked = asyncio.ensure_future(cluster.list_topics())
    done, _ = await asyncio.wait([asked], timeout=0)
    assert not done
    gate.set()
    assert await asked == ["orders"]


async def test_an_outage_hits_every_call_and_ends(cluster: FakeCluster) -> None:
    cluster.take_away()
    for call in (cluster.list_topics(), cluster.list_groups(), append(cluster, b"v")):
        with pytest.raises(TransientKafkaError) as raised:
            await call
        assert raised.value.reason == "KAFKA_UNAVAILABLE"
    cluster.bring_back()
    assert await cluster.list_topics() == ["orders"]


async def test_an_outage_ends_a_waiting_fetch(cluster: FakeCluster) -> None:
    async with cluster.reader() as reader:
        waiting = asyncio.ensure_future(reader.fetch(PARTITION, 0, max_wait_seconds=60))
        await asyncio.wait([waiting], timeout=0)
        cluster.take_away()
        with pytest.raises(TransientKafkaError):
            await waiting


async def test_holes_are_passed(cluster: FakeCluster) -> None:
    await append(cluster, b"0", b"1", b"2")
    cluster.punch_holes(PARTITION, [0, 2])
    async with cluster.reader() as reader:
        fetched = await reader.fetch(PARTITION, 0, max_wait_seconds=0)
    assert [(record.offset, record.value) for record in fetched.records] == [(1, b"1")]
    assert fetched.next_offset == 3


async def test_a_log_can_lose_its_tail(cluster: FakeCluster) -> None:
    await append(cluster, b"0", b"1", b"2")
    cluster.truncate(PARTITION, 1)
    await append(cluster, b"other")
    assert [record.value for record in cluster.records(PARTITION)] == [b"0", b"other"]


async def test_time_is_the_clocks(cluster: FakeCluster) -> None:
    await append(cluster, b"0")
    assert isinstance(cluster.clock, FakeClock)
    cluster.clock.advance(1.5)
    await append(cluster, b"1")
    assert [record.timestamp_ms for record in cluster.records(PARTITION)] == [5_000, 6_500]


async def test_a_replaced_topic_has_another_id(cluster: FakeCluster) -> None:
    before = cluster.topics["orders"].topic_id
    cluster.add_topic("orders", 2)
    assert cluster.topics["orders"].topic_id != before


async def test_offsets_go_with_their_topic(cluster: FakeCluster) -> None:
    cluster.set_group("readers", {PARTITION: 3})
    assert await cluster.group_offsets(["readers"]) == {
        "readers": {PARTITION: CommittedOffset(next_offset=3)}
    }
    await cluster.delete_topics(["orders"])
    assert await cluster.group_offsets(["readers"]) == {"readers": {}}


async def test_an_open_transaction_can_be_finished_later(cluster: FakeCluster) -> None:
    records = [Record(offset=-1, timestamp_ms=1, key=b"k", value=b"v")]
    number = cluster.append_transaction(PARTITION, records, Transaction.OPEN)
    async with cluster.reader() as reader:
        assert (await reader.fetch(PARTITION, 0, max_wait_seconds=0)).next_offset == 0
        cluster.finish_transaction(PARTITION, number, Transaction.COMMITTED)
        fetched = await reader.fetch(PARTITION, 0, max_wait_seconds=0)
    assert (len(fetched.records), fetched.next_offset) == (1, 2)


async def test_state_outlives_its_owners(cluster: FakeCluster) -> None:
    async with cluster as first:
        assert first is cluster
    async with cluster as second:
        assert await second.list_topics() == ["orders"]


def test_a_clock_does_not_run_backwards_but_can_be_set() -> None:
    clock = FakeClock(now_ms=1_000, monotonic=1.0)
    clock.advance(0.25)
    assert (clock.now_ms(), clock.monotonic()) == (1_250, 1.25)
    with pytest.raises(ValueError):
        clock.advance(-1)
    clock.set_wall_clock(500)
    assert (clock.now_ms(), clock.monotonic()) == (500, 1.25)
