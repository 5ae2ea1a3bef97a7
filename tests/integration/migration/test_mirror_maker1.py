"""docs/migration/mirrormaker1.md by its own commands on real brokers: `twinlog mirror-maker` begins where
MirrorMaker 1's group stood, and keeps its own positions from then on."""

import asyncio
import os
import re
import shlex
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from e2e.guide import Guide
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.processes.process import GuardedProcess
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, unique_name, write_batches

pytestmark = pytest.mark.broker

MIRROR_MAKER = "twinlog mirror-maker"
WAY_BACK = [
    ["twinlog", "pause"],
    ["twinlog", "positions"],
    ["kafka-consumer-groups.sh", "--bootstrap-server"],
]
"""Run by tests/e2e/test_take_over_group.py."""

RECORDS = 20
SMALL = ("twinlog.spark.master=local[2]", "twinlog.max.slots=2")


class _Mirror:
    """The commands as their user starts them, with a state directory of their own."""

    def __init__(self, directory: Path, pair: KafkaPair, group: str, include: str) -> None:
        (directory / "consumer.properties").write_text(
            f"bootstrap.servers={pair.a.bootstrap_servers}\ngroup.id={group}\nauto.offset.reset=earliest\n"
        )
        (directory / "producer.properties").write_text(
            f"bootstrap.servers={pair.b.bootstrap_servers}\nacks=all\n"
        )
        # Commands find a run by its state, also where it had to take other ports than the defaults.
        program = f'XDG_STATE_HOME="{directory}" {sys.executable} -m twinlog "$@"'
        self.guide = Guide("mirrormaker1.md", directory, {"twinlog": program})
        self.log = directory / "log"
        self.include = {"orders|payments.*": include}
        self._directory = directory

    @property
    def file(self) -> str:
        """The properties file that the first lines name; of several starts those of the last one."""
        told: list[str] = re.findall(r"^configuration: (.+)$", self.log.read_text(), re.MULTILINE)
        return told[-1]

    async def check(self) -> None:
        text, _ = await self.guide.run(MIRROR_MAKER, {**self.include, " --include": " --dry-run --include"})
        (self._directory / "mm1.properties").write_text(text)
        await self.guide.run("twinlog preflight")

    def start(self, command: str) -> GuardedProcess:
        program, *words = shlex.split(command)
        assert program == "twinlog"
        sets = [word for setting in SMALL for word in ("--set", setting)]
        return GuardedProcess(
            [sys.executable, "-m", program, *words, *sets],
            output=self.log,
            cwd=self._directory,
            env={**os.environ, "XDG_STATE_HOME": str(self._directory)},
        )


async def test_it_begins_where_the_group_of_mirror_maker_1_stood_and_continues_where_it_was(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    topic, group = unique_name("mm1"), unique_name("mm1-group")
    known, unknown = TopicPartition(topic, 0), TopicPartition(topic, 1)
    mirror = _Mirror(tmp_path, kafka_pair, group, topic)
    guide = mirror.guide
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(open_cluster("a", kafka_pair.a.client_properties()))
        b = await stack.enter_async_context(open_cluster("b", kafka_pair.b.client_properties()))
        await make_topics(a, NewTopic(name=topic, partition_count=2, replication_factor=1))
        await _write(kafka_pair, topic, first=0)
        committed = await a.alter_group_offsets(group, {known: CommittedOffset(next_offset=15)})
        assert committed == {known: None}
        await mirror.check()

        async def copies(process: GuardedProcess, written: int) -> None:
            try:
                # Where the group had committed nothing, auto.offset.reset says earliest.
                await eventually(partial(_has, b, unknown, range(written)))
                await eventually(partial(_has, b, known, range(15, written)))
                await guide.run("twinlog status", {"FILE": mirror.file})
            finally:
                code = await asyncio.to_thread(process.stop, 60.0)
            assert code == 0, mirror.log.read_text()[-4000:]
            await _write(kafka_pair, topic, first=written)

        await copies(mirror.start(guide.command(MIRROR_MAKER, mirror.include)), RECORDS)
        old_spelling = {**mirror.include, "--include": "--num.streams 2 --new.consumer --whitelist"}
        await copies(mirror.start(guide.command(MIRROR_MAKER, old_spelling)), 2 * RECORDS)
        await copies(mirror.start(guide.command("twinlog run", {"FILE": mirror.file})), 3 * RECORDS)
    assert [each.split()[:2] for each in guide.left] == WAY_BACK


async def _write(pair: KafkaPair, topic: str, *, first: int) -> None:
    now_ms = SystemClock().now_ms()
    records = [NewRecord(None, b"%d" % (first + i), now_ms) for i in range(RECORDS)]
    await write_batches(pair.a, topic, [(p, Codec.LZ4, records) for p in (0, 1)])


async def _has(cluster: KafkaCluster, partition: TopicPartition, expected: range) -> bool | None:
    """Whether the partition holds exactly these, once each and in order."""
    if partition.topic not in await cluster.list_topics():
        return None
    # Of an empty target topic, the offsets before the first record may have been filled and deleted.
    first = (await cluster.list_offsets(OffsetSpec.EARLIEST, [partition]))[partition]
    if isinstance(first, KafkaError):
        return None
    values: list[bytes | None] = []
    async with cluster.reader() as reader:
        offset, end = first, first + 1
        while offset < end:
            try:
                fetched = await reader.fetch(partition, offset, max_wait_seconds=1.0)
            except KafkaError:
                # What was filled is deleted just now.
                return None
            offset, end = fetched.next_offset, fetched.high_watermark
            values += [record.value for record in fetched.records]
    wanted = [b"%d" % number for number in expected]
    assert values == wanted[: len(values)], "neither a record twice nor one before the group's offset"
    return values == wanted or None
