"""`twinlog repair` on real brokers: what is lost at the end of a copy is copied again, and once only."""

from pathlib import Path
from typing import Any

from integration.in_process import twinlog
from integration.verify.verify_rig import VerifyRig, answered, differences
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import awkward_records, eventually, unique_name

CALL_SECONDS = 15.0


async def repair(mirror: VerifyRig, *arguments: str) -> tuple[int, Any]:
    return answered(await twinlog("repair", "--config", str(mirror.file()), "-o", "json", *arguments))


async def test_a_lost_end_is_copied_again_and_not_twice(mirror: VerifyRig, tmp_path: Path) -> None:
    torn, holey = unique_name("torn"), unique_name("holey")
    mirror.rig.extra["topics"] = f"{torn},{holey}"
    records = awkward_records(SystemClock().now_ms() - 3_600_000, count=60)
    for topic, copied in ((torn, records[:50]), (holey, [*records[:7], *records[8:]])):
        await mirror.topics(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, records)])
        await mirror.write_copy(topic, [(0, Codec.LZ4, copied)])
        await mirror.store_position(topic, len(records))
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:

        async def is_copied() -> bool:
            found = await mirror.rig.partitions(service)
            states = [each.state for each in found if each.source.topic in (torn, holey)]
            return states == [pb.PARTITION_STATE_RUNNING] * 2

        await eventually(is_copied)
        file = tmp_path / "proof.json"
        exit_code, report = await mirror.command("--wait", "0", "--report", str(file))
        lost = len(records) - 50
        assert sorted(differences(report)) == [("MISSING", 7, 7, 1), ("MISSING", 50, None, lost)]
        asked = ("--from-report", str(file), "--endpoint", f"source={service.endpoint}")
        exit_code, told = await repair(mirror, *asked)
        assert exit_code == 2, "nobody is there to say yes"
        assert "--yes" in told["error"]
        exit_code, told = await repair(mirror, *asked, "--yes")
        assert exit_code == 1, told
        assert [(each["topic"], each["action"], each["applied"]) for each in told] == [
            (holey, "NEW_COPY", False),
            (torn, "COPY_FROM", True),
        ]
        report = await mirror.verify(torn, wait_seconds=60.0)
        assert (report["verdict"], report["records"]) == ("EQUAL", len(records))
        exit_code, told = await repair(mirror, *asked, "--yes")
        assert [(each["applied"], each["reason"]) for each in told] == [(False, "NOT_REPAIRED")] * 2
        assert not (await mirror.rig.flow_status(service)).pauses, "its own pauses are taken back"
    report = await mirror.verify(torn, wait_seconds=60.0)
    assert (report["verdict"], report["records"]) == ("EQUAL", len(records))


async def test_every_kind_of_difference_is_healed_by_a_new_copy(mirror: VerifyRig, tmp_path: Path) -> None:
    """Seen by a second verification."""
    records = awkward_records(SystemClock().now_ms() - 3_600_000, count=40)
    stranger = [NewRecord(b"who", b"was this", records[-1].timestamp_ms)]
    changed = [records[9]._replace(value=b"changed")]
    damaged = {
        "MISSING": [*records[:7], *records[8:]],
        "DUPLICATE": [*records[:20], *records[5:20], *records[20:]],
        "FOREIGN": [*records[:30], *stranger, *records[30:]],
        "CHANGED": [*records[:9], *changed, *records[10:]],
        "ORDER": [*records[:3], records[4], records[3], *records[5:]],
    }
    topics = {unique_name(kind.lower()): kind for kind in damaged}
    mirror.rig.extra["topics"] = ",".join(topics)
    for topic, kind in topics.items():
        await mirror.topics(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, records)])
        await mirror.write_copy(topic, [(0, Codec.LZ4, damaged[kind])])
        await mirror.store_position(topic, len(records))
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:

        async def is_copied() -> bool:
            found = await mirror.rig.partitions(service)
            states = [each.state for each in found if each.source.topic in topics]
            return states == [pb.PARTITION_STATE_RUNNING] * len(topics)

        await eventually(is_copied)
        file = tmp_path / "proof.json"
        exit_code, report = await mirror.command("--wait", "0", "--report", str(file))
        assert exit_code == 1
        assert {(each["topic"], each["kind"]) for each in report["differences"]} == set(topics.items())
        asked = ("--from-report", str(file), "--endpoint", f"source={service.endpoint}", "--yes")
        exit_code, told = await repair(mirror, *asked, "--new-copies")
        assert exit_code == 0, told
        assert [(each["topic"], each["action"], each["applied"]) for each in told] == [
            (topic, "NEW_COPY", True) for topic in sorted(topics)
        ]
        report = await mirror.verify(wait_seconds=120.0)
        assert report["verdict"] == "EQUAL", report
        assert report["records"] == len(topics) * len(records)
        assert not (await mirror.rig.flow_status(service)).pauses
