"""Our own records beside MM2's positions: facts and gaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import Flow, TopicPartition
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import control_key, fact_record, parse_control, partition_key
from twinlog_source.log.facts import (
    MOST_SLOTS,
    CheckedEnd,
    ClaimFact,
    CopyFact,
    EpochStart,
    Fact,
    LeaderEpochsFact,
    OwnerFact,
    PauseFact,
    ProducerFact,
    ProofFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    TransformsFact,
    TransformStart,
    WriterFact,
    ZeroFact,
)
from twinlog_source.log.gaps import Gap, gap_key, gap_record, parse_gap, parse_gap_identity

FLOW = Flow("A", "B")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
NUMBERS = st.integers(0, 2**53)
PARTITIONS = st.builds(TopicPartition, NAMES, NUMBERS)
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(
        OwnerFact,
        instance=NAMES,
        slots=st.integers(0, MOST_SLOTS),
        renewed_at_ms=NUMBERS,
        names_producers=st.booleans(),
        left_at=st.lists(NUMBERS, max_size=3).map(tuple),
        left_at_rest=st.booleans(),
    ),
    st.builds(
        TopicFact,
        topic=NAMES,
        topic_id=NAMES,
        known_partitions=NUMBERS,
        target_topic_id=NAMES,
        former_ids=st.lists(NAMES, max_size=3).map(tuple),
    ),
    st.builds(PauseFact, topic=NAMES, partition=st.one_of(st.none(), NUMBERS), by=NAMES, at_ms=NUMBERS),
    st.builds(ThrottleFact, topic=st.one_of(st.none(), NAMES), bytes_per_second=NUMBERS),
    st.builds(ZeroFact, partition=PARTITIONS),
    st.builds(
        TransformsFact,
        partition=PARTITIONS,
        target_topic_id=NAMES,
        starts=st.lists(st.builds(TransformStart, NAMES, NUMBERS)).map(tuple),
    ),
    st.builds(
        LeaderEpochsFact,
        partition=PARTITIONS,
        epochs=st.lists(st.builds(EpochStart, NUMBERS, NUMBERS), max_size=3).map(tuple),
    ),
    st.builds(
        TargetFact,
        partition=PARTITIONS,
        topic_id=NAMES,
        end_offset=NUMBERS,
        position=NUMBERS,
        held_from=st.none() | NUMBERS,
        noted_at_ms=st.none() | NUMBERS,
        checked=st.none() | st.builds(CheckedEnd, NUMBERS, NUMBERS, NUMBERS),
    ),
    st.builds(
        CopyFact,
        partition=PARTITIONS,
        preserved=st.booleans(),
        since=NUMBERS,
        common_until=NUMBERS,
        reason=NAMES,
        target_topic_id=NAMES,
        skip_from=NUMBERS,
        skip_to=NUMBERS,
    ),
    st.builds(WriterFact, producer_id=NUMBERS, producer_epoch=NUMBERS),
    st.builds(
        ProducerFact,
        producer_id=NUMBERS,
        name=st.just("") | NAMES,
        cluster_id=NAMES,
        source_cluster_id=NAMES,
        at_ms=NUMBERS,
    ),
    st.builds(
        ProofFact,
        partition=PARTITIONS,
        verdict=NAMES,
        proven_until=NUMBERS,
        proven_at_ms=NUMBERS,
        checked_at_ms=NUMBERS,
        differences=st.dictionaries(NAMES, NUMBERS, max_size=3),
        reason=NAMES,
        ranges=NAMES,
    ),
)


@pytest.mark.parametrize("slots", [MOST_SLOTS + 1, 1_000_000_000, (1 << 63) - 1])
def test_a_forged_owner_makes_nobody_fence_more_ids_than_there_can_be(slots: int) -> None:
    forged = fact_record("A", OwnerFact(instance="x", slots=slots, renewed_at_ms=0))
    found = parse_control("A", *forged)
    assert found is not None
    assert found.fact == OwnerFact(instance="x", slots=MOST_SLOTS, renewed_at_ms=0)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**400])
def test_a_number_that_no_process_writes_makes_no_fact(number: int) -> None:
    for fact in (
        OwnerFact(instance="x", slots=1, renewed_at_ms=number),
        ClaimFact(instance="x", at_ms=number),
        LeaderEpochsFact(partition=TopicPartition("t", 0), epochs=(EpochStart(1, number),)),
        PauseFact(topic="t", partition=None, by="x", at_ms=number),
    ):
        assert parse_control("A", *fact_record("A", fact)) is None


@given(FACTS)
def test_a_fact_is_read_as_it_was_written(fact: Fact) -> None:
    key, value = fact_record("A", fact)
    found = parse_control("A", key, value)
    assert found is not None
    assert found.fact == fact
    assert parse_control("other", key, value) is None


@given(st.lists(FACTS))
def test_the_state_holds_the_newest_of_each_fact(facts: list[Fact]) -> None:
    state = ControlState()
    for fact in facts:
        record = parse_control("A", *fact_record("A", fact))
        assert record is not None
        state.apply(record)
    throttles = {fact.topic: fact for fact in facts if isinstance(fact, ThrottleFact)}
    assert state.throttles == throttles
    assert state.zeros.keys() == {fact.partition for fact in facts if isinstance(fact, ZeroFact)}
    assert state.leader_epochs == {
        fact.partition: fact.epochs for fact in facts if isinstance(fact, LeaderEpochsFact)
    }
    assert state.targets == {fact.partition: fact for fact in facts if isinstance(fact, TargetFact)}
    assert state.proofs == {fact.partition: fact for fact in facts if isinstance(fact, ProofFact)}
    assert state.copies == {fact.partition: fact for fact in facts if isinstance(fact, CopyFact)}
    assert state.writer == next((f for f in reversed(facts) if isinstance(f, WriterFact)), None)


def test_a_tombstone_takes_a_pause_back() -> None:
    state = ControlState()
    for value in (fact_record("A", PauseFact(topic="t", partition=None, by="me", at_ms=1))[1], None):
        record = parse_control("A", control_key("A", "pause", "t"), value)
        assert record is not None
        state.apply(record)
    assert not state.pauses


@pytest.mark.parametrize("kind", ["zero", "epochs", "target", "copy", "proof"])
def test_a_tombstone_takes_a_fact_of_a_partition_back(kind: str) -> None:
    state, partition = ControlState(), TopicPartition("t", 3)
    for fact in (
        ZeroFact(partition=partition),
        LeaderEpochsFact(partition=partition, epochs=(EpochStart(1, 2),)),
        TargetFact(partition=partition, topic_id="x", end_offset=1, position=1),
        CopyFact(partition=partition, preserved=True, since=0, reason="", target_topic_id="x", skip_to=5),
        ProofFact(
            partition=partition, verdict="EQUAL", proven_until=7, proven_at_ms=1, checked_at_ms=2, ranges="{}"
        ),
    ):
        key, value = fact_record("A", fact)
        for content in (value, None) if key == partition_key("A", kind, partition) else (value,):
            record = parse_control("A", key, content)
            assert record is not None
            state.apply(record)
    standing = {
        "zero": state.zeros,
        "epochs": state.leader_epochs,
        "target": state.targets,
        "copy": state.copies,
        "proof": state.proofs,
    }
    assert not standing.pop(kind)
    assert all(standing.values())


@pytest.mark.parametrize("key", [None, b"", b"[]", b"{}", source_offset_key("A", TopicPartition("t", 0))])
def test_other_records_are_no_facts(key: bytes | None) -> None:
    assert parse_control("A", key, b"{}") is None
    assert parse_gap("A", key, b"{}") is None


@given(NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none() | NUMBERS)
def test_a_gap_is_read_as_it_was_written(
    topic: str, partition: int, first: int, end: int, at: int, lost: int | None
) -> None:
    gap = Gap(
        partition=TopicPartition(topic, partition),
        from_offset=first,
        to_offset=end,
        reason="RETENTION",
        found_at_ms=at,
        lost_of_joined=lost,
    )
    assert parse_gap("A", *gap_record(FLOW, gap)) == gap
    assert parse_gap_identity("A", gap_key(FLOW, gap.identity)) == gap.identity
