"""A replica that the leader names (KIP-392) and that cannot serve: the leader does, and nothing spins."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from twinlog.batches import DecodedRecord
from twinlog.kafka.clients import FetchOptions
from twinlog.kafka.raw import FetchedPartition, FetchSizes, RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import source_batch
from unit.kafka.source_rig import SourceRig, source_rig

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH = source_batch([DecodedRecord(0, 0, None, b"v", ())])
LEADER, REPLICA = 1, 2
RACK = FetchOptions(client_rack="near")


@asynccontextmanager
async def with_replica(*, is_known: bool) -> AsyncIterator[SourceRig]:
    """The leader names another replica; `is_known`: to the client, before it reads the metadata again."""
    async with source_rig({ONE: LEADER}, node_count=2) as source:
        cluster = source.kafka.cluster
        cluster.is_rack_aware, cluster.nodes[REPLICA].rack = True, "near"
        cluster.delete_topic("t")
        cluster.create_topic("t", assignment=[[LEADER, REPLICA]])
        if not is_known:
            cluster.node_down(REPLICA)
        await source.session.leader(ONE, "get to know the brokers")
        cluster.node_up(REPLICA)
        source.append(ONE, [BATCH])
        yield source


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_replica_that_is_not_known_or_does_not_answer_leaves_the_work_to_the_leader(
    *, is_known: bool
) -> None:
    async with with_replica(is_known=is_known) as source:
        source.kafka.faults.begin(api="fetch", node_id=REPLICA, hangs=True)
        answer = None
        async with RawFetcher(source.session, RACK) as fetcher:
            while not isinstance(answer, FetchedPartition):
                answer = (await fetcher.poll({ONE: 0}, max_wait_seconds=1.0)).get(ONE)
        assert len(answer.records) == len(BATCH)
        nodes = [asked.node for asked in source.asked]
        assert len(nodes) <= 4
        assert nodes[-1] == LEADER
        assert source.asked[-1].rack == ""
        client = await source.session.client("look")
        assert client.cluster.broker_metadata(REPLICA), "the metadata is read again"


async def test_the_replica_is_asked_again_later() -> None:
    async with with_replica(is_known=False) as source, RawFetcher(source.session, RACK) as fetcher:
        while not source.asked or source.asked[-1].node != REPLICA:
            await fetcher.poll({ONE: 1}, max_wait_seconds=60.0)
        assert source.asked[-1].at >= 30.0
        assert len(source.asked) < 20


async def test_a_replaced_broker_takes_no_share_of_what_may_be_fetched() -> None:
    async with source_rig({ONE: 1, OTHER: 2}, node_count=3) as source:
        kafka, sizes = source.kafka, FetchSizes(max_bytes=4 << 20)
        kafka.cluster.delete_topic("t")
        kafka.cluster.create_topic("t", partition_count=2, assignment=[[1, 3], [2, 3]])
        async with RawFetcher(source.session, FetchOptions()) as fetcher:
            await fetcher.poll({ONE: 0, OTHER: 0}, max_wait_seconds=1, sizes=sizes)
            for node_id in (1, 2):
                await kafka.stop_node(node_id)
            while len(source.asked) < 3:
                await fetcher.poll({ONE: 0, OTHER: 0}, max_wait_seconds=1, sizes=sizes)
        before, after = source.asked[:2], source.asked[2:]
        assert [asked.max_bytes for asked in before] == [2 << 20, 2 << 20]
        assert {asked.max_bytes for asked in after} == {4 << 20}
