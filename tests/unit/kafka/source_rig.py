"""A source that remembers what it was asked: fake brokers, on whose logs batches are put as they are."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import Call
from twinlog.testing.broker.codec import Fields, Request
from twinlog.testing.broker.handlers import HANDLERS
from twinlog.testing.broker.partitions import Node, Partition
from twinlog.testing.broker.stored import stored, whole_batch
from twinlog.testing.raw_copying import open_session
from twinlog.testing.virtual_time import LoopClock

FETCH = API_KEYS["fetch"]


class Asked(NamedTuple):
    """One fetch as a broker received it."""

    at: float
    node: int
    positions: Mapping[TopicPartition, int]
    max_bytes: int
    rack: str


class SourceRig:
    session: DataClientPool

    def __init__(self, leaders: Mapping[TopicPartition, int], *, node_count: int = 1) -> None:
        """A partition is on its leader alone, by node id. An answer takes a millisecond."""
        self.asked: list[Asked] = []
        self.waiting = self.most_waiting = 0
        """Fetches that wait for data now, and at most."""
        nodes = max(node_count, *leaders.values())
        self.kafka = FakeKafka(node_count=nodes, handlers={**HANDLERS, FETCH: self._fetch})
        self.kafka.on_request = self._note
        self.kafka.faults.begin(api="fetch", request_seconds=0.001)
        last_of = {each.topic: each.partition for each in sorted(leaders)}
        for topic, last in last_of.items():
            on = [[leaders.get(TopicPartition(topic, number), 1)] for number in range(last + 1)]
            self.kafka.cluster.create_topic(topic, partition_count=len(on), assignment=on)

    def partition(self, partition: TopicPartition) -> Partition:
        return self.kafka.cluster.topics[partition.topic].partitions[partition.partition]

    def append(self, partition: TopicPartition, batches: Iterable[bytes]) -> None:
        """Also such as no leader would take."""
        found = self.partition(partition)
        for data in batches:
            base_offset = found.log.end_offset
            found.log.append(
                stored(whole_batch(data), base_offset=base_offset, leader_epoch=0, append_time_ms=None)
            )
        found.replicate()

    def asked_for(self, partition: TopicPartition) -> list[Asked]:
        return [each for each in self.asked if partition in each.positions]

    def _note(self, node: Node, request: Request) -> None:
        body = request.body
        if request.api_key == FETCH:
            positions = {
                TopicPartition(topic.topic, each.partition): each.fetch_offset
                for topic in body.topics
                for each in topic.partitions
            }
            at = LoopClock().monotonic()
            self.asked.append(Asked(at, node.node_id, positions, body.max_bytes, body.rack_id))

    async def _fetch(self, call: Call) -> Fields | None:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            return await HANDLERS[FETCH](call)
        finally:
            self.waiting -= 1


@asynccontextmanager
async def source_rig(
    leaders: Mapping[TopicPartition, int], *, node_count: int = 1, timeout_seconds: float = 30.0
) -> AsyncIterator[SourceRig]:
    rig = SourceRig(leaders, node_count=node_count)
    async with rig.kafka:
        properties = {"bootstrap.servers": rig.kafka.bootstrap}
        async with open_session("A", properties, timeout_seconds=timeout_seconds) as rig.session:
            yield rig
