"""docs/migration/connect.md and strimzi.md by their own commands with a real Kafka Connect, there and back:
what Strimzi's operator runs is such a worker, with connectors named by it. The test is the operator."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from e2e.guide import Guide
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.local.processes.process import ProcessError
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches
from twinlog.testing.java.connect_worker import ConnectWorker

pytestmark = pytest.mark.java

PACKAGE = "org.apache.kafka.connect.mirror"
PARTITIONS, RECORDS = 2, 50
FILE = "mm2.properties"
EVERY_SECOND = (
    "refresh.topics.interval.seconds",
    "emit.heartbeats.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "replication.factor",
    "offset-syncs.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
)


class _Rig:
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
        rig = _Rig(kafka_pair, source, target)
        new = NewTopic(name=rig.topic, partition_count=PARTITIONS, replication_factor=1)
        await make_topics(source, new)
        worker = ConnectWorker(unique_name("connect"), kafka_pair.b.client_properties(), tmp_path)
        await asyncio.to_thread(worker.start)
        try:
            await _story(rig, worker, tmp_path)
        finally:
            await asyncio.to_thread(worker.stop)


async def _story(rig: _Rig, worker: ConnectWorker, tmp_path: Path) -> None:
    for connector in rig.connectors():
        await eventually(partial(_accepted, worker, connector))
    await rig.write()
    await rig.copied()
    for name, follow in (("connect", _as_connect_md_says), ("strimzi", _as_strimzi_md_says)):
        (tmp_path / name).mkdir()
        await follow(rig, worker, tmp_path / name)


async def _as_connect_md_says(rig: _Rig, worker: ConnectWorker, directory: Path) -> None:
    guide, host = Guide("connect.md", directory), {"HOST:8083": worker.address}
    # 1. Import what its REST API tells.
    await guide.run("curl 'HOST", host)
    await guide.run("twinlog convert", {"connect-offsets": worker.offsets_topic})
    _for_a_small_machine(directory)

    # 2. It is not taken over while Connect runs the connectors …
    await guide.run("twinlog preflight")
    # Its tasks store their positions every second; at their end they may leave that out on a busy machine.
    running = await eventually(partial(_stores, 1, guide, rig))
    assert any("writes heartbeats" in refusal for refusal in running["refusals"]), running

    # 3. … and is once they are stopped, with the worker still there.
    await _for_all(guide, rig, "curl -X PUT HOST:8083/connectors/my-mirror/stop", host)
    await eventually(partial(_stores, 0, guide, rig))

    # 4. Twinlog continues there.
    await _continued(rig, guide, directory)

    # 5. The way back.
    await rig.write()
    await _for_all(guide, rig, "curl -X PUT HOST:8083/connectors/my-mirror/resume", host)
    await rig.copied()
    assert not guide.left


async def _as_strimzi_md_says(rig: _Rig, worker: ConnectWorker, directory: Path) -> None:
    resource, asked = directory / "resource.yaml", directory / "asked"
    resource.write_text(yaml.safe_dump(rig.resource(worker)))
    kubectl = f'echo "$*" >> {asked}; case "$*" in *" get "*) cat {resource};; esac'
    guide = Guide("strimzi.md", directory, {"kubectl": kubectl})
    # 1. Import the resource.
    await guide.run("kubectl -n kafka get")
    await guide.run("twinlog convert")
    _for_a_small_machine(directory)

    # 2. and 3. It is not taken over while pods are there, and is once the resource has no replicas.
    await guide.run("twinlog preflight")
    group = {"GROUP": worker.group}
    running = await eventually(partial(_stores, 1, guide, rig, group))
    assert any("has 1 member" in refusal for refusal in running["refusals"]), running
    await guide.run("kubectl -n kafka scale")
    assert asked.read_text().splitlines()[-1] == "-n kafka scale kafkamirrormaker2 mirror --replicas 0"
    await asyncio.to_thread(worker.end)
    await eventually(partial(_stores, 0, guide, rig, group))

    # 4. Twinlog continues there.
    await _continued(rig, guide, directory)

    # The way back: a replica again.
    await rig.write()
    await asyncio.to_thread(worker.start)
    await rig.copied()
    assert not guide.left


async def _continued(rig: _Rig, guide: Guide, directory: Path) -> None:
    await rig.write()
    assert guide.command("twinlog run") == f"twinlog run {FILE}"
    async with TwinlogRun((directory / FILE).read_text(), directory):
        await rig.copied()
        await eventually(partial(_succeeds, guide, "twinlog status --check"))
        await guide.run("twinlog verify", {"A->B": rig.flow})


def _for_a_small_machine(directory: Path) -> None:
    with (directory / FILE).open("a") as file:
        file.write("offset.storage.replication.factor = 1\n")
        file.write("twinlog.spark.master = local[2]\ntwinlog.max.slots = 2\n")


async def _accepted(worker: ConnectWorker, connector: dict[str, Any]) -> bool | None:
    """A worker that rebalances refuses for a moment."""
    path = f"/connectors/{quote(connector['name'])}/config"
    try:
        await asyncio.to_thread(worker.call, "PUT", path, connector["config"])
    except ProcessError:
        return None
    return True


async def _for_all(guide: Guide, rig: _Rig, command: str, host: dict[str, str]) -> None:
    for name in rig.names.values():
        await eventually(partial(_succeeds, guide, command, {**host, "my-mirror": quote(name)}))


async def _succeeds(guide: Guide, command: str, names: dict[str, str] | None = None) -> bool:
    out, _ = await guide.run(command, names)
    assert "error_code" not in out, out
    return True


async def _stores(code: int, guide: Guide, rig: _Rig, names: dict[str, str] | None = None) -> Any:
    """What `adopt` tells once it ends with this code and tells the positions of all that was written."""
    out, _ = await guide.run("twinlog adopt", {**(names or {}), FILE: f"{FILE} -o json"}, code=code)
    [told] = json.loads(out)
    begins = {
        each["partition"]: (each["begins"], each["position"], each["lag"])
        for each in told["partitions"]
        if each["topic"] == rig.topic  # A flow has its source's heartbeats, too, if others write some.
    }
    assert begins == rig.positions
    return told
