"""Export and import of a flow's state: a copy is continued exactly, or refused with a reason, never silently
from somewhere else."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import pytest

from twinlog.config import load
from twinlog.errors import ConfigError, StateError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import Flow, Record, TopicPartition
from twinlog.policy.names import lease_group
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import FakeCluster, Transaction
from twinlog.testing.fakes.cluster_hooks import Call
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.config import source_flows
from twinlog_source.log.fact_records import KINDS, control_key, fact_record, kind_of
from twinlog_source.log.facts import (
    ClaimFact,
    CopyFact,
    EpochStart,
    Fact,
    LeaderEpochsFact,
    OwnerFact,
    PauseFact,
    ProofFact,
    RestoreFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    WriterFact,
    ZeroFact,
)
from twinlog_source.log.positions import PositionsLog
from twinlog_source.state.clusters import FlowClusters
from twinlog_source.state.export import StateExport
from twinlog_source.state.judgement import Outcome, Verdict
from twinlog_source.state.restore import ImportPlan, StateImport
from twinlog_source.state.state_file import FlowState, lines, parse
from unit.source.flow_rig import FILE, OneFile

POSITIONS = "mm2-offsets.A.internal"
P, COPY = TopicPartition("t", 0), TopicPartition("A.t", 0)
FLOW = Flow("A", "B")


ONE_OF_EACH: tuple[Fact, ...] = (
    ClaimFact(instance="one", at_ms=1),
    OwnerFact(instance="one", slots=1, renewed_at_ms=1),
    TopicFact(topic="t", topic_id="id", known_partitions=1),
    PauseFact(topic="t", partition=None, by="root", at_ms=1),
    ThrottleFact(topic="t", bytes_per_second=1, by="root", at_ms=1),
    ZeroFact(partition=P),
    LeaderEpochsFact(partition=P, epochs=()),
    TargetFact(partition=P, topic_id="id", end_offset=1, position=1),
    CopyFact(partition=P, preserved=True, since=0, reason="", target_topic_id="id"),
    WriterFact(producer_id=1, producer_epoch=1),
    ProofFact(partition=P, verdict="EQUAL", proven_until=1, proven_at_ms=1, checked_at_ms=1),
    RestoreFact(import_id="id", at_ms=1),
)


@dataclass(slots=True)
class Rig:
    """A flow that has copied, and what is left of it."""

    more: str = ""
    clock: FakeClock = field(default_factory=FakeClock)
    source: FakeCluster = field(init=False)
    target: FakeCluster = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.target = FakeCluster("A", clock=self.clock), FakeCluster("B", clock=self.clock)
        self.source.add_topic("t")
        self.target.add_topic("A.t")
        self.target.add_topic(POSITIONS, 5, {"cleanup.policy": "compact"})

    def clusters(self) -> FlowClusters:
        configuration = load(Path("mm2.properties"), environ={}, files=OneFile(FILE + self.more))
        (flow,) = source_flows(configuration)
        return FlowClusters(
            entry=configuration.flow(FLOW),
            flow=flow,
            source=self.source,
            target=self.target,
            clock=self.clock,
        )

    async def write(self, values: Sequence[bytes], *, source: bool = True, copy: bool = True) -> None:
        for cluster, partition, wanted in ((self.source, P, source), (self.target, COPY, copy)):
            async with cluster.writer() as writer:
                for value in values if wanted else ():
                    await writer.append(partition, key=None, value=value, timestamp_ms=1_000)

    async def store(self, key: bytes, value: bytes | None) -> None:
        number = partition_for_key(key, 5)
        async with self.target.writer() as writer:
            await writer.append(TopicPartition(POSITIONS, number), key=key, value=value)

    async def position(self, offset: int) -> None:
        await self.store(source_offset_key("A", P), encode_source_offset(offset))

    async def state(self, *facts: Fact) -> None:
        for fact in facts:
            await self.store(*fact_record("A", fact))

    async def owned(self, *, slots: int = 3) -> None:
        """As an owner leaves it that has stopped."""
        await self.state(
            ClaimFact(instance="owner", at_ms=1),
            TopicFact(
                topic="t",
                topic_id=self.source.topics["t"].topic_id,
                known_partitions=1,
                target_topic_id=self.target.topics["A.t"].topic_id,
            ),
            OwnerFact(instance="owner", slots=slots, renewed_at_ms=self.clock.now_ms()),
        )

    async def export(self) -> FlowState:
        """Through the file."""
        found = await StateExport(clusters=self.clusters()).run()
        return parse(list(lines(found)), name="state.jsonl")

    def lose_the_topics(self) -> None:
        for topic in [name for name in self.target.topics if name.startswith(("mm2-", "A.checkpoints"))]:
            del self.target.topics[topic]

    async def plan(self, state: FlowState, **options: bool) -> ImportPlan:
        return await StateImport(clusters=self.clusters(), state=state, **options).plan()

    async def restore(self, state: FlowState, **options: bool) -> None:
        work = StateImport(clusters=self.clusters(), state=state, **options)
        await work.carry_out(await work.plan())

    async def log(self) -> PositionsLog:
        async with AsyncExitStack() as stack:
            log = await self.clusters().positions_log(stack)
            await log.refresh()
            return log

    async def refusal(self, state: FlowState, **options: bool) -> str:
        with pytest.raises(StateError) as refused:
            await self.plan(state, **options)
        return refused.value.reason

    async def verdict(self, state: FlowState, **options: bool) -> Verdict:
        return (await self.plan(state, **options)).verdicts[P][1]


@pytest.fixture
async def copied() -> Rig:
    """Five records, all of them copied; nobody works at it."""
    rig = Rig()
    await rig.write([b"%d" % n for n in range(5)])
    await rig.position(5)
    await rig.owned()
    return rig


async def test_what_a_flow_stored_comes_back_as_it_was(copied: Rig) -> None:
    pause = PauseFact(topic="t", partition=None, by="root", at_ms=1)
    epochs = LeaderEpochsFact(partition=P, epochs=(EpochStart(1, 0),))
    await copied.state(pause, epochs)
    state = await copied.export()
    copied.lose_the_topics()
    await copied.restore(state)
    log = await copied.log()
    assert log.known() == {P: 5}
    assert log.control.pauses == {("t", None): pause}
    assert log.control.leader_epochs == {P: epochs.epochs}
    assert log.control.topics["t"].topic_id == copied.source.topics["t"].topic_id
    assert log.control.owner is not None
    assert log.control.owner.slots == 3
    assert log.control.restoring is None


async def test_whoever_copied_before_is_displaced_and_a_proof_is_made_again(copied: Rig) -> None:
    await copied.state(
        ProofFact(partition=P, verdict="EQUAL", proven_until=5, proven_at_ms=1, checked_at_ms=1)
    )
    state = await copied.export()
    copied.lose_the_topics()
    await copied.restore(state)
    control = (await copied.log()).control
    assert control.claim is not None
    assert control.claim.instance == "twinlog state import"
    assert control.proofs == {}


async def test_a_restored_flow_never_looks_as_if_its_last_owner_had_left_it_in_order(copied: Rig) -> None:
    """What it said is of another log, and others may have owned the flow since."""
    left = OwnerFact(
        instance="owner", slots=3, renewed_at_ms=copied.clock.now_ms(), left_at=(1,) * 5, left_at_rest=True
    )
    await copied.state(left)
    state = await copied.export()
    copied.lose_the_topics()
    await copied.restore(state)
    assert (await copied.log()).control.owner == replace(left, left_at=(), left_at_rest=False)


async def test_state_with_facts_of_a_later_version_is_refused(copied: Rig) -> None:
    await copied.store(control_key("A", "promise", "t"), b'{"kept":true}')
    state = await copied.export()
    copied.lose_the_topics()
    assert await copied.refusal(state) == "STATE_FILE_NEWER"


async def test_a_whole_file_of_another_format_names_the_version_that_reads_it(copied: Rig) -> None:
    later = replace((await copied.export()).header, version="9.9.9")
    written = [b'{"twinlog_state":2,"version":"9.9.9"}\n', *list(lines(await copied.export()))[1:-1]]
    digest = hashlib.sha256(b"".join(written)).hexdigest()
    written.append(json.dumps({"end": {"lines": len(written), "sha256": digest}}).encode())
    with pytest.raises(ConfigError, match=rf"Twinlog {later.version} exported it") as refused:
        parse(written, name="state.jsonl")
    assert refused.value.reason == "STATE_FILE_NEWER"


def test_every_kind_of_fact_is_known_by_its_name() -> None:
    kinds = {kind_of(fact_record("A", fact)[0]) for fact in ONE_OF_EACH}
    assert kinds == KINDS
    assert {type(fact) for fact in ONE_OF_EACH} == set(get_args(Fact))


async def test_a_position_is_derived_where_more_was_copied_since(copied: Rig) -> None:
    await copied.state(LeaderEpochsFact(partition=P, epochs=(EpochStart(1, 0),)))
    state = await copied.export()
    await copied.write([b"later 1", b"later 2"])
    await copied.write([b"not copied yet"], copy=False)
    copied.lose_the_topics()
    assert (await copied.verdict(state)).outcome is Outcome.DERIVED
    await copied.restore(state)
    log = await copied.log()
    assert log.known() == {P: 7}
    assert log.control.leader_epochs == {}, "they belong to the position that was exported"


async def test_aborted_records_of_both_sides_do_not_matter_to_a_derived_position(copied: Rig) -> None:
    state = await copied.export()
    aborted = [Record(offset=0, timestamp_ms=1_000, key=None, value=b"no")]
    copied.source.append_transaction(P, aborted, Transaction.ABORTED)
    copied.target.append_transaction(COPY, [*aborted, *aborted], Transaction.ABORTED)
    await copied.write([b"later"])
    copied.lose_the_topics()
    verdict = await copied.verdict(state)
    assert (verdict.outcome, verdict.position) == (Outcome.DERIVED, 8)


async def test_a_copy_that_differs_is_refused_and_nothing_is_written(copied: Rig) -> None:
    state = await copied.export()
    await copied.write([b"on the source"], copy=False)
    await copied.write([b"on the copy"], source=False)
    copied.lose_the_topics()
    verdict = await copied.verdict(state)
    assert (verdict.outcome, verdict.reason) == (Outcome.REFUSED, "POSITION_NOT_DERIVABLE")
    assert POSITIONS not in copied.target.topics


async def test_what_is_copied_twice_is_copied_twice_only_when_it_is_said(copied: Rig) -> None:
    state = await copied.export()
    await copied.write([b"on the source"], copy=False)
    await copied.write([b"on the copy"], source=False)
    copied.lose_the_topics()
    verdict = await copied.verdict(state, allow_repeats=True)
    assert (verdict.outcome, verdict.position) == (Outcome.REPEATED, 5)
    assert "copied again" in verdict.message


async def test_a_copy_with_an_open_transaction_is_refused(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    record = Record(offset=0, timestamp_ms=1, key=None, value=b"open")
    copied.target.append_transaction(COPY, [record], Transaction.OPEN)
    assert (await copied.verdict(state)).reason == "COPY_UNSTABLE"


async def test_a_topic_that_was_copied_since_the_export_is_not_copied_twice(copied: Rig) -> None:
    state = await copied.export()
    copied.source.add_topic("new")
    copied.target.add_topic("A.new")
    for cluster, topic in ((copied.source, "new"), (copied.target, "A.new")):
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=None, value=b"x", timestamp_ms=1)
    copied.lose_the_topics()
    await copied.restore(state)
    assert (await copied.log()).known() == {P: 5, TopicPartition("new", 0): 1}


async def other_topic(rig: Rig) -> None:
    """A topic of the target that has the name of a copy, and is none."""
    rig.source.add_topic("other")
    rig.target.add_topic("A.other")
    for cluster, topic, value in ((rig.source, "other", b"here"), (rig.target, "A.other", b"there")):
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=None, value=value, timestamp_ms=1)


async def test_topics_that_no_rule_selects_stand_in_no_ones_way() -> None:
    rig = Rig(more="A->B.topics = t\n")
    await rig.write([b"x"])
    await rig.position(1)
    await rig.owned()
    state = await rig.export()
    await other_topic(rig)
    rig.lose_the_topics()
    assert (await rig.plan(state)).verdicts.keys() == {P}


async def test_topics_that_changed_rules_may_select_are_looked_at() -> None:
    rig = Rig(more="A->B.topics = t\n")
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
    assert (repeated.outcome, repeated.position) == (Outcome.REPEATED, 0)


async def test_a_copy_that_is_gone_is_left_out_and_begins_again(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.add_topic("A.t")
    assert (await copied.verdict(state)).outcome is Outcome.LEFT_OUT
    await copied.restore(state)
    log = await copied.log()
    assert log.known() == {}
    assert log.control.topics == {}


async def test_a_copy_that_is_gone_is_refused_where_a_new_one_would_skip_records() -> None:
    rig = Rig(more="auto.offset.reset = latest\nA->B.consumer.auto.offset.reset = latest\n")
    await rig.write([b"x"])
    await rig.position(1)
    await rig.owned()
    state = await rig.export()
    rig.lose_the_topics()
    rig.target.add_topic("A.t")
    verdict = await rig.verdict(state)
    assert (verdict.outcome, verdict.reason) == (Outcome.REFUSED, "COPY_MISSING")


async def test_a_running_flow_is_refused(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.set_group(lease_group("source", FLOW), state="STABLE", member_count=1)
    assert await copied.refusal(state) == "FLOW_RUNS"


async def test_state_is_not_overwritten(copied: Rig) -> None:
    state = await copied.export()
    await copied.position(7)
    assert await copied.refusal(state) == "STATE_PRESENT"


async def test_state_of_other_clusters_is_refused(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.replace_id("another")
    assert await copied.refusal(state) == "OTHER_CLUSTER"


async def test_an_import_that_was_cut_off_is_completed_by_the_same_file_only(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()

    def fail(call: Call) -> None:
        if b"MirrorSource" in (call.arguments.get("key") or b""):
            raise from_reason(UNAVAILABLE, "append", alias="B")

    undo = copied.target.intercept("append", fail)
    with pytest.raises(Exception, match="B"):
        await copied.restore(state)
    undo()
    assert (await copied.log()).control.restoring is not None
    assert await copied.refusal(replace(state, import_id="another")) == "STATE_PRESENT"
    await copied.restore(state)
    log = await copied.log()
    assert (log.known(), log.control.restoring) == ({P: 5}, None)


async def test_who_begins_to_work_while_it_is_imported_does_not_copy_by_half_of_it(copied: Rig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    work = StateImport(clusters=copied.clusters(), state=state)
    plan = await work.plan()
    copied.target.set_group(lease_group("source", FLOW), state="STABLE", member_count=1)
    with pytest.raises(StateError) as refused:
        await work.carry_out(plan)
    assert refused.value.reason == "FLOW_RUNS"
    log = await copied.log()
    assert log.known() == {}
    assert log.control.claim is not None
    assert log.control.claim.instance == "twinlog state import", "who was elected meanwhile is displaced"


async def test_of_a_running_flow_the_ends_of_copies_are_not_taken_for_its_positions(copied: Rig) -> None:
    copied.target.set_group(lease_group("source", FLOW), state="STABLE", member_count=1)
    state = await copied.export()
    copied.target.set_group(lease_group("source", FLOW), state="EMPTY", member_count=0)
    assert [line.target_end for line in state.copies] == [None]
    copied.lose_the_topics()
    assert (await copied.verdict(state)).reason == "POSITION_NOT_DERIVABLE"


async def test_a_position_that_mirror_maker_stored_is_not_exact(copied: Rig) -> None:
    copied.clock.advance(120)
    await copied.position(5)
    assert [line.target_end for line in (await copied.export()).copies] == [None]


async def test_a_preserved_copy_is_compared_offset_by_offset(copied: Rig) -> None:
    await copied.state(
        CopyFact(
            partition=P,
            preserved=True,
            since=0,
            reason="",
            target_topic_id=copied.target.topics["A.t"].topic_id,
        )
    )
    state = await copied.export()
    await copied.write([b"later"])
    copied.lose_the_topics()
    assert (await copied.verdict(state)).outcome is Outcome.DERIVED
    await copied.write([b"translated"], copy=False)
    aborted = [Record(offset=0, timestamp_ms=1_000, key=None, value=b"no")]
    copied.target.append_transaction(COPY, aborted, Transaction.ABORTED)
    await copied.write([b"translated"], source=False)
    assert (await copied.verdict(state, allow_repeats=True)).outcome is Outcome.REFUSED


async def test_an_unfinished_move_is_not_continued_from_a_backup(copied: Rig) -> None:
    copied.target.add_topic("mm2-failover.A.internal", 1, {"cleanup.policy": "compact"})
    async with copied.target.writer() as writer:
        await writer.append(
            TopicPartition("mm2-failover.A.internal", 0),
            key=b'["TwinlogMove",{"flow":"A->B"}]',
            value=b'{"state":"RUNNING"}',
        )
    state = await copied.export()
    copied.lose_the_topics()
    assert await copied.refusal(state) == "MOVE_UNFINISHED"
    await copied.restore(state, without_moves=True)
    assert "mm2-failover.A.internal" not in copied.target.topics


async def test_topics_that_still_hold_records_stay_as_they_are(copied: Rig) -> None:
    name = "mm2-configsync.A.internal"
    copied.target.add_topic(name, 1, {"cleanup.policy": "compact"})
    async with copied.target.writer() as writer:
        await writer.append(TopicPartition(name, 0), key=b'["rules"]', value=b"{}")
        state = await copied.export()
        await writer.append(TopicPartition(name, 0), key=b'["rules"]', value=b'{"newer":1}')
    del copied.target.topics[POSITIONS]
    await copied.restore(state)
    assert [record.value for record in copied.target.records(TopicPartition(name, 0))] == [
        b"{}",
        b'{"newer":1}',
    ]


@pytest.mark.parametrize("damage", ["cut", "changed", "more", "nothing", "words"])
async def test_a_file_that_is_not_whole_is_not_read(copied: Rig, damage: str) -> None:
    written = list(lines(await copied.export()))
    damaged = {
        "cut": written[:-1],
        "changed": [written[0].replace(b'"flow":"A->B"', b'"flow":"A->C"'), *written[1:]],
        "more": [*written, written[1]],
        "nothing": [],
        "words": [b"what is this\n"],
    }[damage]
    with pytest.raises(ConfigError) as refused:
        parse(damaged, name="state.jsonl")
    assert refused.value.reason == "STATE_FILE_DAMAGED"
