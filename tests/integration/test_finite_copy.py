"""`twinlog copy --until` and `twinlog.delay.seconds` on real brokers: a flow is held behind, then brought
exactly to an instant, to an offset, and to the end."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from integration.source_rig import open_rig
from integration.verify_rig import VerifyRig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import KafkaPair, eventually, unique_name

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
    exit_code, report = await mirror.command("--until", "now", name="copy")
    assert (exit_code, report["verdict"]) == (0, "EQUAL"), report
    assert report["records"] == OLD + YOUNG + YOUNG
    for number in range(2):
        assert await rig.target_content(topic, number) == await rig.source_content(topic, number)
