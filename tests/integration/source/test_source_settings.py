"""Client settings of the file, as real brokers feel them."""

from collections.abc import Callable
from pathlib import Path

from integration.source.source_rig import Content, Rig, content, open_rig, producer
from twinlog.batches import Codec, read_batches
from twinlog.clock import SystemClock
from twinlog.kafka.raw import FetchedPartition
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.raw_copying import open_fetcher, open_session


async def test_codec_isolation_and_fetch_sizes_are_as_the_file_says(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {
            "topics": "set",
            f"{rig.b}.producer.compression.type": "gzip",
            f"{rig.a}.consumer.isolation.level": "read_uncommitted",
            # Less than a batch: each answer brings one, and the copy continues all the same.
            f"{rig.a}.consumer.max.partition.fetch.bytes": "1000",
            f"{rig.a}.consumer.fetch.max.bytes": "1000",
        }
        await rig.create("set")
        await rig.produce("set", [b"%0500d" % number for number in range(100)], batch_bytes=8000)
        await aborted(rig, b"taken back")
        await rig.produce("set", [b"last"], codec="zstd")
        async with rig.configsync() as configsync, rig.running(configsync):

            async def all_there() -> bool:
                copied = await rig.target_content("set")
                assert [value for _, _, value, _ in copied[-2:]] == [b"taken back", b"last"]
                assert copied == await every_record(rig)
                return True

            await eventually(all_there)
        assert await codecs(kafka_pair, rig.remote("set")) == {Codec.GZIP}


async def test_a_target_that_allows_short_transactions_only_is_copied_to(
    start_cluster: Callable[[ClusterSpec], BlockingCluster], kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """Every id is initialised with the time-out of the file, by the driver that fences it as by its task."""
    target = start_cluster(ClusterSpec(name="short", properties={"transaction.max.timeout.ms": "20000"}))
    async with open_rig(kafka_pair.a, target, tmp_path) as rig:
        rig.extra |= {"topics": "short-transactions", f"{rig.b}.producer.transaction.timeout.ms": "20000"}
        await rig.create("short-transactions")
        await rig.produce("short-transactions", [b"one", b"two"])
        async with rig.configsync() as configsync:
            async with rig.running(configsync):
                await rig.same("short-transactions")
            await rig.produce("short-transactions", [b"three"])
            async with rig.running(configsync):
                await rig.same("short-transactions")


async def aborted(rig: Rig, value: bytes) -> None:
    async with producer(rig.source_servers, None, 1000, transactional_id=f"aborts-{rig.a}") as sender:
        await sender.begin_transaction()
        await (await sender.send("set", value, partition=0, timestamp_ms=SystemClock().now_ms()))
        await sender.abort_transaction()


async def every_record(rig: Rig) -> list[Content]:
    """Every record of the source, also those of aborted transactions."""
    return await content(rig.source, TopicPartition("set", 0), read_committed=False)


async def codecs(pair: KafkaPair, topic: str) -> set[Codec]:
    """The codecs of all data batches in a topic's first partition."""
    found: set[Codec] = set()
    position, partition = 0, TopicPartition(topic, 0)
    async with open_session("B", pair.b.client_properties()) as session, open_fetcher(session) as fetcher:
        while True:
            answer = (await fetcher.poll({partition: position}, max_wait_seconds=5)).get(partition)
            if not isinstance(answer, FetchedPartition) or position >= answer.last_stable_offset:
                return found
            for batch in read_batches(answer.records):
                position = batch.header.last_offset + 1
                if not batch.header.is_control:
                    found.add(batch.header.codec)
