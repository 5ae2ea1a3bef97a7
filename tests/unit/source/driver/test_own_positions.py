"""By what an owner knows that a position is the flow's own: by its producer, not by clocks."""

from dataclasses import replace

import pytest

from twinlog.errors import KafkaError, StateError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog_source.driver.ownership import AT_REST_AFTER_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact, OwnerFact
from twinlog_source.log.producers import FOREIGN_AFTER_MS
from unit.source.flow_rig import FlowRig, P
from unit.source.topics.copy_modes_rig import AUTO, kind

QUARTER_HOUR_MS = 900_000
IDLE = TopicPartition("idle", 0)
TASK = 77
"""The producer id of a task."""
PRESERVED = (True, 0, "", 0, 0)
TRANSLATED = (False, 0, "POSITION_STORED", 0, 0)


async def copying(rig: FlowRig) -> FlowState:
    """An owner whose task is known by its producer id."""
    state = await rig.owner(AUTO)
    await state.journal.record(LeaderEpochsFact(partition=P, epochs=(EpochStart(3, 0),)))
    await state.ownership.producers.store({TASK: "twinlog-A-B-0-0"})
    return state


@pytest.mark.parametrize("ahead_ms", [QUARTER_HOUR_MS, -QUARTER_HOUR_MS])
@pytest.mark.parametrize("silent_seconds", [0, 70, 3_600])
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_task_s_positions_are_the_flow_s_own_by_any_clock(
    rig: FlowRig, ahead_ms: int, silent_seconds: int, leaves: bool
) -> None:
    """Its owner may have signed long ago."""
    state = await copying(rig)
    rig.clock.advance(silent_seconds)
    await rig.store(8, producer_id=TASK, ahead_ms=ahead_ms)
    if leaves:
        await state.leave()
    for _ in range(2):
        after = await rig.owner(AUTO)
        assert kind(after) == PRESERVED
        assert (after.table.rows[P].position, after.table.rows[P].leader_epochs) == (8, (EpochStart(3, 0),))


async def test_positions_are_own_although_the_driver_s_clock_was_set_back(rig: FlowRig) -> None:
    state = await copying(rig)
    await rig.store(8, producer_id=TASK)
    rig.clock.set_wall_clock(rig.clock.now_ms() - QUARTER_HOUR_MS)
    await state.ownership.sign()
    assert kind(await rig.owner(AUTO)) == PRESERVED


async def test_a_driver_s_own_positions_are_known(rig: FlowRig) -> None:
    """It introduces its producer before it writes anything else."""
    state = await rig.owner(AUTO)
    rig.clock.advance(3_600)
    await state.journal.position(P, 8)
    assert kind(await rig.owner(AUTO)) == PRESERVED


async def test_a_foreign_position_is_known_at_once(rig: FlowRig) -> None:
    """Also one that was stored within the second in which the owner was killed, by a clock that is behind."""
    await copying(rig)
    await rig.store(5, producer_id=TASK)
    await rig.store(8, producer_id=78, ahead_ms=-QUARTER_HOUR_MS)
    assert kind(await rig.owner(AUTO)) == TRANSLATED


async def test_what_is_copied_over_a_foreign_position_is_own_again(rig: FlowRig) -> None:
    await copying(rig)
    await rig.store(8, producer_id=78)
    await rig.store(9, producer_id=TASK)
    assert kind(await rig.owner(AUTO)) == PRESERVED


async def test_a_producer_that_is_not_idempotent_is_nobody_s_own(rig: FlowRig) -> None:
    await copying(rig)
    await rig.store(8, producer_id=-1)
    assert kind(await rig.owner(AUTO)) == TRANSLATED


async def test_an_id_of_another_cluster_is_not_known(rig: FlowRig) -> None:
    """The topic of positions was restored on a new cluster, which gives the same numbers to others."""
    state = await copying(rig)
    elsewhere = replace(state.control.producers[TASK], cluster_id="the cluster before")
    await state.journal.record(elsewhere)
    await rig.store(8, producer_id=TASK)
    assert kind(await rig.owner(AUTO)) == TRANSLATED


async def test_an_id_whose_owner_was_killed_before_it_was_used_does_no_harm(rig: FlowRig) -> None:
    state = await copying(rig)
    await rig.store(8, producer_id=TASK)
    await state.ownership.producers.store({TASK + 1: "twinlog-A-B-0-0"})
    after = await rig.owner(AUTO)
    assert (kind(after), after.table.rows[P].position) == (PRESERVED, 8)


async def test_an_id_that_could_not_be_stored_is_not_taken_for_stored(rig: FlowRig) -> None:
    state = await copying(rig)

    def fail(_call: Call) -> None:
        undo()
        raise from_reason(TIMEOUT, "append", alias="B")

    undo = rig.target.intercept("append", fail)
    with pytest.raises(KafkaError):
        await state.ownership.producers.store({TASK + 1: "twinlog-A-B-0-0"})
    await state.ownership.producers.store({TASK + 1: "twinlog-A-B-0-0"})
    assert TASK + 1 in (await rig.owner(AUTO)).control.producers


async def test_the_writer_of_preserved_copies_is_known_before_it_writes(rig: FlowRig) -> None:
    control = (await rig.owner(AUTO)).control
    assert control.writer is not None
    known = control.producers[control.writer.producer_id]
    assert (known.name, known.cluster_id, known.source_cluster_id) == ("preserved", "cluster B", "cluster A")


# ------------------------------------------------------------------- state of a release that recorded no ids


async def former_release(rig: FlowRig, *, stored_after_ms: int, left_at: int | None = None) -> None:
    """It was killed, or left when each partition of its topic of positions ended at an offset. Its task's
    newest position is of this time after its last signature."""
    state = await rig.owner(AUTO)
    for producer_id in list(state.control.producers):
        fact = replace(state.control.producers[producer_id], cluster_id="nowhere")
        await state.journal.record(fact)
    ends = () if left_at is None else (left_at,) * 25
    await rig.store(8, producer_id=TASK, ahead_ms=stored_after_ms)
    await state.journal.record(
        OwnerFact(instance="old", slots=1, renewed_at_ms=rig.clock.now_ms(), left_at=ends)
    )


@pytest.mark.parametrize(
    ("stored_after_ms", "left_at", "expected"),
    [
        (FOREIGN_AFTER_MS, None, PRESERVED),
        (FOREIGN_AFTER_MS + 1, None, TRANSLATED),
        (QUARTER_HOUR_MS, 1_000, PRESERVED),
        (0, 0, TRANSLATED),
    ],
)
async def test_positions_of_the_release_before_are_judged_once_as_that_did(
    rig: FlowRig, stored_after_ms: int, left_at: int | None, expected: object
) -> None:
    await former_release(rig, stored_after_ms=stored_after_ms, left_at=left_at)
    assert kind(await rig.owner(AUTO)) == expected


async def test_a_producer_of_the_release_before_is_known_from_then_on(rig: FlowRig) -> None:
    """Who initialises a transactional id again keeps its producer id."""
    await former_release(rig, stored_after_ms=0)
    await rig.owner(AUTO)
    await rig.store(9, producer_id=TASK, ahead_ms=QUARTER_HOUR_MS)
    assert kind(await rig.owner(AUTO)) == PRESERVED


async def test_a_stranger_that_the_release_before_could_not_recognise_is_recognised_by_the_first(
    rig: FlowRig,
) -> None:
    """MirrorMaker 2 began at once when that owner was killed."""
    await former_release(rig, stored_after_ms=0)
    await rig.owner(AUTO)
    await rig.mirror_maker_stores(9)
    assert kind(await rig.owner(AUTO)) == TRANSLATED


async def test_a_stranger_from_before_the_flow_is_not_taken_for_its_own(rig: FlowRig) -> None:
    """MirrorMaker 2 stored the position of a partition without records since then, with a transactional id:
    when it copies again it has the same producer id."""
    mirror_maker = 78
    await rig.owner(AUTO)
    await rig.store(3, producer_id=mirror_maker, partition=IDLE)
    await former_release(rig, stored_after_ms=0)
    await rig.owner(AUTO)
    await rig.store(9, producer_id=mirror_maker)
    assert kind(await rig.owner(AUTO)) == TRANSLATED


# ------------------------------------------------------------------------------- how long an owner was silent


async def test_a_standby_whose_clock_is_ahead_does_not_take_the_owner_for_gone_long_ago(rig: FlowRig) -> None:
    """It has seen it alive just now, and writes of its tasks may be on their way."""
    owner, standby = await copying(rig), await rig.process(AUTO)
    standby.positions.partition_count = owner.positions.partition_count
    for _ in range(3):
        rig.clock.advance(20)
        await owner.ownership.sign()
        await standby.positions.peek()
        standby.ownership.note_signs()
    rig.clock.set_wall_clock(rig.clock.now_ms() + 2 * QUARTER_HOUR_MS)
    await standby.take_over(displaced=False)
    assert not standby.ownership.former_left_at_rest
    rig.clock.advance(AT_REST_AFTER_SECONDS + 1)
    later = await rig.owner(AUTO)
    assert later.ownership.former_left_at_rest


@pytest.mark.parametrize("ahead_ms", [QUARTER_HOUR_MS, 0, -QUARTER_HOUR_MS])
async def test_a_displaced_owner_waits_by_its_own_clock(rig: FlowRig, ahead_ms: int) -> None:
    """The clocks of the two differ: it neither displaces a living owner, nor waits for ever for one that is
    gone."""
    first, second = await copying(rig), await rig.owner(AUTO)
    rig.clock.set_wall_clock(rig.clock.now_ms() + ahead_ms)
    for _ in range(5):
        with pytest.raises(StateError, match="another process"):
            await first.take_over(displaced=True)
        rig.clock.advance(20)
        await second.ownership.sign()
    with pytest.raises(StateError, match="another process"):
        await first.take_over(displaced=True)
    rig.clock.advance(61)
    await first.take_over(displaced=True)
