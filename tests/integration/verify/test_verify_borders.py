"""`twinlog verify` on fake clusters: what is wrong where a range, a log or a topic ends."""

from integration.fake_pair import kafka_pair as kafka_pair
from integration.source.source_rig import producer
from integration.verify.verify_rig import VerifyRig, differences, not_compared
from twinlog.batches import Codec, NewRecord
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import make_topics, unique_name


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


async def test_a_cluster_that_is_away_is_not_called_a_difference(mirror: VerifyRig) -> None:
    mirror.rig.source_servers = "127.0.0.1:1"
    for name, more in (("verify", ()), ("copy", ("--until", "now"))):
        exit_code, report = await mirror.command(*more, name=name)
        assert (exit_code, report["verdict"]) == (3, "INCOMPLETE"), name
        assert {each["reason"] for each in report["not_compared"]} == {"KAFKA_UNAVAILABLE"}
