"""docs/migration/confluent-replicator.md and ureplicator.md, step by step, there and back.

Neither product can be run here. What they leave is: copies under the same names, and a group on the source
that says how far they came. What they do with the group on the way back is done by a consumer of the test.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from e2e.conftest import FAST_AND_SMALL
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import Comparison, compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name
from twinlog.testing.java.tools import run_java_tool
from twinlog.testing.records import write_batches

pytestmark = pytest.mark.java

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS, RECORDS = 2, 30
COMMITTED = 25
"""How far the group had committed, which is a little less than was copied."""
REPEATED = 5
"""Records that the other mirror had copied a second time after a crash, so that offsets of copies differ."""


@dataclass(slots=True, kw_only=True)
class _Estate:
    """A topic, and what another mirror left of it."""

    pair: KafkaPair
    source: KafkaCluster
    target: KafkaCluster
    topic: str
    group: str
    east: str
    west: str
    repeated: int
    written: int = 0
    """Records of each partition."""

    @property
    def flow(self) -> str:
        return f"{self.east}->{self.west}"

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    @property
    def twice(self) -> int:
        """Records that are there twice: of copies at their source's offsets none; of others what the other
        mirror had repeated, and what it copied since its last commit, as both guides say."""
        return PARTITIONS * (self.repeated + RECORDS - COMMITTED) if self.repeated else 0

    async def write(self) -> list[NewRecord]:
        now_ms = SystemClock().now_ms()
        records = [NewRecord(b"k", b"%d" % (self.written + number), now_ms) for number in range(RECORDS)]
        await self._write_to(self.pair.a, records)
        self.written += RECORDS
        return records

    async def _write_to(self, cluster: BlockingCluster, records: list[NewRecord]) -> None:
        await write_batches(cluster, self.topic, [(p, Codec.LZ4, records) for p in range(PARTITIONS)])

    async def left_by_another_mirror(self) -> None:
        for cluster in (self.source, self.target):
            await make_topics(
                cluster, NewTopic(name=self.topic, partition_count=PARTITIONS, replication_factor=1)
            )
        records = await self.write()
        if self.repeated:
            await self._write_to(self.pair.b, records[: self.repeated])
        await self._write_to(self.pair.b, records)
        committed = {each: CommittedOffset(next_offset=COMMITTED) for each in self.partitions}
        answer = await self.source.alter_group_offsets(self.group, committed)
        assert set(answer.values()) == {None}

    async def copied(self) -> Comparison:
        """Raises AssertionError until all is there, and while more is there twice than the guides say."""
        found = await compare(self.source, self.topic, self.target, self.topic, partition_count=PARTITIONS)
        assert found.target_records == PARTITIONS * self.written + self.twice, found
        assert (found.missing, found.different, found.duplicates) == (0, 0, self.twice), found
        return found

    async def copy_as_the_other_mirror_does(self) -> None:
        """From the group's offsets on, record by record."""
        [(_, offsets)] = (await self.source.group_offsets([self.group])).items()
        assert isinstance(offsets, dict)
        async with self.source.reader() as reader:
            for each in self.partitions:
                offset, end = offsets[each].next_offset, self.written
                while offset < end:
                    fetched = await reader.fetch(each, offset, max_wait_seconds=1.0)
                    records = [NewRecord(r.key, r.value, r.timestamp_ms) for r in fetched.records]
                    await write_batches(self.pair.b, self.topic, [(each.partition, Codec.NONE, records)])
                    offset = fetched.next_offset


def _replicator(estate: _Estate, directory: Path) -> list[str]:
    """The connector as REST tells it."""
    config = {
        "name": estate.group,
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": estate.pair.a.bootstrap_servers,
        "dest.kafka.bootstrap.servers": estate.pair.b.bootstrap_servers,
        "topic.whitelist": estate.topic,
        "topic.config.sync": "false",
    }
    file = directory / "connectors.json"
    file.write_text(json.dumps({estate.group: {"info": {"name": estate.group, "config": config}}}))
    return [str(file), "--source", estate.east, "--target", estate.west]


def _ureplicator(estate: _Estate, directory: Path) -> list[str]:
    """The controller's answer."""
    file = directory / "topics.txt"
    file.write_text(f"Current serving topics: [{estate.topic}]")
    source = f"{estate.east}={estate.pair.a.bootstrap_servers}"
    target = f"{estate.west}={estate.pair.b.bootstrap_servers}"
    return [str(file), "--group", estate.group, "--source", source, "--target", target]


@pytest.mark.parametrize(("left", "repeated"), [(_replicator, REPEATED), (_ureplicator, 0)])
async def test_a_flow_of_another_mirror_is_imported_continued_and_given_back(
    kafka_pair: KafkaPair, tmp_path: Path, left: Callable[[_Estate, Path], list[str]], repeated: int
) -> None:
    a, b = kafka_pair.a.client_properties(), kafka_pair.b.client_properties()
    async with open_cluster("a", a) as source, open_cluster("b", b) as target:
        estate = _Estate(
            pair=kafka_pair, source=source, target=target,
            topic=f"{unique_name('group')}.orders", group=unique_name("other-mirror"),
            east=unique_name("east"), west=unique_name("west"), repeated=repeated,
        )  # fmt: skip
        await estate.left_by_another_mirror()
        imported = tmp_path / "imported.properties"
        await _twinlog("import", *left(estate, tmp_path), "--to", str(imported))
        text = imported.read_text() + FAST_AND_SMALL
        imported.write_text(text)
        await _twinlog("preflight", str(imported))

        await estate.write()  # while nobody copies
        async with TwinlogRun(text, tmp_path) as run:
            await eventually(estate.copied)
            await estate.write()
            await eventually(estate.copied)
            config = ("--config", str(run.file))
            await eventually(partial(_all_runs, config))

            # The way back.
            await _twinlog("pause", estate.flow, *config)
            told = json.loads(await _twinlog("positions", "get", estate.flow, *config, "-o", "json"))
        rows = [f'"{each["topic"]}",{each["partition"]},{each["position"]}\n' for each in told]
        positions = tmp_path / "positions.csv"
        positions.write_text("".join(rows))
        await asyncio.to_thread(
            run_java_tool, GROUP_COMMAND, "--bootstrap-server", kafka_pair.a.bootstrap_servers,
            "--group", estate.group, "--reset-offsets", "--from-file", str(positions), "--execute",
        )  # fmt: skip
        await estate.write()
        await estate.copy_as_the_other_mirror_does()
        await estate.copied()


async def _all_runs(config: tuple[str, str]) -> bool:
    await _twinlog("status", "--check", *config)
    return True


async def _twinlog(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twinlog", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await process.communicate()
    assert process.returncode == 0, (arguments, out.decode(), said.decode())
    return out.decode()
