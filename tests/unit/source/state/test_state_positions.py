"""Where an imported copy continues: exactly where it was, at a position that is derived, or not at all."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from twinlog.batches import EndMarker
from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.model import Record, TopicPartition
from twinlog.policy.internal_topics import election_group
from twinlog.testing.fakes.cluster import Call
from twinlog_source.log.facts import (
    CopyFact,
    EpochStart,
    LeaderEpochsFact,
    ZeroFact,
)
from twinlog_source.state.judgement import RestoreOutcome
from twinlog_source.state.state_file import ExportedFlow
from unit.source.state.state_rig import COPY, FLOW, POSITIONS, P, StateRig


async def test_a_position_is_derived_where_more_was_copied_since(copied: StateRig) -> None:
    await copied.state(LeaderEpochsFact(partition=P, epochs=(EpochStart(1, 0),)))
    state = await copied.export()
    await copied.write([b"later 1", b"later 2"])
    await copied.write([b"not copied yet"], copy=False)
    copied.lose_the_topics()
    assert (await copied.verdict(state)).outcome is RestoreOutcome.DERIVED
    await copied.restore(state)
    log = await copied.log()
    assert log.known() == {P: 7}
    assert log.control.leader_epochs == {}, "they belong to the position that was exported"


async def test_aborted_records_of_both_sides_do_not_matter_to_a_derived_position(copied: StateRig) -> None:
    state = await copied.export()
    aborted = [Record(offset=0, timestamp_ms=1_000, key=None, value=b"no")]
    copied.source.append_transaction(P, aborted, EndMarker.ABORT)
    copied.target.append_transaction(COPY, [*aborted, *aborted], EndMarker.ABORT)
    await copied.write([b"later"])
    copied.lose_the_topics()
    verdict = await copied.verdict(state)
    assert (verdict.outcome, verdict.position) == (RestoreOutcome.DERIVED, 8)


async def test_a_copy_that_differs_is_refused_and_nothing_is_written(copied: StateRig) -> None:
    state = await copied.export()
    await copied.write([b"on the source"], copy=False)
    await copied.write([b"on the copy"], source=False)
    copied.lose_the_topics()
    verdict = await copied.verdict(state)
    assert (verdict.outcome, verdict.reason) == (RestoreOutcome.REFUSED, "POSITION_NOT_DERIVABLE")
    assert POSITIONS not in copied.target.topics


async def test_what_is_copied_twice_is_copied_twice_only_when_it_is_said(copied: StateRig) -> None:
    state = await copied.export()
    await copied.write([b"on the source"], copy=False)
    await copied.write([b"on the copy"], source=False)
    copied.lose_the_topics()
    verdict = await copied.verdict(state, allow_repeats=True)
    assert (verdict.outcome, verdict.position) == (RestoreOutcome.REPEATED, 5)
    assert "copied again" in verdict.message


def without_leaders(rig: StateRig) -> None:
    """No partition of the source has a leader."""

    def refuse(call: Call) -> None:
        for partition in call.result:
            call.result[partition] = from_reason(UNAVAILABLE, "list offsets", alias="A")

    rig.source.intercept("list_offsets", refuse, after=True)


@pytest.mark.parametrize("allow_repeats", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_source_log_that_does_not_answer_is_not_taken_for_an_empty_one(
    copied: StateRig, is_known: bool, allow_repeats: bool
) -> None:
    """Otherwise its records would be copied twice."""
    state = await copied.export()
    if is_known:
        await copied.write([b"later"])
    else:
        await copied_topic(copied, "new")
    copied.lose_the_topics()
    without_leaders(copied)
    with pytest.raises(KafkaError) as unanswered:
        await copied.plan(state, allow_repeats=allow_repeats)
    assert unanswered.value.reason == UNAVAILABLE.name


async def test_a_topic_that_cannot_be_described_is_not_left_out_of_the_plan(copied: StateRig) -> None:
    """It may have been copied since the export: then it would be copied twice."""
    state = await copied.export()
    await copied_topic(copied, "new")
    copied.lose_the_topics()

    def refuse(call: Call) -> None:
        if "new" in call.result:
            call.result["new"] = from_reason(UNAVAILABLE, "describe topics", alias="A")

    copied.source.intercept("describe_topics", refuse, after=True)
    with pytest.raises(KafkaError) as unanswered:
        await copied.plan(state)
    assert unanswered.value.reason == UNAVAILABLE.name


async def test_a_copy_that_may_not_be_read_is_not_taken_for_a_deleted_one(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()

    def refuse(call: Call) -> None:
        if COPY in call.result:
            call.result[COPY] = from_code(ErrorCode.topic_authorization_failed, "list offsets", alias="B")

    copied.target.intercept("list_offsets", refuse, after=True)
    with pytest.raises(KafkaError) as refused:
        await copied.plan(state)
    assert refused.value.reason == "TOPIC_UNAUTHORIZED"


async def test_a_position_that_needs_no_comparison_does_not_wait_for_the_source(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    without_leaders(copied)
    assert (await copied.verdict(state)).outcome is RestoreOutcome.AS_EXPORTED


async def test_a_copy_with_an_open_transaction_is_refused(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    record = Record(offset=0, timestamp_ms=1, key=None, value=b"open")
    copied.target.append_transaction(COPY, [record], None)
    assert (await copied.verdict(state)).reason == "COPY_UNSTABLE"


async def copied_topic(rig: StateRig, name: str) -> None:
    """A topic with one record, which is copied."""
    rig.source.add_topic(name)
    rig.target.add_topic(f"A.{name}")
    for cluster, topic in ((rig.source, name), (rig.target, f"A.{name}")):
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=None, value=b"x", timestamp_ms=1)


async def test_a_topic_that_was_copied_since_the_export_is_not_copied_twice(copied: StateRig) -> None:
    state = await copied.export()
    await copied_topic(copied, "new")
    copied.lose_the_topics()
    await copied.restore(state)
    assert (await copied.log()).known() == {P: 5, TopicPartition("new", 0): 1}


async def other_topic(rig: StateRig) -> None:
    """A topic of the target that has the name of a copy, and is none."""
    rig.source.add_topic("other")
    rig.target.add_topic("A.other")
    for cluster, topic, value in ((rig.source, "other", b"here"), (rig.target, "A.other", b"there")):
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=None, value=value, timestamp_ms=1)


async def test_topics_that_no_rule_selects_stand_in_no_ones_way() -> None:
    rig = StateRig(more="A->B.topics = t\n")
    await rig.write([b"x"])
    await rig.position(1)
    await rig.owned()
    state = await rig.export()
    await other_topic(rig)
    rig.lose_the_topics()
    assert (await rig.plan(state)).verdicts.keys() == {P}


async def test_topics_that_changed_rules_may_select_are_looked_at() -> None:
    rig = StateRig(more="A->B.topics = t\n")
    await rig.write([b"x"])
    await rig.position(1)
    await rig.owned()
    name = "mm2-configsync.A.internal"
    rig.target.add_topic(name, 1, {"cleanup.policy": "compact"})
    async with rig.target.writer() as writer:
        await writer.append(
            TopicPartition(name, 0), key=b'["rules"]', value=b'{"values":{"topics":"t, other"}}'
        )
    state = await rig.export()
    await other_topic(rig)
    rig.lose_the_topics()
    (refused,) = (await rig.plan(state)).refused
    assert (refused[0].topic, refused[1].reason) == ("other", "POSITION_NOT_DERIVABLE")
    (repeated,) = [
        verdict
        for line, verdict in (await rig.plan(state, allow_repeats=True)).verdicts.values()
        if line.topic == "other"
    ]
    assert (repeated.outcome, repeated.position) == (RestoreOutcome.REPEATED, 0)


async def test_topics_that_changed_rules_select_are_looked_at_where_copies_keep_their_names() -> None:
    """A name of the target does not tell that it is a copy: only the rules do."""
    rig = StateRig(
        more="A->B.topics = t\n"
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    )
    name = "mm2-configsync.A.internal"
    rules = {"version": 1, "revision": 1, "updated_at_ms": 1, "values": {"topics": "t, other"}}
    rig.target.add_topic(name, 1, {"cleanup.policy": "compact"})
    async with rig.target.writer() as writer:
        await writer.append(TopicPartition(name, 0), key=b'["rules"]', value=json.dumps(rules).encode())
    await rig.owned()
    state = await rig.export()
    rig.lose_the_topics()
    for topic in ("other", "own"):
        for cluster, value in ((rig.source, b"here"), (rig.target, b"there")):
            cluster.add_topic(topic)
            async with cluster.writer() as writer:
                await writer.append(TopicPartition(topic, 0), key=None, value=value, timestamp_ms=1)
    assert [line.topic for line, _ in (await rig.plan(state)).refused] == ["other"]


async def test_a_copy_that_is_gone_is_left_out_and_begins_again(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.add_topic("A.t")
    assert (await copied.verdict(state)).outcome is RestoreOutcome.LEFT_OUT
    await copied.restore(state)
    log = await copied.log()
    assert log.known() == {}
    assert log.control.topics == {}


async def test_a_copy_that_is_gone_is_refused_where_a_new_one_would_skip_records() -> None:
    rig = StateRig(more="auto.offset.reset = latest\nA->B.consumer.auto.offset.reset = latest\n")
    await rig.write([b"x"])
    await rig.position(1)
    await rig.owned()
    state = await rig.export()
    rig.lose_the_topics()
    rig.target.add_topic("A.t")
    verdict = await rig.verdict(state)
    assert (verdict.outcome, verdict.reason) == (RestoreOutcome.REFUSED, "COPY_MISSING")


async def test_of_a_running_flow_the_ends_of_copies_are_not_taken_for_its_positions(copied: StateRig) -> None:
    copied.target.set_group(election_group("source", FLOW), state="STABLE", member_count=1)
    state = await copied.export()
    copied.target.set_group(election_group("source", FLOW), state="EMPTY", member_count=0)
    assert [line.target_end for line in state.copies] == [None]
    copied.lose_the_topics()
    assert (await copied.verdict(state)).reason == "POSITION_NOT_DERIVABLE"


async def test_a_position_that_mirror_maker_stored_is_not_exact(copied: StateRig) -> None:
    copied.clock.advance(120)
    await copied.position(5)
    assert [line.target_end for line in (await copied.export()).copies] == [None]


async def test_a_preserved_copy_is_compared_offset_by_offset(copied: StateRig) -> None:
    await copied.state(
        CopyFact(
            partition=P,
            preserved=True,
            since=0,
            reason="",
            target_topic_id=copied.target.topic_id("A.t"),
        )
    )
    state = await copied.export()
    await copied.write([b"later"])
    copied.lose_the_topics()
    assert (await copied.verdict(state)).outcome is RestoreOutcome.DERIVED
    await copied.write([b"translated"], copy=False)
    aborted = [Record(offset=0, timestamp_ms=1_000, key=None, value=b"no")]
    copied.target.append_transaction(COPY, aborted, EndMarker.ABORT)
    await copied.write([b"translated"], source=False)
    assert (await copied.verdict(state, allow_repeats=True)).outcome is RestoreOutcome.REFUSED


async def exported_while_it_runs(rig: StateRig) -> ExportedFlow:
    rig.target.set_group(election_group("source", FLOW), state="STABLE", member_count=1)
    state = await rig.export()
    rig.target.set_group(election_group("source", FLOW), state="EMPTY", member_count=0)
    rig.lose_the_topics()
    return state


async def running_rig(*, source: Sequence[bytes], copy: Sequence[bytes], position: int) -> StateRig:
    rig = StateRig()
    await rig.write(source, copy=False)
    await rig.write(copy, source=False)
    await rig.owned()
    await (rig.position(position) if position else rig.state(ZeroFact(partition=P)))
    return rig


@pytest.mark.parametrize("copy", [[], [b"of the topic before"]])
@pytest.mark.parametrize("position", [0, 3])
async def test_a_partition_that_the_source_no_longer_has_is_restored_as_it_was(
    copy: list[bytes], position: int
) -> None:
    """A topic that was created again with fewer partitions, or deleted: nothing more is copied of it."""
    rig = await running_rig(source=[], copy=copy, position=position)
    state = await exported_while_it_runs(rig)
    await rig.source.delete_topics(["t"])
    verdict = await rig.verdict(state)
    assert (verdict.outcome, verdict.position) == (RestoreOutcome.AS_EXPORTED, position)
    await rig.restore(state)
    assert (await rig.log()).known() == {P: position}


@pytest.mark.parametrize("later", [0, 1])
async def test_an_empty_copy_of_a_running_flow_is_restored(later: int) -> None:
    """It began behind what the source had, and nothing had come since."""
    rig = await running_rig(source=[b"1", b"2"], copy=[], position=2)
    state = await exported_while_it_runs(rig)
    await rig.write([b"later"] * later)
    verdict = await rig.verdict(state)
    assert (verdict.outcome, verdict.position) == (RestoreOutcome.DERIVED, 2 + later)


@pytest.mark.parametrize(("position", "reason"), [(0, ""), (2, "POSITION_NOT_DERIVABLE")])
async def test_a_file_that_does_not_say_that_a_copy_was_empty(position: int, reason: str) -> None:
    """As earlier releases wrote it. With a position above 0 the copy may have lost what it had."""
    rig = await running_rig(source=[b"1", b"2"], copy=[], position=position)
    state = await exported_while_it_runs(rig)
    lines = tuple(replace(line, anchor_position=None, anchor_end=None) for line in state.copies)
    assert (await rig.verdict(replace(state, copies=lines))).reason == reason
