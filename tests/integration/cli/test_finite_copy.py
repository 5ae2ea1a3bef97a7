"""`twinlog copy --until` and `twinlog.delay.seconds` on real brokers: a flow is held behind, then brought
exactly to an instant, to an offset, and to the end. A copy ends by itself whatever happens meanwhile."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from integration.verify.verify_rig import VerifyRig, validated
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.ports import OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import PauseFact

OLD, YOUNG = 30, 30
HOUR_MS = 3_600_000


@pytest.fixture
async def mirror(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[VerifyRig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        yield VerifyRig(rig=rig, a=kafka_pair.a, b=kafka_pair.b)


async def test_a_flow_is_held_behind_and_brought_to_an_instant_and_to_the_end(mirror: VerifyRig) -> None:
    rig, topic = mirror.rig, unique_name("delayed")
    rig.extra |= {"topics": topic, "twinlog.delay.seconds": "3600", "twinlog.stalled.seconds": "1"}
    now_ms = SystemClock().now_ms()
    old = [NewRecord(b"k", b"old %d" % n, now_ms - 3 * HOUR_MS + n) for n in range(OLD)]
    young = [NewRecord(b"k", b"young %d" % n, now_ms - HOUR_MS // 2 + n) for n in range(YOUNG)]
    await rig.create(topic, 2)
    await mirror.write_source(topic, [(0, Codec.ZSTD, old), (0, Codec.ZSTD, young), (1, Codec.NONE, young)])
    async with rig.configsync() as configsync, rig.running(configsync) as service:

        async def is_held() -> bool:
            found = {each.source.partition: each for each in await rig.partitions(service, topic)}
            held = [(each.state, each.reason, each.position) for _, each in sorted(found.items())]
            running = pb.PARTITION_STATE_RUNNING
            return held == [(running, "DELAYED", OLD), (running, "DELAYED", 0)]

        await eventually(is_held)
        assert [len(await rig.target_content(topic, number)) for number in range(2)] == [OLD, 0]
    instant = datetime.fromtimestamp(young[17].timestamp_ms / 1000, UTC).isoformat()
    exit_code, report = await mirror.command("--until", instant, name="copy")
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == OLD + 17 + 17
    assert [len(await rig.target_content(topic, number)) for number in range(2)] == [OLD + 17, 17]
    exit_code, report = await mirror.command("--until", f"{topic}:1=20", name="copy")
    assert (exit_code, report["records"]) == (0, 20), report
    assert [len(await rig.target_content(topic, number)) for number in range(2)] == [OLD + 17, 20]
    exit_code, _ = await mirror.command("--until", f"{topic}:1={YOUNG + 1}", name="copy")
    assert exit_code == 2, "the source has no such offset yet"
    empty = unique_name("empty")
    await rig.create(empty, 2)
    rig.extra |= {"topics": f"{topic},{empty}"}
    exit_code, report = await mirror.command("--until", "now", "--topic", empty, name="copy")
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), "a topic without records has a copy as well"
    exit_code, report = await mirror.command("--until", "now", name="copy")
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == OLD + YOUNG + YOUNG
    for number in range(2):
        assert await rig.target_content(topic, number) == await rig.source_content(topic, number)


@asynccontextmanager
async def copying(mirror: VerifyRig, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`twinlog copy --until now` while it runs; it is ended by SIGKILL, if it still runs."""
    flow = f"{mirror.rig.a}->{mirror.rig.b}"
    command = [sys.executable, "-m", "twinlog", "copy", flow, "--config", str(mirror.file()), "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--until",
        "now",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def hold(mirror: VerifyRig, topic: str) -> tuple[bytes, bytes | None]:
    """Pause a topic, as the flow's log says it: a copy of it cannot end. The record of it."""
    fact = PauseFact(topic=topic, partition=None, by="test", at_ms=1)
    record = fact_record(mirror.rig.a, fact)
    await mirror.append(*record)
    return record


async def written(mirror: VerifyRig, *topics: str) -> None:
    now_ms = SystemClock().now_ms() - HOUR_MS
    records = [NewRecord(b"k", b"%d" % number, now_ms + number) for number in range(40)]
    for topic in topics:
        await mirror.rig.create(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, records)])


async def has_arrived(mirror: VerifyRig, topic: str) -> bool:
    copy = TopicPartition(mirror.rig.remote(topic), 0)
    found = (await mirror.rig.target.list_offsets(OffsetSpec.LAST_STABLE, [copy]))[copy]
    return isinstance(found, int) and found >= 40


async def test_a_copy_ends_although_a_topic_is_deleted_in_the_middle(mirror: VerifyRig) -> None:
    kept, deleted = unique_name("kept"), unique_name("deleted")
    mirror.rig.extra |= {"topics": f"{kept},{deleted}"}
    await written(mirror, kept, deleted)
    await mirror.positions_topic()
    await hold(mirror, deleted)
    async with copying(mirror) as process:
        await eventually(lambda: has_arrived(mirror, kept))
        await retry_admin(lambda: mirror.rig.source.delete_topics([deleted]))
        assert process.stdout is not None
        report = validated(json.loads(await process.stdout.read()))
        assert await process.wait() == 3
    assert [(each["topic"], each["reason"]) for each in report["not_compared"]] == [
        (deleted, "TOPIC_UNKNOWN")
    ]
    found = [(each["topic"], each["verdict"], each["records"]) for each in report["partitions"]]
    assert found == [(kept, "EQUAL", 40)]


@pytest.mark.parametrize("offsets", ["translated", "preserved"])
async def test_a_copy_that_was_killed_while_the_target_was_away_ends_with_every_record_once(
    kafka_pair: KafkaPair,
    tmp_path: Path,
    start_cluster: Callable[[ClusterSpec], BlockingCluster],
    offsets: str,
) -> None:
    target = await asyncio.to_thread(start_cluster, ClusterSpec(name="away"))
    async with open_rig(kafka_pair.a, target, tmp_path) as rig:
        mirror, first, last = VerifyRig(rig=rig, a=kafka_pair.a, b=target), unique_name("a"), unique_name("b")
        rig.extra |= {"topics": f"{first},{last}", "twinlog.offsets": offsets}
        await written(mirror, first, last)
        await mirror.positions_topic()
        key, _ = await hold(mirror, last)
        async with copying(mirror) as process:
            await eventually(lambda: has_arrived(mirror, first))
            await asyncio.to_thread(target.kill_broker, 1)
            process.send_signal(signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL, "it was killed in the middle"
        exit_code, report = await mirror.command("--until", "now", "--timeout", "3", name="copy")
        assert (exit_code, report["verdict"]) == (3, "INCOMPLETE"), report
        assert {each["reason"] for each in report["not_compared"]} <= {"KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT"}
        await asyncio.to_thread(target.start_brokers)
        await mirror.append(key, None)
        exit_code, report = await mirror.command("--until", "now", name="copy")
        assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
        assert [each["records"] for each in report["partitions"]] == [40, 40]
        assert {each["offsets_promised"] for each in report["partitions"]} == {offsets == "preserved"}
