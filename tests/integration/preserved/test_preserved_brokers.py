"""Copies with the source's offsets on other brokers than the newest single one: Kafka 3.9, and three brokers
that are killed in turn."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaProducer

from integration.kafka.hanging_rig import down
from integration.preserved.preserved_rig import Running, preserved_rig, write_mixture, write_plain
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw.offset_lookup import delete_records
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.raw_copying import open_session

PATIENCE_SECONDS = 180.0


async def test_every_record_lies_at_its_source_offset_on_kafka_3_9(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Its transactions have version 0: each hole is added by a request of its own, and raises no epoch."""
    pair = KafkaPair(a=kafka_pair.a, b=older_cluster)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=3) as rig:
        await write_plain(pair.a, unique_topic, 900, partitions=3)
        async with open_session("A", pair.a.client_properties()) as session:
            await delete_records(session, dict.fromkeys(rig.every, 200))
        rig.skips = dict.fromkeys(rig.every, (0, 200))
        await write_mixture(pair.a, unique_topic, 3, rounds=3)
        ends = await rig.ends()
        async with rig.task(kill=True) as running:
            await eventually(lambda: running.copied(dict.fromkeys(rig.every, 250)), PATIENCE_SECONDS)
        async with rig.task() as running:
            await eventually(lambda: running.copied(ends), PATIENCE_SECONDS)
        await write_mixture(pair.a, unique_topic, 3, rounds=1)
        await rig.copy_everything()
        assert await rig.same() > 3 * 100
        assert await rig.target_bounds(OffsetSpec.EARLIEST) == dict.fromkeys(rig.every, 200)
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def test_a_copy_of_a_log_on_kafka_3_9_keeps_its_offsets(
    kafka_pair: KafkaPair, older_cluster: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    pair = KafkaPair(a=older_cluster, b=kafka_pair.b)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=2) as rig:
        await write_mixture(pair.a, unique_topic, 2, rounds=3)
        await rig.copy_everything()
        assert await rig.same() > 2 * 50
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def test_leaders_that_are_killed_in_turn_leave_every_record_at_its_source_offset(
    kafka_pair: KafkaPair, three_brokers: BlockingCluster, unique_topic: str, tmp_path: Path
) -> None:
    """Batches in flight and holes being filled meet the loss of each leader, and of the coordinator. Records
    of old times, whose writer a restarted leader forgets."""
    pair = KafkaPair(a=kafka_pair.a, b=three_brokers)
    async with preserved_rig(pair, tmp_path, unique_topic, partitions=6, target_replicas=3) as rig:
        async with rig.task() as running:
            for broker in three_brokers.broker_ids:
                over = asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    group.create_task(_keep_writing(pair.a, unique_topic, rig.partitions, over), name="write")
                    async with down(three_brokers, broker):
                        await _one_goes_on(running)
                        over.set()
            ends = await rig.ends()

            await eventually(
                lambda: (
                    running.copied(ends) or any(each.needs_translation for each in running.look().values())
                ),
                PATIENCE_SECONDS,
            )
            # No coordinator writes what fills holes, so none writes it again (docs/adr/0014).
            assert not {each: report.reason for each, report in running.look().items() if report.reason}
        assert await rig.same() > 6 * 10
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def test_an_only_broker_that_is_killed_and_stopped_while_holes_are_filled_ends_no_copy(
    kafka_pair: KafkaPair,
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
    unique_topic: str,
    tmp_path: Path,
) -> None:
    """As the coordinator of transactions it would write some markers again; as a leader that continues it
    carries out late what nobody waits for any more."""
    pair = KafkaPair(a=kafka_pair.a, b=start_cluster(ClusterSpec(name="killed")))
    over = asyncio.Event()
    async with preserved_rig(
        pair, tmp_path, unique_topic, partitions=4, properties={"B.request.timeout.ms": "3000"}
    ) as rig:
        async with rig.task() as running:
            async with asyncio.TaskGroup() as group:
                group.create_task(_keep_ending_transactions(pair.a, unique_topic, 4, over), name="write")
                for turn in range(4):
                    await _one_goes_on(running)
                    if turn % 2:
                        pair.b.pause_broker(1)
                        # Longer than its answers are waited for.
                        await wait_or_stop(over, 4.0)
                        pair.b.resume_broker(1)
                    else:
                        async with down(pair.b, 1):
                            pass
                await _one_goes_on(running)
                over.set()
            ends = await rig.ends()
            await eventually(
                lambda: (
                    running.copied(ends) or any(each.needs_translation for each in running.look().values())
                ),
                PATIENCE_SECONDS,
            )
            assert not {each: report.reason for each, report in running.look().items() if report.reason}
        assert await rig.same() > 4 * 4
        assert await rig.target_bounds(OffsetSpec.LATEST) == await rig.ends()


async def _keep_writing(cluster: BlockingCluster, topic: str, partitions: int, over: asyncio.Event) -> None:
    """There is always something left to copy."""
    while not over.is_set():
        await write_mixture(cluster, topic, partitions, rounds=1)


async def _keep_ending_transactions(
    cluster: BlockingCluster, topic: str, partitions: int, over: asyncio.Event
) -> None:
    """Every second one is aborted."""
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=unique_name(topic)
    )
    async with producer:
        for number in itertools.count():
            if over.is_set():
                return
            await producer.begin_transaction()
            for partition in range(partitions):
                await producer.send(topic, b"%d" % number, partition=partition)
            await producer.flush()
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


async def _one_goes_on(running: Running) -> None:
    """Wait until something was copied from here on."""
    before = {each: report.position for each, report in running.look().items()}
    await eventually(
        lambda: any(running.position(each) > position for each, position in before.items()), PATIENCE_SECONDS
    )
