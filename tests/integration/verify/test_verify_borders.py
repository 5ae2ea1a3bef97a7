"""`twinlog verify` on fake clusters: what is wrong where a range, a log or a topic ends."""

import pytest

from integration.fake_pair import kafka_pair as kafka_pair
from integration.source.source_rig import producer
from integration.verify.verify_rig import VerifyRig, differences, not_compared
from twinlog.batches import Codec, NewRecord
from twinlog.kafka.ports import NewTopic
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import make_topics, unique_name
from twinlog_source.log.gaps import Gap, gap_record


@pytest.mark.parametrize("own_times", [False, True])
@pytest.mark.parametrize("damage", ["dropped", "changed", "doubled"])
async def test_one_wrong_record_is_found_where_two_ranges_meet(
    mirror: VerifyRig, records: list[NewRecord], damage: str, own_times: bool
) -> None:
    topic = unique_name("meeting")
    await mirror.topics(topic, message_timestamp_type="LogAppendTime" if own_times else "CreateTime")
    await mirror.write_source(topic, [(0, Codec.ZSTD, records[:25]), (0, Codec.LZ4, records[25:])])
    copied = [*records]
    match damage:
        case "dropped":
            del copied[30]
        case "changed":
            copied[30] = copied[30]._replace(headers=(*copied[30].headers, (b"more", b"1")))
        case "doubled":
            copied.insert(31, copied[30])
    await mirror.write_copy(topic, [(0, Codec.NONE, copied)])
    await mirror.store_position(topic, len(records))
    kind = {"dropped": "MISSING", "changed": "CHANGED", "doubled": "DUPLICATE"}[damage]
    exit_code, report = await mirror.command("--topic", topic, "--to", "31")
    assert exit_code == 1, report
    assert [(each["kind"], each["source_offset"]) for each in report["differences"]] == [(kind, 30)]
    assert report["records"] == (31 if damage == "doubled" else 30)
    exit_code, report = await mirror.command("--topic", topic, "--to", "30")
    assert (exit_code, report["records"]) == (0, 30), report
    exit_code, report = await mirror.command("--topic", topic, "--from", "30")
    if damage == "doubled":
        # One of the two is before the range, as far as anybody can tell.
        assert exit_code in (0, 1), report
    else:
        assert exit_code == 1, report
        found = [(each["kind"], each["source_offset"]) for each in report["differences"]]
        # Without a time nothing tells the changed one from the record before.
        assert found == [(kind, 30)] or (own_times and found == [("MISSING", 30)])
    exit_code, report = await mirror.command("--topic", topic, "--from", "31")
    assert exit_code == 0, report


async def test_what_only_the_copy_has_a_partition_for_is_foreign(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    topic, empty = unique_name("wide"), unique_name("wide-empty")
    for name in (topic, empty):
        await mirror.rig.create(name, 1)
        await make_topics(
            mirror.rig.target, NewTopic(name=mirror.rig.remote(name), partition_count=3, replication_factor=1)
        )
        await mirror.write_source(name, [(0, Codec.NONE, records)])
    await mirror.write_copy(
        topic, [(0, Codec.NONE, [*records[:4], *records[5:]]), (2, Codec.NONE, [records[4]])]
    )
    await mirror.write_copy(empty, [(0, Codec.NONE, records)])
    for name in (topic, empty):
        await mirror.store_position(name, len(records))
    report = await mirror.verify(topic)
    assert [(each["kind"], each["partition"], each.get("found_in")) for each in report["differences"]] == [
        ("MISSING", 0, f"{mirror.rig.remote(topic)}-2@0"),
        ("FOREIGN", 2, f"{topic}-0@4"),
    ]
    report = await mirror.verify(empty)
    assert (report["verdict"], len(report["partitions"])) == ("EQUAL", 1)


async def test_nothing_is_equal_where_nothing_is_compared(mirror: VerifyRig) -> None:
    topic = unique_name("narrow")
    await mirror.topics(topic, partitions=2)
    exit_code, told = await mirror.command("--topic", topic, "--partition", "2")
    assert exit_code == 2, told
    assert "--partition 2" in told["error"]
    mirror.rig.extra["topics"] = unique_name("nobody-has-this")
    exit_code, report = await mirror.command()
    assert exit_code == 3, report
    assert [each["reason"] for each in report["not_compared"]] == ["NO_TOPICS_SELECTED"]


async def test_what_an_open_transaction_of_somebody_hides_is_not_missing(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    """The position was stored behind it."""
    topic = unique_name("hidden")
    await mirror.topics(topic)
    await mirror.write_source(topic, [(0, Codec.NONE, records)])
    await mirror.write_copy(topic, [(0, Codec.NONE, records[:20])])
    async with producer(mirror.b.bootstrap_servers, None, 16_384, f"{topic}-stranger") as stranger:
        await stranger.begin_transaction()
        await stranger.send_and_wait(mirror.rig.remote(topic), value=b"not decided yet", partition=0)
        await mirror.write_copy(topic, [(0, Codec.NONE, records[20:])])
        await mirror.store_position(topic, len(records))
        report = await mirror.verify(topic)
        await stranger.abort_transaction()
    assert report["verdict"] == "INCOMPLETE", report
    assert differences(report) == []
    assert "TARGET_OPEN_TRANSACTION" in {reason for _, reason, _, _ in not_compared(report)}
    assert {each["detail"] for each in report["not_compared"]} == {""}, "a position is stored"
    report = await mirror.verify(topic)
    assert report["verdict"] == "EQUAL", "once it has ended"


async def test_a_gap_that_was_copied_again_excuses_nothing(
    mirror: VerifyRig, records: list[NewRecord]
) -> None:
    """As after `twinlog repair` made a new copy: the ledger tells of the one before."""
    topic = unique_name("again")
    await mirror.topics(topic)
    await mirror.write_source(topic, [(0, Codec.SNAPPY, records)])
    await mirror.write_copy(topic, [(0, Codec.SNAPPY, [*records[:40], *records[41:]])])
    await mirror.store_position(topic, len(records))
    gap = Gap(
        partition=TopicPartition(topic, 0),
        from_offset=0,
        to_offset=len(records),
        reason="TARGET_RECREATED",
        found_at_ms=1,
        acknowledged_by="somebody",
        acknowledged_at_ms=2,
    )
    await mirror.append(*gap_record(Flow(mirror.rig.a, mirror.rig.b), gap))
    report = await mirror.verify(topic)
    assert differences(report) == [("MISSING", 40, 40, 1)]


async def test_a_cluster_that_is_away_is_not_called_a_difference(mirror: VerifyRig) -> None:
    mirror.rig.source_servers = "127.0.0.1:1"
    for name, more in (("verify", ()), ("copy", ("--until", "now"))):
        exit_code, report = await mirror.command(*more, name=name)
        assert (exit_code, report["verdict"]) == (3, "INCOMPLETE"), name
        assert {each["reason"] for each in report["not_compared"]} == {"KAFKA_UNAVAILABLE"}
