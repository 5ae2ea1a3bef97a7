"""With one seed a history repeats itself: what is asked, in which order, and each byte of every log."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from contract.cluster.wire_client import WireClient
from twinlog.batches import iter_batches
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import Pulse
from twinlog.kafka.raw import FetchedPartition, ProducerSettings, RawFetcher, RawProducer
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka, Loss
from twinlog.testing.broker.calls import Call
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.virtual_time import run_in_virtual_time
from unit.testing.broker.broker_rig import batch, pool

_TOPICS = ("orders", "payments")
_PARTITIONS = [TopicPartition(topic, number) for topic in _TOPICS for number in range(3)]


class _History(NamedTuple):
    requests: list[str]
    """When, at which broker, by whom, and what."""
    logs: Mapping[str, str]
    """Their bytes, by partition and replica."""


def _play(seed: int) -> _History:
    random.seed(seed)  # aiokafka chooses its brokers by it.
    return run_in_virtual_time(_history(seed))


async def _history(seed: int) -> _History:
    requests: list[str] = []
    chance = random.Random(seed)
    async with FakeKafka(node_count=3, seed=seed, handlers=_recorded(requests)) as kafka:
        kafka.cluster.broker_configs["log.retention.check.interval.ms"] = "60000"
        for topic in _TOPICS:
            kafka.cluster.create_topic(topic, partition_count=3)
        ends = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(_read(kafka, name, ends), name=name) for name in ("first", "second")]
            async with asyncio.TaskGroup() as writers:
                for number in range(3):
                    writers.create_task(_write(kafka, number, random.Random(seed + number)), name="writer")
                writers.create_task(_break(kafka, chance), name="faults")
            ends.set()
        assert sum(reader.result() for reader in readers) > 0
        return _History(requests, _bytes_of(kafka))


def _recorded(requests: list[str]) -> dict[int, Callable[[Call], Awaitable[Fields | None]]]:
    def recorded(handler: Callable[[Call], Awaitable[Fields | None]]) -> Any:
        async def record(call: Call) -> Fields | None:
            now = asyncio.get_running_loop().time()
            requests.append(f"{now:.6f} {call.node.node_id} {call.client_id} v{call.version} {call.body!r}")
            return await handler(call)

        return record

    return {key: recorded(handler) for key, handler in HANDLERS.items()}


async def _write(kafka: FakeKafka, number: int, chance: random.Random) -> None:
    """The last one without transactions; the others leave some to their next life, which aborts them."""
    transactional_id = None if number == 2 else f"writer-{number}"
    settings = ProducerSettings(delivery_timeout_seconds=600)
    for _ in range(4):
        async with (
            pool(kafka) as session,
            RawProducer(session, settings, transactional_id=transactional_id) as producer,
        ):
            for _ in range(4):
                if transactional_id:
                    producer.begin()
                for partition in chance.sample(_PARTITIONS, 2):
                    producer.send(partition, batch(chance.randbytes(20)))
                await producer.flush()
                await _pause(chance.random())
                if transactional_id and chance.random() < 0.3:
                    break
                if transactional_id:
                    await producer.commit()


async def _read(kafka: FakeKafka, name: str, ends: asyncio.Event) -> int:
    """Join a group; the first of its members reads and commits. Returns how many bytes it saw."""
    seen = 0
    positions = dict.fromkeys(_PARTITIONS, 0)
    async with (
        open_cluster("A", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=20) as cluster,
        pool(kafka) as session,
        RawFetcher(session, fetch_options({})) as fetcher,
    ):

        def lead(said: Mapping[str, bytes], _generation: int) -> Mapping[str, bytes]:
            return dict.fromkeys(said, min(said.values()))

        leader = b""
        member = cluster.member("readers", assign=lead, session_seconds=6, rebalance_seconds=6)
        try:
            while not ends.is_set():
                if await member.beat() is not Pulse.SEATED:
                    leader = (await member.join(lambda _: name.encode())).assignment
                if leader == name.encode():
                    for partition, found in (await fetcher.poll(positions, max_wait_seconds=0.5)).items():
                        if isinstance(found, FetchedPartition) and found.records:
                            positions[partition] = max(
                                each.header.next_offset for each in iter_batches(found.records)
                            )
                            seen += len(found.records)
                    await _commit(kafka, positions)
                await _pause(0.2)
        finally:
            await member.withdraw()
    return seen


async def _commit(kafka: FakeKafka, positions: Mapping[TopicPartition, int]) -> None:
    node = kafka.cluster.coordinator(0, "positions")
    assert node is not None
    try:
        reader, writer = await asyncio.open_connection(node.host, node.port)
    except ConnectionError:
        return
    topics = [
        {
            "name": partition.topic,
            "partitions": [
                {
                    "partition_index": partition.partition,
                    "committed_offset": offset,
                    "committed_metadata": "",
                }
            ],
        }
        for partition, offset in positions.items()
    ]
    try:
        await WireClient(reader, writer).ask(
            "offset_commit",
            7,
            group_id="positions",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # The broker has gone: the next commit tells what this one would have told.
    finally:
        writer.close()


async def _break(kafka: FakeKafka, chance: random.Random) -> None:
    cluster = kafka.cluster
    partitions = [partition for topic in _TOPICS for partition in cluster.topics[topic].partitions]
    for _ in range(6):
        await _pause(chance.random())
        kafka.faults.begin(
            api=chance.choice(["produce", "fetch", "end_txn"]), loses=chance.choice(list(Loss)), times=1
        )
        kafka.faults.begin(answer_seconds=chance.random() / 10, seconds=1)
        moved = chance.choice(partitions)
        cluster.elect(moved, chance.choice(moved.replicas))
    await kafka.stop_node(2)
    await _pause(1)
    await kafka.start_node(2)


def _bytes_of(kafka: FakeKafka) -> Mapping[str, str]:
    return {
        f"{partition.topic}-{partition.index} on {node_id}": sha256(
            b"".join(each.data for each in log.batches)
        ).hexdigest()
        for partition in kafka.cluster.partitions()
        for node_id, log in partition.logs.items()
    }


async def _pause(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


def test_a_history_repeats_itself_with_its_seed_and_only_with_it() -> None:
    first, again, other = _play(1), _play(1), _play(2)
    assert first.requests == again.requests
    assert first.logs == again.logs
    assert len(first.requests) > 100
    assert first.requests != other.requests
    assert first.logs != other.logs
