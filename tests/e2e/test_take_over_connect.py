"""docs/migration/connect.md and strimzi.md, step by step with a real Kafka Connect, there and back: what
Strimzi's operator runs is such a worker, with connectors that it names itself."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.processes.process import ProcessError
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name
from twinlog.testing.java.connect_worker import ConnectWorker
from twinlog.testing.records import write_batches

pytestmark = pytest.mark.java

PACKAGE = "org.apache.kafka.connect.mirror"
PARTITIONS, RECORDS = 2, 50
EVERY_SECOND = (
    "refresh.topics.interval.seconds",
    "emit.heartbeats.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "replication.factor",
    "offset-syncs.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
)


class _Estate:
    """Two clusters, one topic that is written to, and the connectors that copied it so far."""

    def __init__(self, pair: KafkaPair, source: KafkaCluster, target: KafkaCluster) -> None:
        self.pair, self.source, self.target = pair, source, target
        self.topic, self.east, self.west = unique_name("connect"), unique_name("east"), unique_name("west")
        self.flow = f"{self.east}->{self.west}"
        # As Strimzi's operator names them.
        self.names = {
            kind: f"{self.flow}.Mirror{kind}Connector" for kind in ("Source", "Checkpoint", "Heartbeat")
        }
        self.written = 0

    @property
    def positions(self) -> dict[int, tuple[str, int, int]]:
        """What `adopt` tells of each partition once all is copied: that it has one, which, and the lag."""
        return dict.fromkeys(range(PARTITIONS), ("stored", self.written // PARTITIONS, 0))

    def resource(self, worker: ConnectWorker) -> dict[str, Any]:
        """The resource of which Strimzi's operator would make this worker and these connectors."""
        config = {"sync.topic.acls.enabled": "false", **dict.fromkeys(EVERY_SECOND, 1)}
        source, target = self.pair.a.client_properties(), self.pair.b.client_properties()
        return {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaMirrorMaker2",
            "metadata": {"name": "mirror", "namespace": "kafka"},
            "spec": {
                "version": "4.3.1",
                "replicas": 1,
                "target": {
                    "alias": self.west,
                    "bootstrapServers": target["bootstrap.servers"],
                    "groupId": worker.group,
                    "offsetStorageTopic": worker.offsets_topic,
                },
                "mirrors": [
                    {
                        "source": {"alias": self.east, "bootstrapServers": source["bootstrap.servers"]},
                        "topicsPattern": self.topic,
                        **{
                            f"{kind.lower()}Connector": {"tasksMax": 1, "config": config}
                            for kind in self.names
                        },
                    }
                ],
            },
        }

    def connectors(self) -> list[dict[str, Any]]:
        both = {
            "source.cluster.alias": self.east,
            "target.cluster.alias": self.west,
            "topics": self.topic,
            "sync.topic.acls.enabled": "false",
            **dict.fromkeys(EVERY_SECOND, "1"),
            **{f"source.cluster.{k}": v for k, v in self.pair.a.client_properties().items()},
            **{f"target.cluster.{k}": v for k, v in self.pair.b.client_properties().items()},
        }
        return [
            {"name": name, "config": {**both, "connector.class": f"{PACKAGE}.Mirror{kind}Connector"}}
            for kind, name in self.names.items()
        ]

    async def write(self) -> None:
        now_ms = SystemClock().now_ms()
        for partition in range(PARTITIONS):
            records = [NewRecord(None, b"%d" % (self.written + i), now_ms) for i in range(RECORDS)]
            await write_batches(self.pair.a, self.topic, [(partition, Codec.LZ4, records)])
            self.written += RECORDS

    async def copied(self) -> None:
        """What was written while nobody copied, and what is written now, once each and in order."""
        await eventually(self._all_there)
        await self.write()
        await eventually(self._all_there)

    async def _all_there(self) -> bool | None:
        remote = f"{self.east}.{self.topic}"
        if remote not in await self.target.list_topics():
            return None
        found = await compare(self.source, self.topic, self.target, remote, partition_count=PARTITIONS)
        assert found.target_records <= self.written, "no record is there twice"
        return (found.target_records == self.written and found.identical) or None


async def test_a_flow_of_kafka_connect_and_of_strimzi_is_imported_taken_over_and_given_back(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    async with (
        open_cluster("a", kafka_pair.a.client_properties()) as source,
        open_cluster("b", kafka_pair.b.client_properties()) as target,
    ):
        estate = _Estate(kafka_pair, source, target)
        new = NewTopic(name=estate.topic, partition_count=PARTITIONS, replication_factor=1)
        await make_topics(source, new)
        worker = ConnectWorker(unique_name("connect"), kafka_pair.b.client_properties(), tmp_path)
        await asyncio.to_thread(worker.start)
        try:
            await _story(estate, worker, tmp_path)
        finally:
            await asyncio.to_thread(worker.stop)


async def _story(estate: _Estate, worker: ConnectWorker, tmp_path: Path) -> None:
    for connector in estate.connectors():
        await eventually(partial(_accepted, worker, connector))
    await estate.write()
    await estate.copied()
    await _as_connect_md_says(estate, worker, tmp_path)
    await _as_strimzi_md_says(estate, worker, tmp_path)


async def _as_connect_md_says(estate: _Estate, worker: ConnectWorker, directory: Path) -> None:
    # 1. Import what its REST API tells.
    told = await asyncio.to_thread(worker.call, "GET", "/connectors?expand=info&expand=status")
    (directory / "connectors.json").write_text(json.dumps(told))
    file = await _imported(directory / "connectors.json", "--offsets-topic", worker.offsets_topic)

    # 2. It is not taken over while Connect runs the connectors …
    # Its tasks store their positions every second; at their end they may leave that out on a busy machine.
    running = await eventually(partial(_stores, 1, file, estate))
    assert any("writes heartbeats" in refusal for refusal in running["refusals"]), running

    # 3. … and is once they are stopped, with the worker still there.
    await asyncio.to_thread(_for_all, worker, estate, "stop")
    await eventually(partial(_stores, 0, file, estate))

    # 4. Twinlog continues there.
    await estate.write()
    async with TwinlogRun(file.read_text(), directory):
        await estate.copied()

    # 5. The way back.
    await estate.write()
    await asyncio.to_thread(_for_all, worker, estate, "resume")
    await estate.copied()


async def _as_strimzi_md_says(estate: _Estate, worker: ConnectWorker, directory: Path) -> None:
    # 1. Import the resource.
    (directory / "mirror.yaml").write_text(yaml.safe_dump(estate.resource(worker)))
    file = await _imported(directory / "mirror.yaml")

    # 2. and 3. It is not taken over while pods are there, and is once the resource has no replicas.
    running = await eventually(partial(_stores, 1, file, estate, "--connect-group", worker.group))
    assert any("has 1 members" in refusal for refusal in running["refusals"]), running
    await asyncio.to_thread(worker.end)
    await eventually(partial(_stores, 0, file, estate, "--connect-group", worker.group))

    # 4. Twinlog continues there.
    await estate.write()
    async with TwinlogRun(file.read_text(), directory):
        await estate.copied()

    # The way back: a replica again.
    await estate.write()
    await asyncio.to_thread(worker.start)
    await estate.copied()


async def _imported(path: Path, *options: str) -> Path:
    """The properties file of `twinlog import`, for a small machine."""
    to = path.with_suffix(".properties")
    await _twinlog(0, "import", str(path), *options, "--to", str(to))
    to.write_text(f"{to.read_text()}twinlog.spark.master = local[2]\ntwinlog.max.slots = 2\n")
    return to


async def _accepted(worker: ConnectWorker, connector: dict[str, Any]) -> bool | None:
    """A worker that rebalances refuses for a moment."""
    path = f"/connectors/{quote(connector['name'])}/config"
    try:
        await asyncio.to_thread(worker.call, "PUT", path, connector["config"])
    except ProcessError:
        return None
    return True


def _for_all(worker: ConnectWorker, estate: _Estate, verb: str) -> None:
    for name in estate.names.values():
        worker.call("PUT", f"/connectors/{quote(name)}/{verb}")


async def _stores(code: int, file: Path, estate: _Estate, *options: str) -> Any:
    """What `adopt` tells once it ends with this code and tells the positions of all that was written."""
    found, out, said = await _run("adopt", str(file), *options, "-o", "json")
    assert found == code, said
    [told] = json.loads(out)
    begins = {
        each["partition"]: (each["begins"], each["position"], each["lag"])
        for each in told["partitions"]
        if each["topic"] == estate.topic  # A flow has its source's heartbeats, too, if others write some.
    }
    assert begins == estate.positions
    return told


async def _twinlog(expected: int, *arguments: str) -> str:
    code, out, said = await _run(*arguments)
    assert code == expected, (arguments, code, out, said)
    return out


async def _run(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "twinlog", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await process.communicate()
    return process.returncode or 0, out.decode(), said.decode()
