"""`twinlog reverse` as a user whom the fence denies, too."""

from functools import partial
from pathlib import Path

from integration.conftest import MIRROR, GuardedPair
from integration.in_process import twinlog
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import AclBinding, KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually, make_topics, retry_admin, unique_name, write_batches
from twinlog.testing.java.mm2 import quick_mm2_properties
from twinlog.write_blocks import is_fence, is_holder

EVERYTHING = [
    AclBinding(
        resource_type=kind,
        resource_name="kafka-cluster" if kind == "CLUSTER" else "*",
        pattern_type="LITERAL",
        principal=f"User:{MIRROR}",
        host="*",
        operation="ALL",
        permission="ALLOW",
    )
    for kind in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
]


async def write(kafka: BlockingCluster, topic: str, *values: bytes) -> None:
    now_ms = SystemClock().now_ms()
    records = [NewRecord(b"k", value, now_ms) for value in values]
    await write_batches(kafka, topic, [(0, Codec.NONE, records)])


async def test_the_fence_falls_for_the_flow_back_and_the_reversal_stays(
    guarded: GuardedPair, tmp_path: Path
) -> None:
    topic, names = unique_name("reversed"), (unique_name("a"), unique_name("b"))
    clients = {
        name: kafka.client_properties(MIRROR)
        for name, kafka in zip(names, (guarded.a, guarded.b), strict=True)
    }
    there, back = Flow(*names), Flow(*reversed(names))
    properties = quick_mm2_properties(
        clients,
        [there, back],
        {
            "topics": topic,
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        },
    )
    async with (
        open_cluster(names[0], guarded.a.client_properties()) as a,
        open_cluster(names[1], guarded.b.client_properties()) as b,
    ):
        for cluster in (a, b):
            await retry_admin(partial(cluster.create_acls, EVERYTHING))
        await make_topics(a, NewTopic(name=topic, partition_count=1, replication_factor=1))

        async def end(cluster: KafkaCluster) -> int:
            at = TopicPartition(topic, 0)
            found = (await cluster.list_offsets(OffsetSpec.LATEST, [at]))[at]
            return found if isinstance(found, int) else 0

        async def both_have(count: int) -> bool:
            return [await end(a), await end(b)] == [count, count]

        await write(guarded.a, topic, b"A0", b"A1")
        async with TwinlogRun(properties, tmp_path) as run:
            await eventually(lambda: both_have(2))
            asked = ("reverse", str(there), "--fence", "--config", str(run.file))
            planned = await twinlog(*asked)
            assert (planned.returncode, f"{back} will copy" in planned.stdout) == (0, True), planned
            done = await twinlog(*asked, "--execute", "--yes")
            assert done.returncode == 0, done
            assert "UNFENCE" in done.stdout
            await write(guarded.b, topic, b"B2")

            async def has(cluster: KafkaCluster, count: int) -> bool:
                return await end(cluster) >= count

            await eventually(lambda: has(a, 3))
            acls = [each for cluster in (a, b) for each in await cluster.describe_acls() or ()]
            assert not [each for each in acls if is_fence(each) or is_holder(each)]
            assert await run.stop() == 0
        stays = await end(b)
        async with run:
            await write(guarded.a, topic, b"A3")
            await write(guarded.b, topic, b"B3")
            await eventually(lambda: has(a, 5))
            assert await end(b) == stays + 1

            async def is_done_already() -> bool:
                again = await twinlog(*asked, "--execute", "--yes")
                # A flow that is stopped by a rule is taken over like others.
                assert (again.returncode, "FLOW_NOT_READY" in again.stderr) in ((0, False), (1, True)), again
                return again.returncode == 0

            await eventually(is_done_already)
