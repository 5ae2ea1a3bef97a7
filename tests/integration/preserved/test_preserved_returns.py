"""Preserved copies whose target applications have written meanwhile: they have moved there, and are back."""

from pathlib import Path

from integration.kafka.hanging_rig import down
from integration.source.source_rig import GrowingLog, open_rig, producer
from integration.source.test_source_preserved import (
    FIRST,
    MORE,
    all_there,
    ends_are_equal,
    offsets_are,
    same_offsets,
)
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.raw_copying import open_session

SAME_NAMES = {"replication.policy.class": "IdentityReplicationPolicy"}


async def leader_of(cluster: BlockingCluster, topic: str) -> int:
    async with open_session("B", cluster.client_properties()) as session:
        return await session.leader(TopicPartition(topic, 0), "look")


async def test_a_copy_continues_behind_what_applications_wrote_there_under_several_leaders(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, tmp_path: Path
) -> None:
    """What was written under a later leader than the copy's last one is no loss of its tail."""
    topic = unique_name("returns")
    same_names = {**SAME_NAMES, "topics": topic}
    async with (
        open_rig(kafka_pair.a, three_brokers, tmp_path / "forth", **same_names) as forth,
        open_rig(three_brokers, kafka_pair.a, tmp_path / "back", **same_names) as back,
    ):
        await forth.create(topic)
        await forth.produce(topic, FIRST)
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            await same_offsets(forth, topic)
            await offsets_are(forth, service, topic, "preserved", "", 0)
        # Applications write to B now, and B's brokers are restarted.
        await back.produce(topic, MORE)
        async with down(three_brokers, await leader_of(three_brokers, topic)):
            pass
        await back.produce(topic, [b"under another leader"])
        async with back.configsync() as configsync, back.running(configsync) as service:
            await same_offsets(back, topic)
            await offsets_are(back, service, topic, "preserved", "", 0)
        # They are back at A.
        await forth.produce(topic, [b"there again"])
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            await same_offsets(forth, topic)
            await offsets_are(forth, service, topic, "preserved", "", 0)
            await ends_are_equal(forth, topic)


async def test_a_stray_write_behind_what_was_there_already_copies_nothing_of_that_again(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """An application still writes to the cluster that a topic has just come back to."""
    topic = unique_name("stray")
    same_names = {**SAME_NAMES, "topics": topic}
    async with (
        open_rig(kafka_pair.a, kafka_pair.b, tmp_path / "forth", **same_names) as forth,
        open_rig(kafka_pair.b, kafka_pair.a, tmp_path / "back", **same_names) as back,
    ):
        await forth.create(topic)
        await forth.produce(topic, FIRST)
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            await same_offsets(forth, topic)
        async with back.configsync() as configsync, back.running(configsync) as service:
            await offsets_are(back, service, topic, "preserved", "", 0)
            await forth.produce(topic, [b"stray"])
            await offsets_are(back, service, topic, "translated", "FOREIGN_WRITE", len(FIRST))
            await back.produce(topic, MORE)
            await all_there(back, topic)
        log = GrowingLog(back.target, TopicPartition(topic, 0))
        assert [each.value for each in await log.records()] == [*FIRST, b"stray", *MORE]


async def test_a_transaction_that_an_application_left_open_holds_up_only_its_own_topic(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """It was killed when applications moved. What it wrote cannot be compared before its transaction ends."""
    open_topic, quiet_topic = unique_name("open"), unique_name("quiet")
    same_names = {**SAME_NAMES, "topics": f"{open_topic}, {quiet_topic}"}
    async with (
        open_rig(kafka_pair.a, kafka_pair.b, tmp_path / "forth", **same_names) as forth,
        open_rig(kafka_pair.b, kafka_pair.a, tmp_path / "back", **same_names) as back,
    ):
        for topic in (open_topic, quiet_topic):
            await forth.create(topic)
            await forth.produce(topic, FIRST)
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            for topic in (open_topic, quiet_topic):
                await same_offsets(forth, topic)
        async with producer(forth.source_servers, None, 16_384, unique_name("killed")) as application:
            await application.begin_transaction()
            await application.send_and_wait(open_topic, b"never committed", partition=0)
            for topic in (open_topic, quiet_topic):
                await back.produce(topic, MORE)
            async with back.configsync() as configsync, back.running(configsync) as service:
                await same_offsets(back, quiet_topic)
                await offsets_are(back, service, quiet_topic, "preserved", "", 0)

                async def waits() -> bool:
                    (row,) = await back.partitions(service, open_topic)
                    return (row.state, row.reason) == (pb.PARTITION_STATE_FAULTED, "TARGET_OPEN_TRANSACTION")

                await eventually(waits)
                await application.abort_transaction()
                await offsets_are(back, service, open_topic, "translated", "TARGET_DIFFERS", len(FIRST))
                await all_there(back, open_topic)
        log = GrowingLog(back.target, TopicPartition(open_topic, 0))
        assert [each.value for each in await log.records()] == [*FIRST, *MORE]
