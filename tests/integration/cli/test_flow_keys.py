"""Settings of flows and services, set in one file, and what the services then do on both clusters.

Three flows side by side: what is switched on for the first is switched off for the second or the third, and
what these leave undone is looked at once the first has done it. `tests/unit/config/every_key.txt` names
the test of each key.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from twinlog.batches import NewRecord, read_batches
from twinlog.batches.codec import Codec
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, ConfigChange, KafkaCluster, NewTopic, TopicDescription
from twinlog.kafka.raw import FetchedPartition
from twinlog.local.port_lease import PortLease
from twinlog.local.twinlog_run import SERVICES, TwinlogRun
from twinlog.model import Record, TopicPartition
from twinlog.testing.brokers import (
    KafkaPair,
    eventually,
    make_topics,
    retry_admin,
    unique_name,
    write_batches,
)
from twinlog.testing.raw_copying import open_fetcher, open_session

GET_SECONDS = 30.0
COMMAND_SECONDS = 120.0
LISTEN = {
    "source": "twinlog.source.listen",
    "checkpoint": "twinlog.checkpoint.listen",
    "heartbeat": "twinlog.heartbeat.listen",
    "configsync": "twinlog.configsync.listen",
}
ENDPOINTS = {
    "source": "twinlog.source.endpoint",
    "checkpoint": "twinlog.checkpoint.endpoint",
    "heartbeat": "twinlog.heartbeat.endpoint",
    "configsync": "twinlog.configsync.endpoint",
}
METRICS_LISTEN = (
    "twinlog.source.metrics.listen",
    "twinlog.checkpoint.metrics.listen",
    "twinlog.heartbeat.metrics.listen",
    "twinlog.configsync.metrics.listen",
)


@dataclass(slots=True, kw_only=True)
class Rig:
    """Flows a->b, with everything on; c->d, which looks for nothing new; and e->f, which copies nothing."""

    pair: KafkaPair
    source: KafkaCluster
    target: KafkaCluster
    a: str
    b: str
    c: str
    d: str
    e: str
    f: str
    metrics: PortLease
    mark: str

    def topic(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def properties(self) -> str:
        on, off, bare = f"{self.a}->{self.b}", f"{self.c}->{self.d}", f"{self.e}->{self.f}"
        sources, targets = self.pair.a.bootstrap_servers, self.pair.b.bootstrap_servers
        settings = {
            "clusters": f"{self.a}, {self.b}, {self.c}, {self.d}, {self.e}, {self.f}",
            f"{self.a}.bootstrap.servers": sources,
            f"{self.b}.bootstrap.servers": targets,
            f"{self.c}.bootstrap.servers": sources,
            f"{self.d}.bootstrap.servers": targets,
            f"{self.e}.bootstrap.servers": sources,
            f"{self.f}.bootstrap.servers": targets,
            f"{on}.enabled": "true",
            f"{off}.enabled": "true",
            f"{bare}.enabled": "true",
            f"{bare}.topics": f"{self.mark}-nothing",
            f"{bare}.emit.checkpoints.enabled": "false",
            f"{bare}.emit.offset-syncs.enabled": "false",
            f"{bare}.sync.group.offsets.enabled": "false",
            "emit.heartbeats.enabled": "false",
            f"{on}.emit.heartbeats.enabled": "true",
            f"{on}.emit.heartbeats.interval.seconds": "0.2",
            # More than the one broker would be refused, and the defaults are more.
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            f"{on}.offset-syncs.topic.replication.factor": "1",
            f"{off}.offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            f"{self.b}.offset.storage.topic": f"positions-{self.mark}",
            f"{self.b}.offset.storage.partitions": "3",
            f"{self.d}.exactly.once.source.support": "disabled",
            # The first batch of a copy shows then whether it was written in a transaction.
            "twinlog.offsets": "translated",
            f"{off}.offsets.storage.topic": f"other-positions-{self.mark}",
            f"{on}.name": f"named-{self.mark}",
            f"{on}.replication.policy.separator": "_",
            f"{on}.replication.policy.internal.topic.separator.enabled": "false",
            f"{on}.topics": f"{self.mark}-on.*",
            f"{on}.topics.exclude": f"{self.mark}-on-not.*",
            f"{off}.topics": f"{self.mark}-off.*",
            f"{on}.heartbeats.replication.enabled": "true",
            f"{off}.heartbeats.replication.enabled": "false",
            "refresh.topics.interval.seconds": "0.5",
            f"{off}.refresh.topics.enabled": "false",
            f"{on}.sync.topic.configs.interval.seconds": "0.5",
            f"{on}.config.properties.exclude": "segment.bytes",
            f"{on}.twinlog.sync.topic.configs.include": "retention.ms, segment.bytes",
            f"{on}.twinlog.sync.topic.configs.fixed": f"{self.mark}-on-1 index.interval.bytes=8192",
            f"{on}.use.defaults.from": "source",
            f"{off}.sync.topic.configs.enabled": "false",
            f"{on}.offset-syncs.topic.location": "target",
            f"{on}.offset.lag.max": "0",
            f"{on}.twinlog.offset-syncs.min.compaction.lag.seconds": "1234",
            "groups": f"{self.mark}-g.*",
            f"{on}.groups.exclude": f"{self.mark}-g-not.*",
            "refresh.groups.interval.seconds": "0.5",
            f"{off}.refresh.groups.enabled": "false",
            "emit.checkpoints.interval.seconds": "0.5",
            f"{off}.twinlog.translation.max.bytes": "0",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "0.5",
            f"{on}.twinlog.sync.group.deletes.enabled": "true",
            f"{on}.twinlog.sync.group.deletes.grace.seconds": "0",
            f"{on}.twinlog.sync.group.deletes.max.per.hour": "1",
            f"{on}.twinlog.sync.topic.deletes.enabled": "true",
            f"{on}.twinlog.sync.topic.deletes.grace.seconds": "0",
            f"{on}.twinlog.sync.topic.deletes.max.per.hour": "1",
            "twinlog.log.level": "debug",
            "twinlog.drain.seconds": "0",
            # What looks for nothing new does so again when it has lost the flow for a moment.
            "twinlog.owner.timeout.seconds": "60",
            **{
                key: f"127.0.0.1:{port}" for key, port in zip(METRICS_LISTEN, self.metrics.ports, strict=True)
            },
        }
        return "".join(f"{key} = {value}\n" for key, value in settings.items())

    async def create(self, *names: str, **configs: str) -> None:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        new = [
            NewTopic(name=self.topic(name), partition_count=1, replication_factor=1, configs=settings)
            for name in names
        ]
        await make_topics(self.source, *new)

    async def write(self, *names: str, count: int = 5) -> None:
        now_ms = SystemClock().now_ms()
        for name in names:
            records = [NewRecord(b"k", b"%d" % number, now_ms) for number in range(count)]
            await write_batches(self.pair.a, self.topic(name), [(0, Codec.NONE, records)])

    async def read(self, topic: str, number: int = 0) -> Sequence[Record]:
        """The first records of a partition of the target. AssertionError while it is not there."""
        async with self.target.reader() as reader:
            try:
                return (await reader.fetch(TopicPartition(topic, number), 0, max_wait_seconds=1)).records
            except KafkaError as error:
                raise AssertionError(f"{topic}-{number} cannot be read yet") from error

    async def copied(self, topic: str, count: int) -> None:
        async def all_there() -> bool:
            assert len(await self.read(topic)) >= count, topic
            return True

        await eventually(all_there)

    async def commit(self, *names: str, topic: str, at: int) -> None:
        offsets = {TopicPartition(self.topic(topic), 0): CommittedOffset(next_offset=at)}
        for name in names:
            await retry_admin(partial(self.source.alter_group_offsets, self.topic(name), offsets))

    async def group_on_target(self, name: str) -> dict[str, int]:
        held = (await self.target.group_offsets([self.topic(name)]))[self.topic(name)]
        assert not isinstance(held, KafkaError), held
        return {partition.topic: committed.next_offset for partition, committed in held.items()}

    async def configs(self, topic: str) -> dict[str, str | None]:
        found = (await self.target.describe_topic_configs([topic]))[topic]
        assert not isinstance(found, KafkaError), found
        return {entry.name: entry.value for entry in found}


@pytest.fixture
async def rig(kafka_pair: KafkaPair) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as opened:
        source = await opened.enter_async_context(open_cluster("A", kafka_pair.a.client_properties()))
        target = await opened.enter_async_context(open_cluster("B", kafka_pair.b.client_properties()))
        metrics = PortLease(len(SERVICES))
        opened.callback(metrics.release)
        mark = unique_name("keys")
        aliases = {name: unique_name(name).replace("-", "") for name in "abcdef"}
        yield Rig(pair=kafka_pair, source=source, target=target, metrics=metrics, mark=mark, **aliases)


async def test_what_a_file_says_of_its_flows_is_what_both_clusters_show(rig: Rig, tmp_path: Path) -> None:
    await rig.create("on-1", "off-1", "on-gone-1", "on-gone-2", "on-not-this", segment_bytes="1048576")
    await rig.write("on-1", "off-1", "on-gone-1", "on-gone-2", "on-not-this")
    copy, other_copy = f"{rig.a}_{rig.topic('on-1')}", f"{rig.c}.{rig.topic('off-1')}"
    await rig.commit("g-off", topic="off-1", at=3)
    await rig.commit("g-1", "g-gone-1", "g-gone-2", "g-not-this", "other", topic="on-1", at=3)
    async with TwinlogRun(rig.properties(), tmp_path) as run:
        await rig.copied(copy, 5)
        await rig.copied(other_copy, 5)
        await _names_and_places(rig)
        await _positions(rig)
        await _groups(rig, copy, other_copy)
        await _topics_and_their_settings(rig, copy, other_copy)
        await _deletions(rig)
        await asyncio.to_thread(_metrics_are_served, rig.metrics.ports)
        await _services_are_found(run, tmp_path)

        async def heartbeats_are_copied() -> bool:
            return f"{rig.a}_heartbeats" in await rig.target.list_topics()

        await eventually(heartbeats_are_copied)
        topics = set(await rig.target.list_topics())
        assert f"{rig.c}.heartbeats" not in topics
        assert f"{rig.a}.checkpoints.internal" in topics
        assert f"{rig.c}.checkpoints.internal" in topics
        assert f"{rig.e}.checkpoints.internal" not in topics
        assert f"{rig.a}_{rig.topic('on-not-this')}" not in topics
    said = [json.loads(line) for line in run.log.read_text().splitlines() if line.startswith("{")]
    assert "debug" in {line.get("level") for line in said}


async def _names_and_places(rig: Rig) -> None:
    """The offset syncs are on the target, in a topic as it was asked for; those of c->d on the source, and
    there are none of e->f."""
    name = f"mm2-offset-syncs.{rig.a}.internal"

    async def is_there() -> bool:
        assert (await rig.configs(name))["min.compaction.lag.ms"] == "1234000"
        return True

    await eventually(is_there)

    async def one_for_each_record() -> bool:
        syncs = await rig.read(name)
        mine = [record for record in syncs if rig.topic("on-1").encode() in (record.key or b"")]
        assert mine, "no offset sync"
        return True

    await eventually(one_for_each_record)
    on_source = set(await rig.source.list_topics())
    assert f"mm2-offset-syncs.{rig.b}.internal" not in on_source
    assert f"mm2-offset-syncs.{rig.d}.internal" in on_source
    assert f"mm2-offset-syncs.{rig.f}.internal" not in on_source


async def _positions(rig: Rig) -> None:
    names = [f"positions-{rig.mark}", f"other-positions-{rig.mark}"]
    described = await rig.target.describe_topics(names)
    first = described[names[0]]
    assert isinstance(first, TopicDescription), first
    assert first.partition_count == 3
    assert isinstance(described[names[1]], TopicDescription), described

    async def are_named() -> bool:
        keys: list[bytes] = []
        for number in range(3):
            keys += [record.key or b"" for record in await rig.read(names[0], number)]
        assert any(key.startswith(b'["named-%s"' % rig.mark.encode()) for key in keys), keys
        return True

    await eventually(are_named)
    with_transactions = await _is_transactional(rig, f"{rig.a}_{rig.topic('on-1')}")
    assert with_transactions
    assert not await _is_transactional(rig, f"{rig.c}.{rig.topic('off-1')}")


async def _is_transactional(rig: Rig, topic: str) -> bool:
    partition = TopicPartition(topic, 0)
    properties = rig.pair.b.client_properties()
    async with open_session("B", properties) as session, open_fetcher(session) as fetcher:
        answer = None
        while not isinstance(answer, FetchedPartition):
            answer = (await fetcher.poll({partition: 0}, max_wait_seconds=5)).get(partition)
    return read_batches(answer.records)[0].header.is_transactional


async def _groups(rig: Rig, copy: str, other_copy: str) -> None:
    async def are_there() -> bool:
        # By offset syncs alone: behind the last one before it.
        assert 0 < (await rig.group_on_target("g-off")).get(other_copy, 0) < 3
        for name in ("g-1", "g-gone-1", "g-gone-2"):
            assert (await rig.group_on_target(name)) == {copy: 3}, name
        return True

    await eventually(are_there)
    await rig.commit("g-off-late", topic="off-1", at=4)
    await rig.commit("g-late", topic="on-1", at=4)

    async def the_late_one_too() -> bool:
        assert (await rig.group_on_target("g-late")) == {copy: 4}
        return True

    await eventually(the_late_one_too)
    for name in ("g-not-this", "other", "g-off-late"):
        assert await rig.group_on_target(name) == {}


async def _topics_and_their_settings(rig: Rig, copy: str, other_copy: str) -> None:
    await rig.create("off-late")
    await rig.create("on-late")
    await rig.write("on-late", "off-late")
    await rig.copied(f"{rig.a}_{rig.topic('on-late')}", 5)
    changes = [
        ConfigChange(name="retention.ms", value="777777777"),
        ConfigChange(name="segment.bytes", value="2097152"),
        ConfigChange(name="index.interval.bytes", value="2048"),
        ConfigChange(name="flush.messages", value="77777"),
    ]
    for name in ("off-1", "on-1"):
        await retry_admin(partial(rig.source.alter_topic_configs, {rig.topic(name): changes}))

    async def follows() -> bool:
        assert (await rig.configs(copy))["retention.ms"] == "777777777"
        return True

    await eventually(follows)
    settings = await rig.configs(copy)
    assert settings["segment.bytes"] not in ("1048576", "2097152")
    assert settings["flush.messages"] != "77777", "not among those that follow"
    assert settings["index.interval.bytes"] == "8192", "fixed"
    assert (await rig.configs(other_copy))["retention.ms"] != "777777777"
    assert f"{rig.c}.{rig.topic('off-late')}" not in await rig.target.list_topics()


async def _deletions(rig: Rig) -> None:
    """Two topics and two groups are deleted on the source: one of each may go on the target within the
    hour."""
    for name in ("on-gone-1", "on-gone-2"):
        await retry_admin(partial(rig.source.delete_topics, [rig.topic(name)]))
    groups = [rig.topic(name) for name in ("g-gone-1", "g-gone-2")]
    await retry_admin(lambda: rig.source.delete_groups(groups))
    copies = {f"{rig.a}_{rig.topic(name)}" for name in ("on-gone-1", "on-gone-2")}

    async def one_of_each_is_gone() -> bool:
        assert len(copies & set(await rig.target.list_topics())) == 1
        left = [name for name in ("g-gone-1", "g-gone-2") if await rig.group_on_target(name)]
        assert len(left) == 1, left
        return True

    await eventually(one_of_each_is_gone)


def _metrics_are_served(ports: Sequence[int]) -> None:
    for port in ports:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=GET_SECONDS) as answer:
            assert b"target_info" in answer.read()


async def _services_are_found(run: TwinlogRun, directory: Path) -> None:
    """By commands that have another file: where it says that services listen, or that they are found."""
    for keys in (LISTEN, ENDPOINTS):
        lines = run.file.read_text(encoding="latin-1").splitlines()
        others = [line for line in lines if not line.startswith(tuple(LISTEN.values()))]
        found = [f"{key} = {run.endpoints[service]}" for service, key in keys.items()]
        file = directory / "elsewhere.properties"
        file.write_text("\n".join([*others, *found]), encoding="latin-1")
        command = [sys.executable, "-m", "twinlog", "status", "--config", str(file), "-o", "json"]

        async def all_answer(command: Sequence[str] = command) -> bool:
            shown = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=COMMAND_SECONDS
            )
            assert shown.returncode == 0, shown
            services = json.loads(shown.stdout)["services"]
            assert {each["health"] for each in services} == {"SERVING"}, services
            assert {each["name"]: each["endpoint"] for each in services} == dict(run.endpoints), services
            return True

        await eventually(all_answer)
