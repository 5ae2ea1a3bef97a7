"""Import of a flow's state: what was stored comes back, and nothing that is there is overwritten."""

from dataclasses import replace

import pytest

from twinlog.errors import StateError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import election_group
from twinlog.testing.fakes.cluster import Call
from twinlog_source.log.facts import (
    EpochStart,
    LeaderEpochsFact,
    OwnerFact,
    PauseFact,
    ProofFact,
)
from twinlog_source.state.restore import StateImport
from unit.source.state.state_rig import FLOW, POSITIONS, P, StateRig


async def test_what_a_flow_stored_comes_back_as_it_was(copied: StateRig) -> None:
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
    assert log.control.topics["t"].topic_id == copied.source.topic_id("t")
    assert log.control.owner is not None
    assert log.control.owner.slots == 3
    assert log.control.restoring is None


async def test_a_restore_fences_former_owners_and_restarts_verification(copied: StateRig) -> None:
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


async def test_a_restored_flow_never_looks_as_if_its_last_owner_had_left_it_in_order(
    copied: StateRig,
) -> None:
    """What it said is of another log, and others may have owned the flow since."""
    left = OwnerFact(
        instance="owner", slots=3, renewed_at_ms=copied.clock.now_ms(), left_at=(1,) * 5, left_at_rest=True
    )
    await copied.state(left)
    state = await copied.export()
    copied.lose_the_topics()
    await copied.restore(state)
    assert (await copied.log()).control.owner == replace(left, left_at=(), left_at_rest=False)


async def test_a_running_flow_is_refused(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.set_group(election_group("source", FLOW), state="STABLE", member_count=1)
    assert await copied.refusal(state) == "FLOW_RUNS"


async def test_state_is_not_overwritten(copied: StateRig) -> None:
    state = await copied.export()
    await copied.position(7)
    assert await copied.refusal(state) == "STATE_PRESENT"


async def test_state_of_other_clusters_is_refused(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    copied.target.kafka.cluster_id = "another"
    assert await copied.refusal(state) == "OTHER_CLUSTER"


async def test_an_import_that_was_cut_off_is_completed_by_the_same_file_only(copied: StateRig) -> None:
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


async def test_who_begins_to_work_while_it_is_imported_does_not_copy_by_half_of_it(copied: StateRig) -> None:
    state = await copied.export()
    copied.lose_the_topics()
    work = StateImport(clusters=copied.clusters(), state=state)
    plan = await work.plan()
    copied.target.set_group(election_group("source", FLOW), state="STABLE", member_count=1)
    with pytest.raises(StateError) as refused:
        await work.carry_out(plan)
    assert refused.value.reason == "FLOW_RUNS"
    log = await copied.log()
    assert log.known() == {}
    assert log.control.claim is not None
    assert log.control.claim.instance == "twinlog state import", "who was elected meanwhile is displaced"


async def test_an_unfinished_move_is_not_continued_from_a_backup(copied: StateRig) -> None:
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


async def test_topics_that_still_hold_records_stay_as_they_are(copied: StateRig) -> None:
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
