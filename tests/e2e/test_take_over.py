"""README: MirrorMaker 2 and Twinlog take over from each other, by the same file and the same topics."""

import asyncio
import sys
from pathlib import Path

import grpc
import pytest

from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import Comparison, compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.mm2 import MirrorMaker2, quick_mm2_properties
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name
from twinlog.testing.records import write_batches

pytestmark = pytest.mark.java

PARTITIONS, RECORDS = 3, 120


class _Copying:
    """One topic that is written to while its copier changes."""

    def __init__(self, cluster: BlockingCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.written = 0

    async def write(self) -> None:
        """Add records to every partition, in a transaction, so that markers lie between them."""
        now_ms = SystemClock().now_ms()
        for partition in range(PARTITIONS):
            records = [NewRecord(b"k%d" % i, b"%d" % (self.written + i), now_ms) for i in range(RECORDS)]
            batches = [(partition, Codec.LZ4, records[:50]), (partition, Codec.NONE, records[50:])]
            await write_batches(self._cluster, self._topic, batches, transactional_id=self._topic)
            self.written += RECORDS


@pytest.mark.parametrize("first", ["mm2", "twinlog"])
async def test_either_takes_over_from_the_other_without_loss_or_repetition(
    kafka_pair: KafkaPair, tmp_path: Path, first: str
) -> None:
    """Also from a copy with the source's offsets, which is one with offsets of its own from there on."""
    topic, east, west = unique_name("e2e-take-over"), unique_name("east"), unique_name("west")
    clients = {east: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
    extra = {
        "topics": topic,
        f"{west}.offset.flush.interval.ms": "1000",
        f"{east}.consumer.isolation.level": "read_committed",
    }
    text = quick_mm2_properties(clients, [Flow(east, west)], extra)
    mm2_file = tmp_path / "for-mm2.properties"
    mm2_file.write_text(text, encoding="latin-1")
    remote, copying = f"{east}.{topic}", _Copying(kafka_pair.a, topic)

    async with open_cluster(east, clients[east]) as source, open_cluster(west, clients[west]) as target:
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        await make_topics(source, new)

        async def all_there() -> Comparison | None:
            return await _compared(source, topic, target, remote, at_least=copying.written)

        async def copied() -> Comparison:
            """What was written while nobody copied, and what is written now."""
            await eventually(all_there)
            await copying.write()
            return await eventually(all_there)

        async def by_mm2() -> Comparison:
            log_file = tmp_path / f"{unique_name('mm2')}.log"
            mm2 = MirrorMaker2(mm2_file, log_file=log_file, quick_start=True)
            await asyncio.to_thread(mm2.start)
            try:
                result = await copied()
                assert "has 1 members" in (await adopt(mm2_file))[1], "it is not taken over while it runs"
            finally:
                await asyncio.to_thread(mm2.stop)
            await eventually(lambda: _may_be_taken_over(mm2_file))
            return result

        kinds: list[set[tuple[str, str]]] = []

        async def by_twinlog() -> Comparison:
            async with TwinlogRun(text, tmp_path) as run:
                result = await copied()
                kinds.append(await _kinds_of_offsets(run, topic))
                return result

        copiers = {
            "mm2": (by_mm2, by_twinlog, by_mm2),
            "twinlog": (by_twinlog, by_mm2, by_twinlog, by_twinlog),
        }
        for copier in copiers[first]:
            await copying.write()
            result = await copier()
            assert result.identical, (copier.__name__, result)
        translated = {("translated", "POSITION_STORED")}
        expected = {"mm2": [translated], "twinlog": [{("preserved", "")}, translated, translated]}
        assert kinds == expected[first]


async def _kinds_of_offsets(run: TwinlogRun, topic: str) -> set[tuple[str, str]]:
    async with grpc.aio.insecure_channel(run.endpoints["source"]) as channel:
        answer = await SourceServiceStub(channel).ListPartitions(ListPartitionsRequest(), timeout=30)
    return {(each.offsets, each.offsets_reason) for each in answer.partitions if each.source.topic == topic}


async def adopt(file: Path) -> tuple[int, str]:
    """Exit code and output of `twinlog adopt`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twinlog", "adopt", str(file), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def _may_be_taken_over(file: Path) -> bool | None:
    code, out = await adopt(file)
    assert "all would be copied again" not in out
    return code == 0 or None


async def _compared(
    source: KafkaCluster, topic: str, target: KafkaCluster, remote: str, *, at_least: int
) -> Comparison | None:
    if remote not in await target.list_topics():
        return None
    result = await compare(source, topic, target, remote, partition_count=PARTITIONS)
    return result if result.target_records >= at_least else None
