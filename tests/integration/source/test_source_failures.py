"""What can go wrong around a flow, and that each of it is said and healed."""

import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.source_chaos import kill, processes, signal_to
from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.source.client import every_partition
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.model import TopicPartition
from twinlog.service.peers import open_to_owner
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import TopicFact


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def reason_is(rig: Rig, service: ServiceProcess, reason: str, *words: str) -> None:
    async def told() -> bool:
        status = await rig.flow_status(service)
        assert status.reason == reason, status
        assert all(word in status.message for word in words), status.message
        return True

    await eventually(told)


async def test_a_frozen_task_is_replaced_and_writes_nothing_when_it_wakes(
    rig: Rig, unique_topic: str
) -> None:
    """Spark does not notice a worker under SIGSTOP: it neither ends nor closes its connection."""
    topic = unique_topic
    rig.extra |= {"topics": topic, "twinlog.epoch.seconds": "600", "twinlog.stalled.seconds": "3"}
    await rig.create(topic, 1)
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        await rig.produce(topic, [b"before %d" % n for n in range(500)])
        await rig.same(topic, 1)
        _, workers = processes(service.process.pid)
        tasks = [worker for worker in workers if worker.net_connections("tcp")]
        assert tasks, "an idle worker has no connection to a broker"
        for task in tasks:
            signal_to(task, signal.SIGSTOP)
        try:
            await rig.produce(topic, [b"meanwhile %d" % n for n in range(500)])
            await rig.same(topic, 1)
            assert "task_frozen" in service.log()
        finally:
            for task in tasks:
                signal_to(task, signal.SIGCONT)
        await rig.produce(topic, [b"after %d" % n for n in range(500)])
        await rig.same(topic, 1)


async def test_what_is_killed_is_replaced_and_a_second_process_stands_by(rig: Rig, unique_topic: str) -> None:
    """Tasks, Spark's JVM, then the service: one that stood by takes over, and after its stop another."""
    topic = unique_topic
    rig.extra |= {"topics": topic, "twinlog.epoch.seconds": "60"}
    await rig.create(topic, 2)
    async with rig.configsync() as configsync, rig.running(configsync) as service:
        for number in range(2):
            await rig.produce(topic, [b"before %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2)
        _, tasks = processes(service.process.pid)
        assert tasks
        for task in tasks:
            kill(task)
        for number in range(2):
            await rig.produce(topic, [b"after the tasks %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2)
        jvms, _ = processes(service.process.pid)
        kill(jvms[0])
        for number in range(2):
            await rig.produce(topic, [b"after the jvm %d" % n for n in range(500)], partition=number)
        await rig.same(topic, 2)
        assert "task_rejoined" in service.log()
        assert "SPARK_UNAVAILABLE" in service.log()
        assert "Spark's JVM is gone" in service.log()
        assert "EPOCH_FAILED" not in service.log()
        async with rig.running(configsync) as second, rig.running(configsync) as third:
            owner = service.endpoint.rpartition(":")[2]
            for waiting in (second, third):
                await reason_is(rig, waiting, "OWNED_ELSEWHERE", owner)
            async with open_to_owner(second.endpoint, lambda _: None) as channel:
                # Commands that a process on standby gets are carried out by the owner.
                scope = pb.Scope(flow=rig.flow, source_topic=topic)
                pause = pb.PauseReplicationRequest(scope=scope, by="test")
                await SourceServiceStub(channel).PauseReplication(pause, timeout=CALL_SECONDS)
                assert '"paused"' in service.log()
                await rig.resume(replace(second, channel=channel), topic)
                assert '"resumed"' in service.log()
                # What it tells itself says that it is one; where that is not enough, the owner is asked.
                stub = SourceServiceStub(channel)

                async def says_that_it_stands_by() -> bool:
                    told = await every_partition(stub, rig.flow, topic)
                    return {each.reason for each in told} == {"OWNED_ELSEWHERE"}

                await eventually(says_that_it_stands_by)
                owners = await every_partition(stub, rig.flow, topic, from_owner=True)
                assert len(owners) == 2
                assert "OWNED_ELSEWHERE" not in {each.reason for each in owners}
            await rig.produce(topic, [b"beside them %d" % n for n in range(100)])
            await rig.same(topic, 2)
            assert service.log().count("flow_taken_over") == 1
            assert "PRODUCER_FENCED" not in service.log(), "who comes second takes nothing away"

            jvms, tasks = processes(service.process.pid)
            await service.kill()
            await rig.produce(topic, [b"after the first %d" % n for n in range(100)])
            await rig.same(topic, 2)
            await eventually(lambda: not any(member.is_running() for member in (*jvms, *tasks)))

            owns_now = second if "flow_taken_over" in second.log() else third
            other = third if owns_now is second else second
            assert "flow_taken_over" not in other.log()
            owns_now.process.terminate()
            await rig.produce(topic, [b"after the second %d" % n for n in range(100)])
            await rig.same(topic, 2)
            # The one that ends may still have copied these.
            await eventually(lambda: "flow_taken_over" in other.log())
            # A second signal, as at the end of the test, would cut its stop short.
            await eventually(lambda: owns_now.process.returncode is not None)


async def test_each_flow_that_cannot_work_says_why(rig: Rig) -> None:
    """Both ends one cluster; a target that is away; too few brokers for the replication factor."""
    to_itself, to_nowhere = replace(rig, b=unique_name("same")), replace(rig, b=unique_name("gone"))
    rig.extra |= {
        "clusters": f"{rig.a}, {rig.b}, {to_itself.b}, {to_nowhere.b}",
        f"{to_itself.b}.bootstrap.servers": rig.source_servers,
        f"{to_nowhere.b}.bootstrap.servers": "127.0.0.1:1",
        f"{rig.a}->{to_itself.b}.enabled": "true",
        f"{rig.a}->{to_nowhere.b}.enabled": "true",
        "offset.storage.replication.factor": "3",
    }
    async with rig.running(None) as service:
        key = "offset.storage.replication.factor"
        await reason_is(rig, service, "REPLICATION_FACTOR_INVALID", key, "at most 1")
        await reason_is(to_itself, service, "SAME_CLUSTER", rig.a, to_itself.b)
        await reason_is(to_nowhere, service, "KAFKA_UNAVAILABLE", to_nowhere.b)


async def test_without_configsync_topics_with_positions_go_on_where_mm2_left_them(
    rig: Rig, unique_topic: str
) -> None:
    """MM2 has copied three records, and its position says so; at-least-once, as MM2 by default. A topic that
    configsync took out of the flow stays out.
    """
    topic, out = unique_topic, f"{unique_topic}-out"
    rig.extra |= {"topics": f"{topic}, {out}", f"{rig.b}.exactly.once.source.support": "disabled"}
    for name in (topic, out):
        await rig.create(name)
        await rig.produce(name, [b"%d" % number for number in range(10)])
    new = [
        NewTopic(name=rig.remote(topic), partition_count=1, replication_factor=1),
        NewTopic(name=rig.remote(out), partition_count=1, replication_factor=1),
        NewTopic(name=rig.positions_topic, partition_count=25, replication_factor=1),
    ]
    await retry_admin(lambda: rig.target.create_topics(new))
    facts = [
        *(
            (source_offset_key(rig.a, TopicPartition(name, 0)), encode_source_offset(3))
            for name in (topic, out)
        ),
        fact_record(rig.a, TopicFact(topic=out, topic_id="", known_partitions=1, left=True)),
    ]
    async with rig.target.writer() as writer:
        for key, value in facts:
            at = TopicPartition(rig.positions_topic, partition_for_key(key, 25))
            await writer.append(at, key=key, value=value)
    async with rig.running(None) as service:

        async def the_rest() -> bool:
            return [value for _, _, value, _ in await rig.target_content(topic)] == [
                b"%d" % number for number in range(3, 10)
            ]

        await eventually(the_rest)
        assert await rig.target_content(out) == []
        assert not (await rig.flow_status(service)).exactly_once


MIRROR_MAY_ALL = (("TOPIC", "*"), ("GROUP", "*"), ("TRANSACTIONAL_ID", "*"), ("CLUSTER", "kafka-cluster"))
AILING = ("denied", "stamped", "too-large", "torn")


def acl(resource_type: str, name: str, operation: str = "ALL", permission: str = "ALLOW") -> AclBinding:
    return AclBinding(
        resource_type=resource_type,
        resource_name=name,
        pattern_type="LITERAL",
        principal="User:mirror",
        host="*",
        operation=operation,
        permission=permission,
    )


async def set_config(cluster: KafkaCluster, topic: str, name: str, value: str | None) -> None:
    change = {topic: [ConfigChange(name=name, value=value)]}
    await retry_admin(lambda: cluster.alter_topic_configs(change))


async def partitions_stand(
    rig: Rig, service: ServiceProcess, expected: Mapping[str, tuple[str, str]]
) -> None:
    async def so() -> bool:
        found = {
            each.source.topic: (
                pb.PartitionState.Name(each.state).removeprefix("PARTITION_STATE_"),
                each.reason,
            )
            for each in await rig.partitions(service)
        }
        assert {topic: found.get(topic) for topic in expected} == expected
        return True

    await eventually(so)


async def test_each_fault_stops_only_its_partition_and_recovers_without_a_command(
    kafka_pair: KafkaPair, start_cluster: Callable[[ClusterSpec], BlockingCluster], tmp_path: Path
) -> None:
    """One slot copies all of them: what one does to a transaction, the others would feel."""
    security = Security(mechanisms=(SaslMechanism.PLAIN,), users={"mirror": "the mirror's"}, authorizer=True)
    target = start_cluster(ClusterSpec(name="guarded", security=security))
    topics = ("healthy", "split", *AILING)
    async with open_rig(kafka_pair.a, target, tmp_path) as rig:
        rig.extra |= {f"{rig.b}.{key}": value for key, value in target.client_properties("mirror").items()}
        rig.extra |= {
            "topics": ",".join(topics),
            "tasks.max": "1",
            "twinlog.epoch.seconds": "30",
            "sync.topic.configs.enabled": "false",
            "sync.topic.acls.enabled": "false",
        }
        rights = [acl(*resource) for resource in MIRROR_MAY_ALL]
        await retry_admin(lambda: rig.target.create_acls(rights))
        for topic in topics:
            await rig.create(topic)
            await rig.produce(topic, [b"first"])
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            for topic in topics:
                await rig.same(topic)

            # Each its own ailment, all on the target but the damaged log.
            denial = acl("TOPIC", rig.remote("denied"), "WRITE", "DENY")
            await retry_admin(lambda: rig.target.create_acls([denial]))
            await set_config(rig.target, rig.remote("stamped"), "message.timestamp.before.max.ms", "1000")
            for topic in ("split", "too-large"):
                await set_config(rig.target, rig.remote(topic), "max.message.bytes", "20000")
            await rig.produce("too-large", [b"fits", b"x" * 30_000, b"behind it"], batch_bytes=100)
            await rig.produce("split", [b"%4d" % number * 250 for number in range(90)], batch_bytes=95_000)
            for topic in ("denied", "stamped"):
                await rig.produce(topic, [b"refused"])
            await rig.produce("torn", [b"whole"])
            await rig.same("torn")
            # Held, or the record would be copied before it is damaged. A fetch under way at the pause
            # is answered by the record of the other topic.
            await rig.pause(service, "torn")
            await rig.produce("healthy", [b"answers the fetch"])
            await rig.same("healthy")
            log = kafka_pair.a.log_file(1).parent / "data" / "torn-0" / f"{0:020}.log"
            sound = log.read_bytes()
            await rig.produce("torn", [b"to be damaged"])
            written = log.read_bytes()
            with log.open("r+b") as file:
                file.seek(written.index(b"to be damaged"))
                file.write(b"TO")
            await rig.resume(service, "torn")

            await partitions_stand(
                rig,
                service,
                {
                    "denied": ("FAULTED", "TOPIC_UNAUTHORIZED"),
                    "stamped": ("FAULTED", "TIMESTAMP_REFUSED"),
                    "too-large": ("FAULTED", "RECORD_TOO_LARGE"),
                    "torn": ("FAULTED", "CORRUPT_BATCH"),
                },
            )
            await rig.same("split")

            async def told_what_is_too_large() -> bool:
                # At first only the broker has refused a batch; then its limit is read, and the record found.
                (one,) = await rig.partitions(service, "too-large")
                assert one.position == 2
                assert all(word in one.message for word in ("offset 2", "30", "20000")), one.message
                return True

            await eventually(told_what_is_too_large)
            (found,) = await rig.partitions(service, "torn")
            assert found.position == 2
            for _ in range(10):
                await rig.produce("healthy", [b"on and on"] * 10)
                await rig.same("healthy")

            with log.open("r+b") as file:
                file.seek(len(sound))
                file.write(written[len(sound) :])
            await retry_admin(lambda: rig.target.delete_acls([denial]))
            await set_config(rig.target, rig.remote("stamped"), "message.timestamp.before.max.ms", None)
            await set_config(rig.target, rig.remote("too-large"), "max.message.bytes", None)
            for topic in topics:
                await rig.same(topic)
            await partitions_stand(rig, service, dict.fromkeys(topics, ("RUNNING", "")))
            assert (await rig.flow_status(service)).reason == ""
