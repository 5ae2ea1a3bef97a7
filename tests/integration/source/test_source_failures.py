"""What can go wrong around a flow, and that each of it is said and healed."""

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.kafka.ports import AclBinding, ConfigChange, KafkaCluster
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec, SaslMechanism, Security
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import ServiceProcess


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


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
