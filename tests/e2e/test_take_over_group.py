"""docs/migration/confluent-replicator.md and ureplicator.md by their own commands, there and back as
mirrormaker1.md says.

Neither product can be run here. What they leave is: copies under the same names, and a group on the source
that says how far they came. What they do with the group on the way back is done by a consumer of the test.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from e2e.conftest import FAST_AND_SMALL
from e2e.guide import Guide
from e2e.rest_stand_in import rest_stand_in
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import CopyCheck, compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches

pytestmark = pytest.mark.java

FILE = "mm2.properties"
PARTITIONS, RECORDS = 2, 30
COMMITTED = 25
"""How far the group had committed, which is a little less than was copied."""
REPEATED = 5
"""Records that the other mirror had copied a second time after a crash, so that offsets of copies differ."""


@dataclass(slots=True, kw_only=True)
class _Rig:
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

    async def copied(self) -> CopyCheck:
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


async def _from_replicator(rig: _Rig, directory: Path) -> None:
    """Steps 1 to 4 of confluent-replicator.md, with the connector as its REST API tells it."""
    config = {
        "name": rig.group,
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "src.kafka.bootstrap.servers": rig.pair.a.bootstrap_servers,
        "dest.kafka.bootstrap.servers": rig.pair.b.bootstrap_servers,
        "topic.whitelist": rig.topic,
        "topic.config.sync": "false",
    }
    stop = f"PUT /connectors/{rig.group}/stop"
    answers = {
        "GET /connectors?expand=info": json.dumps(
            {rig.group: {"info": {"name": rig.group, "config": config}}}
        ),
        stop: "",
    }
    guide = Guide("confluent-replicator.md", directory)
    with rest_stand_in(answers) as rest:
        host = {"HOST:8083": rest.address}
        await guide.run("curl 'HOST:8083", host)
        clusters = {"--source A": f"--source {rig.east}", "--target B": f"--target {rig.west}"}
        await guide.run("twinlog convert connectors.json", clusters)
        _for_one_broker(directory)
        await guide.run("twinlog preflight")
        await guide.run("curl -X PUT", {**host, "connectors/replicator": f"connectors/{rig.group}"})
        assert rest.asked[-1] == stop
    await _continued(rig, guide, directory)
    assert guide.left == ["kubectl get connectors.platform.confluent.io NAME -o yaml"]


async def _from_ureplicator(rig: _Rig, directory: Path) -> None:
    """Steps 1 to 4 of ureplicator.md, for either product."""
    stream = {
        "name": "mirror",
        "connectorName": "kafkaMirroring",
        "source": {"connectionString": f"kafka://{rig.pair.a.bootstrap_servers}/^{rig.topic}$"},
        "metadata": {"group.id": rig.group},
    }
    answers = {
        "GET /topics": f"Current serving topics: [{rig.topic}]\n",
        "GET /datastream": json.dumps({"elements": [stream]}),
    }
    target = {"--target B=b1:9092": f"--target {rig.west}={rig.pair.b.bootstrap_servers}"}
    guide = Guide("ureplicator.md", directory)
    with rest_stand_in(answers) as rest:
        await guide.run("curl CONTROLLER", {"CONTROLLER:9000": rest.address})
        await guide.run("curl BROOKLIN", {"BROOKLIN:32311": rest.address})
    await guide.run(
        "twinlog convert streams.json", {**target, "GROUP": rig.group, FILE: "brooklin.properties"}
    )
    assert f"twinlog.start.group={rig.group}\n" in (directory / "brooklin.properties").read_text()
    await guide.run(
        "twinlog convert topics.txt",
        {
            **target,
            "--group ureplicator": f"--group {rig.group}",
            "--source A=a1:9092": f"--source {rig.east}={rig.pair.a.bootstrap_servers}",
        },
    )
    _for_one_broker(directory)
    await guide.run("twinlog preflight")
    await _continued(rig, guide, directory)
    assert not guide.left


def _for_one_broker(directory: Path) -> None:
    with (directory / FILE).open("a") as file:
        file.write(FAST_AND_SMALL)


async def _continued(rig: _Rig, guide: Guide, directory: Path) -> None:
    """Twinlog begins where the group stood, then the group gets what Twinlog reached."""
    await rig.write()  # while nobody copies
    assert guide.command("twinlog run") == f"twinlog run {FILE}"
    async with TwinlogRun((directory / FILE).read_text(), directory):
        await eventually(rig.copied)
        await rig.write()
        await eventually(rig.copied)
        await eventually(partial(_all_runs, guide))
        if rig.repeated:
            out, _ = await guide.run("twinlog verify", {"A->B": rig.flow}, code=1)
            assert "DUPLICATE" in out, out

        # The way back.
        back, flow = Guide("mirrormaker1.md", directory), {"mm1->target": rig.flow, "FILE": FILE}
        await back.run("twinlog pause", flow)
        await back.run("twinlog positions get", flow)
    group = {"SOURCE:9092": rig.pair.a.bootstrap_servers, "--group mm1": f"--group {rig.group}"}
    await back.run("kafka-consumer-groups.sh", group)


async def _all_runs(guide: Guide) -> bool:
    await guide.run("twinlog status --check")
    return True


@pytest.mark.parametrize(("taken_over", "repeated"), [(_from_replicator, REPEATED), (_from_ureplicator, 0)])
async def test_a_flow_of_another_mirror_is_imported_continued_and_given_back(
    kafka_pair: KafkaPair,
    tmp_path: Path,
    taken_over: Callable[[_Rig, Path], Awaitable[None]],
    repeated: int,
) -> None:
    a, b = kafka_pair.a.client_properties(), kafka_pair.b.client_properties()
    async with open_cluster("a", a) as source, open_cluster("b", b) as target:
        rig = _Rig(
            pair=kafka_pair, source=source, target=target,
            topic=f"{unique_name('group')}.orders", group=unique_name("other-mirror"),
            east=unique_name("east"), west=unique_name("west"), repeated=repeated,
        )  # fmt: skip
        await rig.left_by_another_mirror()
        await taken_over(rig, tmp_path)
        await rig.write()
        await rig.copy_as_the_other_mirror_does()
        await rig.copied()
