"""Rules changed while the services run: in effect on configsync and checkpoint within seconds."""

import json
from functools import partial
from pathlib import Path

from integration.configsync.access_rig import twinlog
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess, run_service


async def topics(service: ServiceProcess) -> set[str]:
    stub = ConfigSyncServiceStub(service.channel)
    answer = await stub.ListTopics(pb2.ListTopicsRequest(), timeout=CALL_SECONDS)
    return {topic.source_topic for topic in answer.topics}


async def groups(service: ServiceProcess) -> set[str]:
    stub = CheckpointServiceStub(service.channel)
    answer = await stub.ListGroups(checkpoint.ListGroupsRequest(), timeout=CALL_SECONDS)
    return {group.group for group in answer.groups}


async def test_changed_rules_are_in_effect_on_all_services_and_survive_restarts(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    east, west = unique_name("east"), unique_name("west")
    orders, users = f"{east}-orders", f"{east}-users"
    first, second = f"{east}-first", f"{east}-second"
    properties = (
        f"clusters = {east}, {west}\n"
        f"{east}.bootstrap.servers = {kafka_pair.a.bootstrap_servers}\n"
        f"{west}.bootstrap.servers = {kafka_pair.b.bootstrap_servers}\n"
        f"{east}->{west}.enabled = true\n"
        f"{west}->{east}.emit.heartbeats.enabled = false\n"
        f"topics = {orders}\ngroups = {first}\n"
        "replication.factor = 1\noffset.storage.replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 1\noffset-syncs.topic.replication.factor = 1\n"
        "heartbeats.replication.enabled = false\ntwinlog.drain.seconds = 0\n"
    )
    async with open_cluster("A", kafka_pair.a.client_properties()) as source:
        wanted = [NewTopic(name=name, partition_count=1, replication_factor=1) for name in (orders, users)]
        await retry_admin(lambda: source.create_topics(wanted))
        for group in (first, second):
            offset = {TopicPartition(orders, 0): CommittedOffset(next_offset=0)}
            await retry_admin(partial(source.alter_group_offsets, group, offset))

    async with run_service("configsync", tmp_path / "configsync", properties) as configsync:
        endpoint = f"{properties}twinlog.configsync.endpoint = {configsync.endpoint}\n"
        async with run_service("checkpoint", tmp_path / "checkpoint", endpoint) as checkpoints:

            async def started() -> bool:
                return await topics(configsync) == {orders} and await groups(checkpoints) == {first}

            await eventually(started)
            flow = f"{east}->{west}"
            code, _, err = await twinlog(configsync, "rules", "set", flow, "topics", "*")
            assert code == 2
            assert "'*' is not a valid regular expression" in err

            for key, element in (("topics", users), ("groups", second)):
                code, _, err = await twinlog(configsync, "rules", "add", flow, key, element)
                assert code == 0, err

            async def in_effect() -> bool:
                return await topics(configsync) == {orders, users} and await groups(checkpoints) == {
                    first,
                    second,
                }

            await eventually(in_effect)
            code, out, _ = await twinlog(configsync, "rules", "diff", flow, "-o", "json")
            assert code == 0
            assert json.loads(out) == [
                {"flow": flow, "key": "groups", "file": first, "now": f"{first}, {second}"},
                {"flow": flow, "key": "topics", "file": orders, "now": f"{orders}, {users}"},
            ]

    async with run_service("configsync", tmp_path / "configsync", properties) as configsync:
        endpoint = f"{properties}twinlog.configsync.endpoint = {configsync.endpoint}\n"
        async with run_service("checkpoint", tmp_path / "checkpoint", endpoint) as checkpoints:

            async def remembered() -> bool:
                return await topics(configsync) == {orders, users} and await groups(checkpoints) == {
                    first,
                    second,
                }

            await eventually(remembered)
            code, _, err = await twinlog(configsync, "rules", "reset", flow, "groups")
            assert code == 0, err

            async def as_the_file_says() -> bool:
                return await groups(checkpoints) == {first}

            await eventually(as_the_file_says)
