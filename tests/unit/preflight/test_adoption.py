"""Twinlog takes a flow over from MirrorMaker 2 only when it does not run, and only where it stopped."""

from dataclasses import replace

import pytest

from twinlog.model import ClusterAlias, Record, TopicPartition
from twinlog.preflight.adoption import (
    Adoption,
    AdoptionFacts,
    Log,
    Signs,
    StartsAt,
    StoredPositions,
    judge_adoption,
)
from twinlog.preflight.gather_adoption import PositionsRead
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from unit.config.config_files import load_more

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)
SOURCE = "MirrorSourceConnector"


def facts(*lines: str, **more: object) -> AdoptionFacts:
    config = next(each for each in load_more(*lines).flows if each.enabled)
    known: dict[str, object] = {
        "config": config,
        "connect_group": "A-mm2",
        "before": Signs(),
        "after": Signs(),
        "positions": StoredPositions(
            topic="mm2-offsets.A.internal", exists=True, by_connector={SOURCE: {P: 42, Q: 10}}
        ),
        "source_logs": {P: Log(start=0, end=50), Q: Log(start=0, end=10)},
        "target_topics": frozenset({"A.orders"}),
        "remote": {"orders": "A.orders"},
        **more,
    }
    return AdoptionFacts(**known)  # type: ignore[arg-type]


def of(adoption: Adoption, partition: TopicPartition) -> tuple[StartsAt, int | None, int | None]:
    [found] = [each for each in adoption.continuations if each.partition == partition]
    return found.start, found.position, found.lag


def test_each_partition_continues_where_mirror_maker_2_stopped() -> None:
    adoption = judge_adoption(facts())

    assert adoption.refusals == ()
    assert of(adoption, P) == (StartsAt.STORED, 42, 8)
    assert of(adoption, Q) == (StartsAt.STORED, 10, 0)
    assert "whenever Twinlog is stopped: it reads mm2-offsets.A.internal" in adoption.changes[-1]


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (Signs(connect_members=2), Signs(connect_members=2), "has 2 members"),
        (Signs(newest_heartbeat_ms=1), Signs(newest_heartbeat_ms=2), "writes heartbeats"),
        (Signs(), Signs(newest_heartbeat_ms=2), "writes heartbeats"),
        (Signs(positions_written=1), Signs(positions_written=2), "writes positions"),
        (Signs(), Signs(twinlog_members=1), "Twinlog already runs A->B"),
    ],
)
def test_it_is_refused_while_somebody_works_at_the_flow(before: Signs, after: Signs, word: str) -> None:
    [refusal] = judge_adoption(facts(before=before, after=after)).refusals
    assert word in refusal


def test_what_mirror_maker_2_wrote_long_ago_is_no_sign_of_life() -> None:
    same = Signs(newest_heartbeat_ms=1, positions_written=7)
    assert judge_adoption(facts(before=same, after=same)).refusals == ()


def test_positions_under_another_name_are_not_passed_over() -> None:
    stored = StoredPositions(
        topic="connect-offsets", exists=True, by_connector={"my-mirror": {P: 42}}, twinlog_was_here=False
    )

    [refusal] = judge_adoption(facts(positions=stored)).refusals
    assert "write A->B.name=my-mirror" in refusal

    found = facts("A->B.name = my-mirror", positions=stored)
    assert judge_adoption(found).refusals == ()
    assert of(judge_adoption(found), P) == (StartsAt.STORED, 42, 8)


def test_copies_without_positions_are_not_copied_again() -> None:
    nothing = StoredPositions(topic="mm2-offsets.A.internal")

    [refusal] = judge_adoption(facts(positions=nothing)).refusals
    assert "B has no topic mm2-offsets.A.internal" in refusal
    assert "A->B.offsets.storage.topic" in refusal

    [refusal] = judge_adoption(facts(positions=replace(nothing, exists=True))).refusals
    assert "MirrorMaker 2 has stored no position" in refusal
    assert "let it run for longer than its offset.flush.interval.ms (60 s)" in refusal
    assert "A->B.offsets.storage.topic" in refusal

    fresh = facts(positions=nothing, target_topics=frozenset())
    assert judge_adoption(fresh).refusals == ()
    assert of(judge_adoption(fresh), P) == (StartsAt.EARLIEST, 0, 50)
    assert not [
        each for each in judge_adoption(fresh).changes if "Connect group" in each or "continue" in each
    ]
    assert "was found to take over" in judge_adoption(fresh).changes[-1]


def test_what_the_source_has_lost_meanwhile_is_told() -> None:
    adoption = judge_adoption(facts(source_logs={P: Log(start=45, end=50), Q: Log(start=0, end=3)}))

    [gap, truncated] = adoption.continuations
    assert (gap.lost, gap.lag) == (3, 5)
    assert "a gap" in gap.remark
    assert "ends before this position" in truncated.remark


def test_partitions_that_the_file_does_not_select_are_named() -> None:
    adoption = judge_adoption(facts(source_logs={P: Log(start=0, end=50)}))

    assert adoption.left_behind == (Q,)


def test_a_damaged_position_is_no_beginning() -> None:
    damaged = replace(facts().positions, by_connector={SOURCE: {Q: 10}}, unreadable={P: "no JSON"})

    assert of(judge_adoption(facts(positions=damaged)), P) == (StartsAt.UNREADABLE, None, None)


def record(connector: str, cluster: str, partition: TopicPartition, value: bytes | None) -> Record:
    key = source_offset_key(ClusterAlias(cluster), partition, connector=connector)
    return Record(offset=0, timestamp_ms=5, key=key, value=value)


def test_positions_of_every_connector_are_read_and_of_other_sources_are_not() -> None:
    read = PositionsRead(source_alias="A", connector_name=SOURCE)
    for each in (
        record(SOURCE, "A", P, encode_source_offset(7)),
        record(SOURCE, "A", P, encode_source_offset(9)),
        record(SOURCE, "C", Q, encode_source_offset(1)),
        record("other", "A", Q, encode_source_offset(3)),
        record(SOURCE, "A", Q, b"broken"),
        Record(offset=1, timestamp_ms=5, key=b"no key of Connect", value=b"x"),
    ):
        read.take(each)

    stored = read.stored("t", exists=True)
    assert stored.by_connector == {SOURCE: {P: 9}, "other": {Q: 3}}
    assert list(stored.unreadable) == [Q]
    assert read.written == 2
    read.take(record(SOURCE, "A", P, None))
    assert SOURCE not in read.stored("t", exists=True).by_connector
