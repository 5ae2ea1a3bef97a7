"""`twinlog start` on real clusters: two addresses are enough for the first record on the other side, and
MirrorMaker 2 goes on with the file that it writes."""

import asyncio
import os
import sys
from pathlib import Path

from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.local.processes.process import GuardedProcess
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name, write_batches
from twinlog.testing.java.mm2 import mirror_maker_2

_STOP_SECONDS = 60.0
_RECORDS = 5
_COMMAND_VARIABLE = "TWINLOG_TESTS_COMMAND"
"""Another `twinlog`, such as one that was installed from wheels."""


def _start(directory: Path, *arguments: str, errors: Path | None = None) -> GuardedProcess:
    other = os.environ.get(_COMMAND_VARIABLE)
    command = [*([other] if other else [sys.executable, "-m", "twinlog"]), "start", *arguments]
    return GuardedProcess(command, cwd=directory, output=directory / "log", errors=errors)


async def test_two_addresses_are_enough(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    topic, names = unique_name("first"), (unique_name("a"), unique_name("b"))
    one, other = (each.bootstrap_servers for each in (kafka_pair.a, kafka_pair.b))
    copy = TopicPartition(f"{names[0]}.{topic}", 0)
    file = tmp_path / "twinlog.properties"
    async with open_cluster("a", kafka_pair.a.client_properties()) as source:
        new = NewTopic(name=topic, partition_count=1, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
    now_ms = SystemClock().now_ms()
    batch = [NewRecord(b"k", b"%d" % number, now_ms) for number in range(_RECORDS)]
    await write_batches(kafka_pair.a, topic, [(0, Codec.NONE, batch)])

    with _start(tmp_path, one, one.replace("127.0.0.1", "localhost")) as refused:
        assert await asyncio.to_thread(refused.wait, _STOP_SECONDS) == 2
    assert "the same cluster" in (tmp_path / "log").read_text()
    assert not file.exists()

    what = (one, other, "--topics", topic, "--names", ",".join(names))
    with _start(tmp_path, *what, "--dry-run", errors=tmp_path / "told") as dry:
        assert await asyncio.to_thread(dry.wait, _STOP_SECONDS) == 0
    shown = (tmp_path / "log").read_text()
    assert f"{topic} -> {copy.topic}" in (tmp_path / "told").read_text()
    assert not file.exists()

    async with open_cluster("b", kafka_pair.b.client_properties()) as target:
        with _start(tmp_path, *what) as run:

            async def arrived() -> bool:
                assert run.running, (tmp_path / "log").read_text()
                if copy.topic not in await target.list_topics():
                    return False
                return (await target.list_offsets(OffsetSpec.LATEST, [copy]))[copy] == _RECORDS

            await eventually(arrived)
            assert await asyncio.to_thread(run.stop, _STOP_SECONDS) == 0
    assert f"{topic} -> {copy.topic}" in (tmp_path / "log").read_text()
    assert f"{names[0]}.bootstrap.servers={one}" in file.read_text()
    assert shown.strip().endswith(file.read_text().strip()), "what --dry-run prints is a file"

    await write_batches(kafka_pair.a, topic, [(0, Codec.NONE, batch)])
    async with open_cluster("b", kafka_pair.b.client_properties()) as target:

        async def went_on() -> bool:
            return (await target.list_offsets(OffsetSpec.LATEST, [copy]))[copy] == 2 * _RECORDS

        async with mirror_maker_2(file.read_text("latin-1"), tmp_path):
            await eventually(went_on)
