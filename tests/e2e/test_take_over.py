"""README and docs/migration/mirrormaker2.md: MirrorMaker 2 and Twinlog take over from each other, by the same
file and the same topics. The page's own commands are run."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from e2e.guide import Guide
from integration.in_process import twinlog
from twinlog.api.source.v1.source_service_pb2 import ListPartitionsRequest
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import CopyCheck, compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches
from twinlog.testing.java.mm2 import mirror_maker_2, quick_mm2_properties

pytestmark = pytest.mark.java

PARTITIONS, RECORDS = 3, 120


@dataclass(slots=True, kw_only=True)
class _Site:
    """One topic that is written to while its copier changes."""

    pair: KafkaPair
    directory: Path
    source: KafkaCluster
    target: KafkaCluster
    topic: str
    remote: str
    flow: Flow
    text: str
    """Text of the file that both copiers read."""
    guide: Guide
    written: int = 0
    kinds: list[set[tuple[str, str]]] = field(default_factory=list)
    """Which offsets the copies had, and why, at the end of each run of Twinlog."""

    async def write(self) -> None:
        """Add records to every partition, in a transaction, so that markers lie between them."""
        now_ms = SystemClock().now_ms()
        for partition in range(PARTITIONS):
            records = [NewRecord(b"k%d" % i, b"%d" % (self.written + i), now_ms) for i in range(RECORDS)]
            batches = [(partition, Codec.LZ4, records[:50]), (partition, Codec.NONE, records[50:])]
            await write_batches(self.pair.a, self.topic, batches, transactional_id=self.topic)
            self.written += RECORDS

    async def compared(self) -> CopyCheck:
        """Raises AssertionError while there is no copy, or less in it than was written."""
        assert self.remote in await self.target.list_topics()
        result = await compare(self.source, self.topic, self.target, self.remote, partition_count=PARTITIONS)
        assert result.target_records >= self.written
        return result

    async def nothing_missing(self) -> CopyCheck | None:
        result = await self.compared()
        return None if result.missing or result.different else result

    async def copied(self) -> CopyCheck:
        """What was written while nobody copied, and what is written now."""
        await eventually(self.compared)
        await self.write()
        return await eventually(self.compared)

    @property
    def mm2_file(self) -> Path:
        return self.directory / "for-mm2.properties"

    async def by_mm2(self) -> CopyCheck:
        async with mirror_maker_2(self.text, self.directory):
            result = await self.copied()
            file = {"mm2.properties": self.mm2_file.name}
            await self.guide.run("twinlog preflight", file)
            out, _ = await self.guide.run("twinlog adopt", file, code=1)
            assert "has 1 member" in out, "it is not taken over while it runs"
        await eventually(lambda: _may_be_taken_over(self.mm2_file))
        return result

    async def by_twinlog(self) -> CopyCheck:
        assert self.guide.command("twinlog run") == "twinlog run mm2.properties"
        async with TwinlogRun(self.text, self.directory) as run:
            result = await self.copied()
            await self.note_kinds(run)
            await eventually(self._all_runs)
            await self.guide.run("twinlog verify", {"A->B": str(self.flow)})
            return result

    async def _all_runs(self) -> bool:
        await self.guide.run("twinlog status --check")
        return True

    async def note_kinds(self, run: TwinlogRun) -> None:
        async with grpc.aio.insecure_channel(run.endpoints["source"]) as channel:
            answer = await SourceServiceStub(channel).ListPartitions(ListPartitionsRequest(), timeout=30)
        mine = [each for each in answer.partitions if each.source.topic == self.topic]
        self.kinds.append({(each.offsets, each.offsets_reason) for each in mine})


@pytest.fixture
async def site(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[_Site]:
    topic, east, west = unique_name("e2e-take-over"), unique_name("east"), unique_name("west")
    clients = {east: kafka_pair.a.client_properties(), west: kafka_pair.b.client_properties()}
    extra = {
        "topics": topic,
        f"{west}.offset.flush.interval.ms": "1000",
        f"{east}.consumer.isolation.level": "read_committed",
    }
    async with open_cluster(east, clients[east]) as source, open_cluster(west, clients[west]) as target:
        await make_topics(source, NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1))
        yield _Site(
            pair=kafka_pair,
            directory=tmp_path,
            source=source,
            target=target,
            topic=topic,
            remote=f"{east}.{topic}",
            flow=Flow(east, west),
            guide=Guide("mirrormaker2.md", tmp_path),
            text=quick_mm2_properties(clients, [Flow(east, west)], extra),
        )


@pytest.mark.parametrize("first", ["mm2", "twinlog"])
async def test_either_takes_over_and_repeats_nothing(site: _Site, first: str) -> None:
    """Also from a copy with the source's offsets, which is one with offsets of its own from there on."""
    copiers = {
        "mm2": (site.by_mm2, site.by_twinlog, site.by_mm2),
        "twinlog": (site.by_twinlog, site.by_mm2, site.by_twinlog, site.by_twinlog),
    }
    for copier in copiers[first]:
        await site.write()
        result = await copier()
        assert result.identical, (copier.__name__, result)
    translated = {("translated", "POSITION_STORED")}
    expected = {"mm2": [translated], "twinlog": [{("preserved", "")}, translated, translated]}
    assert site.kinds == expected[first]
    assert not site.guide.left


async def test_nothing_is_lost_when_twinlog_is_killed_before_the_other_takes_over(site: _Site) -> None:
    """MirrorMaker 2 repeats what was copied since the last stored position, and Twinlog afterwards at most
    what MirrorMaker 2 copied."""
    await site.write()
    run = TwinlogRun(site.text, site.directory)
    async with run:
        await eventually(site.compared)
        await site.write()
        await eventually(site.compared)
        await site.note_kinds(run)
        run.process.kill()
    at_risk = site.written
    await site.write()
    async with mirror_maker_2(site.text, site.directory):
        after_mm2 = await eventually(site.nothing_missing)
    assert after_mm2.duplicates <= at_risk
    await site.write()
    async with TwinlogRun(site.text, site.directory):
        await eventually(site.nothing_missing)
    assert site.kinds == [{("preserved", "")}]


async def adopt(file: Path) -> tuple[int, str]:
    """Exit code and output of `twinlog adopt`."""
    answer = await twinlog("adopt", str(file))
    return answer.returncode, answer.stdout


async def _may_be_taken_over(file: Path) -> bool | None:
    code, out = await adopt(file)
    assert "all would be copied again" not in out
    return code == 0 or None
