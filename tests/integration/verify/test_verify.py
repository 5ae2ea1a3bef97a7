"""`twinlog verify` on fake clusters: mirrors made by hand, of which it is known what is wrong with them."""

import json
from functools import partial
from pathlib import Path

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.source.source_rig import open_rig
from integration.verify.verify_rig import VerifyRig, differences, not_compared
from twinlog.batches import Codec, NewRecord
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, make_topics, retry_admin, unique_name, write_batches


async def test_a_copy_in_other_batches_and_codecs_is_equal(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    """Every codec on both sides; aborted and committed transactions leave holes on the source."""
    topic = unique_name("orders")
    await mirror.topics(topic)
    await mirror.write_source(topic, [(0, codec, records) for codec in Codec])
    await mirror.write_source(topic, [(0, Codec.NONE, records)], transactional_id=f"{topic}-1", abort=True)
    await mirror.write_source(topic, [(0, Codec.ZSTD, records)], transactional_id=f"{topic}-2")
    await mirror.write_source(topic, [(0, Codec.LZ4, records[:3])])
    copied = [*records * 6, *records[:3]]
    await mirror.write_copy(
        topic,
        [
            (0, list(Codec)[number % 5], copied[begin : begin + 7])
            for number, begin in enumerate(range(0, len(copied), 7))
        ],
        transactional_id=f"{topic}-copy",
    )
    await mirror.store_position(topic, 7 * len(records) + 5)
    exit_code, report = await mirror.command("--topic", topic)
    assert (exit_code, report["verdict"]) == (0, "EQUAL")
    assert report["records"] == len(copied)
    assert report["differences"] == report["not_compared"] == []


async def test_each_damage_is_named_by_the_command(mirror: VerifyRig, records: list[NewRecord]) -> None:
    topic = unique_name("damaged")
    await mirror.topics(topic, partitions=2)
    plain = [record for record in records if record.key != b"large"]
    copied = [*plain]
    lost = copied.pop(40)
    copied.insert(30, NewRecord(b"nobody's", b"foreign", plain[0].timestamp_ms - 5))
    copied.insert(20, plain[12])
    at, value = plain[10].timestamp_ms, plain[10].value
    copied[10] = NewRecord(plain[10].key, value, at, (*plain[10].headers, (b"one more", b"")))
    await mirror.write_source(topic, [(0, Codec.GZIP, plain)])
    await mirror.write_copy(topic, [(0, Codec.GZIP, copied), (1, Codec.NONE, [lost])])
    await mirror.store_position(topic, len(plain))
    report_file, page = mirror.rig.directory / "report.json", mirror.rig.directory / "report.html"
    exit_code, report = await mirror.command(
        "--topic", topic, "--show", "--report", str(report_file), "--html", str(page)
    )
    assert (exit_code, report["verdict"]) == (1, "DIFFERENT")
    assert differences(report) == [
        ("CHANGED", 10, 10, 1),
        ("DUPLICATE", 12, 20, 1),
        ("FOREIGN", 30, 31, 1),
        ("MISSING", 40, 42, 1),
        ("FOREIGN", None, 0, 1),
    ]
    changed, *_, missing, moved = report["differences"]
    assert all(("written_by" in each) is (each["kind"] != "MISSING") for each in report["differences"])
    assert changed["changed"] == ["headers"]
    assert changed["target_record"]["headers"][-1] == ["one more", ""]
    assert missing["found_in"] == f"{mirror.rig.remote(topic)}-1@0"
    assert moved["found_in"] == f"{topic}-0@40"
    assert json.loads(report_file.read_text()) == report
    assert "DIFFERENT" in page.read_text()


async def test_a_mirror_that_something_else_made_is_judged_by_the_two_clusters_alone(
    kafka_pair: KafkaPair, tmp_path: Path, records: list[NewRecord]
) -> None:
    """It has none of our topics, and topics are called as on the source."""
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        mirror, whole, short = VerifyRig(rig=rig, a=kafka_pair.a, b=kafka_pair.b), *map(unique_name, "ws")
        rig.extra |= {
            "topics": f"{whole},{short}",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        }
        for topic, count in ((whole, len(records)), (short, 50)):
            await rig.create(topic)
            copy = NewTopic(name=topic, partition_count=1, replication_factor=1)
            await make_topics(rig.target, copy)
            await mirror.write_source(topic, [(0, Codec.ZSTD, records)])
            await write_batches(kafka_pair.b, topic, [(0, Codec.LZ4, records[:count])])
        exit_code, report = await mirror.command("--topic", whole)
        assert (exit_code, report["verdict"], report["records"]) == (0, "EQUAL", len(records)), report
        exit_code, report = await mirror.command("--topic", short, "--wait", "0")
        assert (exit_code, report["differences"]) == (3, []), "it may be on its way"
        assert not_compared(report) == [("source", "NOT_COPIED_YET", 50, len(records))]
        exit_code, report = await mirror.command("--complete")
        assert exit_code == 1
        assert differences(report) == [("MISSING", 50, None, len(records) - 50)]
        assert report["not_compared"] == []


async def test_timestamps_of_a_copy_that_has_its_brokers_own_are_not_compared(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    topic = unique_name("stamped")
    await mirror.topics(topic, message_timestamp_type="LogAppendTime")
    await mirror.write_source(topic, [(0, Codec.ZSTD, records)])
    await mirror.write_copy(topic, [(0, Codec.ZSTD, [*records[:30], *records[31:]])])
    await mirror.store_position(topic, len(records))
    report = await mirror.verify(topic)
    assert differences(report) == [("MISSING", 30, 30, 1)]
    assert report["partitions"][0]["timestamps_compared"] is False


async def test_wrong_use_is_exit_code_2_and_a_cluster_that_is_away_is_3(mirror: VerifyRig) -> None:
    exit_code, told = await mirror.command("--topic", "no-such-topic")
    assert exit_code == 2
    assert "no-such-topic" in told["error"]
    mirror.rig.target_servers = "127.0.0.1:1"
    report = await mirror.verify()
    assert report["verdict"] == "INCOMPLETE"
    assert report["not_compared"][0]["reason"] == "KAFKA_UNAVAILABLE"


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", ["translated", "preserved"])
async def test_a_topic_that_is_deleted_meanwhile_is_incomplete(
    mirror: VerifyRig, records: list[NewRecord], side: str, kind: str
) -> None:
    topic = unique_name(f"deleted-{side}")
    await mirror.topics(topic)
    if kind == "preserved":
        await mirror.promise_offsets(topic)
    for _ in range(4):
        await mirror.write_source(topic, [(0, Codec.NONE, records)])
        await mirror.write_copy(topic, [(0, Codec.NONE, records)])
    await mirror.store_position(topic, 4 * len(records))

    async def delete() -> None:
        if side == "source":
            await retry_admin(lambda: mirror.rig.source.delete_topics([topic]))
        else:
            await retry_admin(lambda: mirror.rig.target.delete_topics([mirror.rig.remote(topic)]))

    report = await mirror.verify(topic, meanwhile=delete, max_bytes_per_second=100_000)
    assert report["verdict"] == "INCOMPLETE", report
    assert {each["reason"] for each in report["not_compared"]} == {"TOPIC_UNKNOWN"}


async def test_what_is_on_the_target_may_be_deleted_on_the_source(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    whole, short, shorter = unique_name("safe"), unique_name("unsafe"), unique_name("unsafe")
    many = [NewRecord(b"k", b"%d" % number, records[0].timestamp_ms + number) for number in range(600)]
    for topic, written in ((whole, records), (short, records), (shorter, many)):
        await mirror.topics(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, written)])
        await mirror.write_copy(topic, [(0, Codec.LZ4, written)])
        await mirror.store_position(topic, len(written))
    exit_code, told = await mirror.command("--topic", whole, "--before", "40", name="safe-to-delete")
    assert (exit_code, told["safe"]) == (0, True), told
    assert [each["safe_until"] for each in told["partitions"]] == [40]
    for topic, deleted in ((short, 20), (shorter, 400)):
        before = {TopicPartition(mirror.rig.remote(topic), 0): deleted}
        await retry_admin(partial(mirror.rig.target.delete_records, before))
        exit_code, told = await mirror.command("--topic", topic, name="safe-to-delete")
        assert (exit_code, told["safe"]) == (1, False), told
        (found,) = told["partitions"]
        assert (found["source_begin"], found["safe_until"], found["reason"]) == (0, 0, "TARGET_RETENTION")
        assert (await mirror.verify(topic))["verdict"] == "EQUAL", "the copy is as it should be, all the same"
    uncommitted = unique_name("uncommitted")
    await mirror.topics(uncommitted)
    aborted = [(0, Codec.NONE, records[:5])]
    await mirror.write_source(uncommitted, aborted, transactional_id=uncommitted, abort=True)
    await mirror.write_source(uncommitted, [(0, Codec.NONE, records[5:6])])
    await mirror.write_copy(uncommitted, [(0, Codec.NONE, records[:6])])
    await mirror.store_position(uncommitted, 7)
    for isolation, expected in (("read_committed", 1), ("read_uncommitted", 0)):
        exit_code, _ = await mirror.command(
            "--topic", uncommitted, "--isolation", isolation, name="safe-to-delete"
        )
        assert exit_code == expected, isolation


async def test_who_wrote_a_foreign_record_is_told(mirror: VerifyRig, records: list[NewRecord]) -> None:
    topic = unique_name("written")
    await mirror.topics(topic)
    await mirror.write_source(topic, [(0, Codec.NONE, records[:3])])
    await mirror.write_copy(topic, [(0, Codec.NONE, records[:3])])
    await mirror.store_position(topic, 3)
    stranger = NewRecord(b"who", b"was this", records[0].timestamp_ms)
    await mirror.write_copy(topic, [(0, Codec.NONE, [stranger])], transactional_id=f"{topic}-stranger")
    report = await mirror.verify(topic)
    assert differences(report) == [("FOREIGN", None, 3, 1)]
    writer = report["differences"][0]["written_by"]
    assert (writer["producer_id"] >= 0, writer["transactional"]) == (True, True)
    exit_code, told = await mirror.command("--topic", topic, "--report", "/dev/full")
    assert (exit_code, told["verdict"]) == (2, "DIFFERENT"), "a full disk does not take the result"
