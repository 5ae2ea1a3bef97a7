"""A target that loses filled offsets and nothing else, as after an unclean election: they have no sequence
numbers, so its new leader would take the next batch and put it in their place."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaProducer

from chaos.cut_logs import lose_from
from integration.preserved.preserved_rig import preserved_rig, write_plain
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.testing.brokers import KafkaPair, eventually, unique_name


async def _abort(cluster: BlockingCluster, topic: str) -> None:
    """Five records and the marker of a transaction that no consumer sees."""
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=unique_name(topic)
    ) as producer:
        await producer.begin_transaction()
        for _ in range(5):
            await producer.send(topic, b"aborted", partition=0)
        await producer.flush()
        await producer.abort_transaction()


async def test_filled_offsets_that_the_target_lost_are_filled_again_before_the_next_record(
    kafka_pair: KafkaPair,
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
    unique_topic: str,
    tmp_path: Path,
) -> None:
    pair = KafkaPair(a=kafka_pair.a, b=start_cluster(ClusterSpec(name="forgetful")))
    async with preserved_rig(pair, tmp_path, unique_topic) as rig:
        (partition,) = rig.every
        await write_plain(pair.a, unique_topic, 10)
        await _abort(pair.a, unique_topic)
        async with rig.task() as running:
            await eventually(lambda: running.position(partition) == 16)
            assert await asyncio.to_thread(lose_from, pair.b, partition, 10) == 6
            await write_plain(pair.a, unique_topic, 10)
            await eventually(lambda: running.position(partition) == 26)
            assert not running.look()[partition].needs_translation
        assert await rig.same() == 20
