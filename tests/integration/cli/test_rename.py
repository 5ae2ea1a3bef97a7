"""`twinlog.topic.rename` on real brokers: data, settings and groups under the new names, and the way back."""

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from integration.source.source_rig import content, open_rig
from twinlog.client import remote_cluster_utils
from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import run_service

pytestmark = pytest.mark.broker

POLICY = "org.apache.kafka.connect.mirror."
RECORDS = [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("policy", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
async def test_data_settings_and_groups_go_by_the_new_names_and_none_meets_another(
    kafka_pair: KafkaPair, tmp_path: Path, policy: str
) -> None:
    mark, group = unique_name("rename"), unique_name("readers")
    renames = f"team-{mark}-(.*) -> eu-{mark}-$1"
    settings = {
        "replication.policy.class": POLICY + policy,
        "twinlog.topic.rename": renames,
        "topics": f".*{mark}.*",
        "groups": group,
        "emit.checkpoints.interval.seconds": "0.5",
        "refresh.groups.interval.seconds": "0.5",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "0.5",
        "sync.topic.configs.interval.seconds": "0.5",
        "checkpoints.topic.replication.factor": "1",
    }
    origin, plain, taken = f"team-{mark}-orders", f"plain-{mark}", f"eu-{mark}-orders"
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **settings))
        prefix = f"{rig.a}." if policy.startswith("Default") else ""
        copy = f"{prefix}eu-{mark}-orders"
        await rig.create(origin, 2, retention_ms="777777777")
        await rig.create(plain)
        await rig.create(taken)
        for number in (0, 1):
            await rig.produce(origin, RECORDS, partition=number)
        await rig.produce(plain, RECORDS)
        await rig.produce(taken, [b"of another topic"])
        committed = {TopicPartition(origin, 0): CommittedOffset(next_offset=12)}
        await retry_admin(partial(rig.source.alter_group_offsets, group, committed))

        configsync = await stack.enter_async_context(rig.configsync())
        await stack.enter_async_context(rig.running(configsync))
        endpoint = {"twinlog.configsync.endpoint": configsync.endpoint}
        await stack.enter_async_context(
            run_service("checkpoint", tmp_path / "checkpoint", rig.properties(**endpoint))
        )

        async def copied(topic: str, name: str, number: int = 0) -> bool:
            here = await content(rig.source, TopicPartition(topic, number))
            assert await content(rig.target, TopicPartition(name, number)) == here
            return True

        for number in (0, 1):
            await eventually(partial(copied, origin, copy, number))
        await eventually(partial(copied, plain, f"{prefix}{plain}"))

        async def translated() -> dict[TopicPartition, int]:
            held = (await rig.target.group_offsets([group]))[group]
            assert not isinstance(held, KafkaError), held
            return {partition: offset.next_offset for partition, offset in held.items()}

        assert await eventually(translated) == {TopicPartition(copy, 0): 12}
        client = {
            "bootstrap.servers": rig.target_servers,
            "replication.policy.class": POLICY + policy,
            "twinlog.topic.rename": renames,
        }
        asked = await remote_cluster_utils.translate_offsets(client, rig.a, group, timeout_seconds=60)
        assert {partition: offset.next_offset for partition, offset in asked.items()} == {
            TopicPartition(copy, 0): 12
        }
        found = (await rig.target.describe_topic_configs([copy]))[copy]
        assert not isinstance(found, KafkaError), found
        assert {entry.name: entry.value for entry in found}["retention.ms"] == "777777777"
        # What has the new name of another topic already is left alone, and is said to be so.
        assert await content(rig.target, TopicPartition(copy, 0)) == await content(
            rig.source, TopicPartition(origin, 0)
        )
        assert f"{prefix}{origin}" not in await rig.target.list_topics()
