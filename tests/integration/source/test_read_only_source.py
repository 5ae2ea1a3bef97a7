"""A source that may only be read (docs/rights.md): nothing is written to it, and a flow works."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from integration.configsync.access_rig import allow
from integration.conftest import READER, WRITER, GuardedPair
from integration.source.source_rig import GrowingLog
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, retry_admin, unique_name
from twinlog.testing.service_process import run_service

pytestmark = pytest.mark.broker

MAY_READ = (
    *(allow(operation) for operation in ("DESCRIBE", "READ", "DESCRIBE_CONFIGS")),
    allow("DESCRIBE", "GROUP"),
    allow("DESCRIBE", "CLUSTER"),
)
TOPIC_RIGHTS = ("CREATE", "DESCRIBE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
MAY_WRITE = (
    *(allow(operation, user=WRITER) for operation in TOPIC_RIGHTS),
    *(allow(operation, "TRANSACTIONAL_ID", user=WRITER) for operation in ("DESCRIBE", "WRITE")),
    allow("READ", "GROUP", user=WRITER),
    *(allow(operation, "CLUSTER", user=WRITER) for operation in ("DESCRIBE", "DESCRIBE_CONFIGS", "ALTER")),
)


async def test_a_principal_that_may_only_read_the_source_is_enough(
    guarded: GuardedPair, tmp_path: Path
) -> None:
    east, west, group = unique_name("east"), unique_name("west"), unique_name("readers")
    topic = f"{east}-orders"
    settings = {
        "clusters": f"{east}, {west}",
        **{f"{east}.{key}": value for key, value in guarded.a.client_properties(READER).items()},
        **{f"{west}.{key}": value for key, value in guarded.b.client_properties(WRITER).items()},
        f"{east}->{west}.enabled": "true",
        f"{west}->{east}.emit.heartbeats.enabled": "false",
        f"{east}->{west}.offset-syncs.topic.location": "target",
        "heartbeats.replication.enabled": "false",
        "topics": topic,
        "groups": group,
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "0.5",
        "refresh.groups.interval.seconds": "0.5",
        "emit.checkpoints.interval.seconds": "0.5",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "0.5",
        "twinlog.spark.master": "local[2]",
        "twinlog.drain.seconds": "0",
    }
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_cluster("A", guarded.a.client_properties()))
        target = await stack.enter_async_context(open_cluster("B", guarded.b.client_properties()))
        await retry_admin(lambda: source.create_acls(MAY_READ))
        await retry_admin(lambda: target.create_acls(MAY_WRITE))
        await make_topics(source, NewTopic(name=topic, partition_count=1, replication_factor=1))
        origin, copy = TopicPartition(topic, 0), TopicPartition(f"{east}.{topic}", 0)
        async with source.writer() as writer:
            for number in range(20):
                await writer.append(origin, key=None, value=b"%d" % number)
        committed = {origin: CommittedOffset(next_offset=12)}
        await retry_admin(partial(source.alter_group_offsets, group, committed))

        def text(**more: str) -> str:
            return "".join(f"{key} = {value}\n" for key, value in {**settings, **more}.items())

        configsync = await stack.enter_async_context(
            run_service("configsync", tmp_path / "configsync", text())
        )
        known = text(**{"twinlog.configsync.endpoint": configsync.endpoint})
        for name in ("source", "checkpoint"):
            await stack.enter_async_context(run_service(name, tmp_path / name, known))

        async def copied() -> bool:
            records = await GrowingLog(target, copy).records()
            assert [record.value for record in records] == [b"%d" % number for number in range(20)]
            return True

        await eventually(copied)

        async def translated() -> bool:
            held = (await target.group_offsets([group]))[group]
            assert not isinstance(held, KafkaError), held
            assert {partition: offset.next_offset for partition, offset in held.items()} == {copy: 12}
            return True

        await eventually(translated)
        syncs = f"mm2-offset-syncs.{east}.internal"
        assert syncs in await target.list_topics()
        assert f"mm2-offset-syncs.{west}.internal" not in await source.list_topics()
