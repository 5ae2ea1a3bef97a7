"""README: MirrorMaker 2's own Java tools read what Twinlog writes."""

import asyncio
import re

import pytest

from e2e.conftest import MirrorRig
from integration.migration.java_mirror_client import java_answers
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import read_some
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name, write_batches
from twinlog.testing.java.mm2 import Formatter, read_formatted

pytestmark = pytest.mark.java


async def test_mm2_formatters_read_checkpoints_syncs_and_heartbeats(mirror: MirrorRig) -> None:
    topic, group = unique_name("e2e-java"), unique_name("app")
    async with mirror.source() as source:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
    records = [NewRecord(b"k", b"%d" % i, SystemClock().now_ms()) for i in range(10)]
    await write_batches(mirror.pair.a, topic, [(0, Codec.NONE, records)])
    a, b = mirror.pair.a, mirror.pair.b
    await read_some("A", a.client_properties(), group=group, topic=topic, at_least=10, max_idle_polls=60)
    east, west = mirror.source_alias, mirror.target_alias

    async def lines(cluster: BlockingCluster, named: str, formatter: Formatter) -> list[str]:
        partition, properties = TopicPartition(named, 0), cluster.client_properties()
        async with open_cluster("java", properties) as client:
            if named not in await client.list_topics():
                return []
            end = (await client.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
        assert isinstance(end, int)
        if end == 0:
            return []
        return list(await asyncio.to_thread(read_formatted, properties, named, formatter, count=end))

    async def checkpoint() -> str | None:
        found = await lines(b, f"{east}.checkpoints.internal", Formatter.CHECKPOINT)
        wanted = (
            f"consumerGroupId={group}, topicPartition={east}.{topic}-0, upstreamOffset=10, downstreamOffset="
        )
        return next((line for line in found if wanted in line), None)

    assert (await eventually(checkpoint)).startswith("Checkpoint{")

    async def offset_sync() -> str | None:
        found = await lines(a, f"mm2-offset-syncs.{west}.internal", Formatter.OFFSET_SYNC)
        pattern = (
            rf"OffsetSync\{{topicPartition={re.escape(topic)}-0, upstreamOffset=\d+, downstreamOffset=\d+\}}"
        )
        return next((line for line in found if re.fullmatch(pattern, line)), None)

    assert await eventually(offset_sync)

    async def heartbeat() -> str | None:
        found = await lines(b, "heartbeats", Formatter.HEARTBEAT)
        expected = f"Heartbeat{{sourceClusterAlias={east}, targetClusterAlias={west}, timestamp="
        return next((line for line in found if line.startswith(expected)), None)

    assert await eventually(heartbeat)


async def test_mirror_client_finds_the_source_and_the_hops_to_it_by_our_beats(mirror: MirrorRig) -> None:
    """As `upstreamClusters` and `replicationHops` do, which look for copies of `heartbeats`."""
    east, servers = mirror.source_alias, mirror.pair.b.bootstrap_servers

    async def are_there() -> bool:
        async with mirror.target() as target:
            return {f"{east}.heartbeats", f"{east}.checkpoints.internal"} <= set(await target.list_topics())

    await eventually(are_there)
    arguments = (servers, east, unique_name("nobody"), "nobody", east, "nowhere")
    said = await asyncio.to_thread(java_answers, *arguments)
    assert east in said["upstream"]
    assert f"{east}.heartbeats" in said["heartbeats"]
    assert said[f"hops {east}"] == ["1"]
    assert said["hops nowhere"] == ["-1"]
