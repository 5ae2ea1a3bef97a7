"""Who owns a flow: claims, fencing, and what is taken over from the log."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, StateError
from twinlog.kafka.errors import TIMEOUT, from_reason
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.driver.epoch import Epoch
from twinlog_source.driver.epoch_jobs import EpochJobs
from twinlog_source.driver.ownership import AT_REST_AFTER_SECONDS, RENEW_SECONDS
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.stream.task_host import TaskHost
from twinlog_source.driver.stream.task_settings import TaskSettings, ids_of_slot
from twinlog_source.log.fact_records import control_key
from twinlog_source.log.facts import EpochStart, LeaderEpochsFact, PauseFact, RestoreFact, ThrottleFact
from unit.source.flow_rig import POSITIONS, FlowRig, P, reported

TRANSLATED = "twinlog.offsets = translated"


PAUSED = PauseFact(topic=None, partition=None, by="root", at_ms=1)
LIMITED = ThrottleFact(topic=None, bytes_per_second=5, by="root", at_ms=1)


def commands_of(state: FlowState) -> list[PauseFact | ThrottleFact]:
    return [*state.control.pauses.values(), *state.control.throttles.values()]


@pytest.mark.parametrize("mark", [PAUSED, LIMITED], ids=["pause", "throttle"])
@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("follows", [False, True])
async def test_what_another_owner_withdrew_stays_so_when_the_flow_comes_back(
    rig: FlowRig, mark: PauseFact | ThrottleFact, arrives: bool, follows: bool
) -> None:
    """The first owner failed to withdraw it, and was never restarted."""
    kind = "pause" if isinstance(mark, PauseFact) else "throttle"
    first = await rig.owner()
    await first.command(kind, None, None, mark)

    def fail(_call: Call) -> None:
        undo()
        raise from_reason(TIMEOUT, "append", alias="B")

    undo = rig.target.intercept("append", fail, after=arrives)
    with pytest.raises(KafkaError):
        await first.command(kind, None, None, None)
    assert commands_of(first) == [mark]
    second = await rig.owner()
    await second.command(kind, None, None, mark)
    await second.command(kind, None, None, None)
    if follows:
        await first.positions.peek()
        assert commands_of(first) == []
    await second.leave()
    await first.take_over(displaced=False)
    assert commands_of(first) == []
    rig.clock.advance(30)
    await first.renew()
    assert commands_of(first) == []
    assert commands_of(await rig.owner()) == []


async def test_a_frozen_driver_writes_no_position_of_a_flow_that_another_process_owns(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.journal.position(P, 5)
    rig.source.add_topic("t")
    rig.clock.advance(3)
    await rig.say(first.decisions)
    second = await rig.process()
    await second.take_over(displaced=False)
    await second.journal.position(P, 3)
    with pytest.raises(FatalKafkaError) as displaced:
        await first.refresh(owned=frozenset())
    assert displaced.value.reason == "PRODUCER_FENCED"
    assert await second.positions.refresh() == {P: 3}


async def test_a_flow_that_is_not_exactly_once_takes_back_that_nothing_was_written_before_it_writes(
    rig: FlowRig,
) -> None:
    """Its tasks write data before positions, and may be killed in between."""
    first = await rig.owner()
    await first.journal.position(P, 5)
    await rig.store(7, producer_id=77, wrote_nothing=True)
    assert (await rig.owner()).positions.nothing_written == {P}
    await rig.owner("B.exactly.once.source.support = disabled")
    last = await rig.owner()
    assert last.positions.nothing_written == set()
    assert last.table.rows[P].position == 7


@pytest.mark.parametrize(("here", "there"), [(0, 0), (0, 1), (1, 0), (1, 1)])
async def test_a_flow_has_written_nothing_only_where_its_source_or_its_copy_never_had_a_record(
    rig: FlowRig, here: int, there: int
) -> None:
    """Its tasks may have been killed between their first data and its position, or its log was deleted."""
    await rig.write(rig.source, "t", here)
    await rig.write(rig.target, "A.t", there)
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    for _ in range(2):
        state = await rig.owner("twinlog.offsets = translated", f"replication.policy.class = {policy}")
        row = state.table.rows[P]
        assert (row.position, row.stored, row.wrote_nothing) == (0, False, not (here and there))


async def test_what_a_dead_owner_left_open_ends_by_fencing_before_it_is_waited_for(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.ownership.note_slots(1)
    await first.journal.position(P, 5)
    count = len(rig.target.topics[POSITIONS].partitions)
    marks_at = TopicPartition(POSITIONS, partition_for_key(control_key("A", "owner"), count))
    lost = Record(offset=0, timestamp_ms=0, key=source_offset_key("A", P), value=encode_source_offset(9))

    def dies_in_a_transaction(slot: int) -> None:
        rig.open[slot] = (
            marks_at,
            rig.target.append_transaction(marks_at, [lost], outcome=None),
        )

    dies_in_a_transaction(0)
    await first.ownership.note_slots(2)  # hidden behind the transaction of slot 0
    dies_in_a_transaction(1)
    async with asyncio.timeout(10):
        second = await rig.owner()
    assert rig.open == {}
    assert second.table.rows[P].position == 5


async def test_slots_that_could_not_be_noted_are_noted_before_they_are_used(rig: FlowRig) -> None:
    first = await rig.owner()

    def fail(_call: Call) -> None:
        undo()
        raise from_reason(TIMEOUT, "append", alias="B")

    undo = rig.target.intercept("append", fail)
    with pytest.raises(KafkaError):
        await first.ownership.note_slots(2)
    await first.ownership.note_slots(2)
    owner = (await rig.owner()).positions.control.owner
    assert owner is not None
    assert owner.slots == 2


async def test_an_owner_that_had_nothing_to_copy_for_long_signs_before_it_copies(rig: FlowRig) -> None:
    """If it is killed then, it was there just now."""
    first = await rig.owner()
    await first.ownership.note_slots(1)
    rig.clock.advance(2 * AT_REST_AFTER_SECONDS)
    await first.ownership.note_slots(1)
    assert not (await rig.owner()).ownership.former_left_at_rest


async def test_of_two_owners_at_most_one_can_commit_from_its_start_positions_on(rig: FlowRig) -> None:
    """Each of the three looks at its claim after its tasks are ready, and before it starts them."""
    first = await rig.owner()
    await first.ownership.note_slots(1)
    await first.confirm()
    second, third = await rig.process(), await rig.process()

    async def first_and_third_come_between() -> None:
        # It is fenced before the second has signed: it must not take the flow back.
        with pytest.raises(StateError) as waits:
            await first.take_over(displaced=True)
        assert waits.value.reason == "OWNED_ELSEWHERE"
        with pytest.raises(FatalKafkaError) as fenced:
            await first.confirm()
        assert fenced.value.reason == "PRODUCER_FENCED"
        await third.take_over(displaced=False)

    rig.while_fencing = first_and_third_come_between
    with pytest.raises(FatalKafkaError) as late:
        await second.take_over(displaced=False)
    assert late.value.reason == "PRODUCER_FENCED"
    await third.confirm()
    with pytest.raises(StateError):
        await first.take_over(displaced=True)
    rig.clock.advance(61)
    await first.take_over(displaced=True)
    await first.confirm()
    with pytest.raises(FatalKafkaError):
        await third.confirm()


@pytest.mark.parametrize(("topics", "reason"), [("t", "OWNED_ELSEWHERE"), ("t, u", "TWIN_DEPLOYMENT")])
async def test_who_is_displaced_by_a_deployment_with_other_topics_says_so(
    rig: FlowRig, topics: str, reason: str
) -> None:
    """Also where no election tells: the groups' rights are missing, or the coordinator is away."""
    first, second = await rig.owner("topics = t"), await rig.owner(f"topics = {topics}")
    assert second.ownership.instance_id != first.ownership.instance_id
    with pytest.raises(StateError) as waits:
        await first.take_over(displaced=True)
    assert waits.value.reason == reason


async def test_a_task_with_new_ids_goes_on_only_while_its_epoch_lives_and_the_flow_is_ours(
    rig: FlowRig,
) -> None:
    first = await rig.owner()
    unasked: Any = None
    host = TaskHost(
        state=first,
        tasks=TaskSettings(flow=first.flow),
        jobs=EpochJobs(flow=first.flow.flow, runner=unasked, instruments=unasked, clock=rig.clock),
        instruments=unasked,
    )
    living, over = (Epoch(flow=first.flow.flow, number=number, plan=((P,),)) for number in (2, 1))
    over.end("EPOCH_OVER")
    await host.reopened(living, living.slots[0])
    with pytest.raises(StateError) as late:
        await host.reopened(over, over.slots[0])
    assert late.value.reason == "EPOCH_OVER"
    await rig.owner()
    for admission in (host.reopened(living, living.slots[0]), host.rejoin(living, living.slots[0])):
        with pytest.raises(FatalKafkaError) as displaced:
            await admission
        assert displaced.value.reason == "PRODUCER_FENCED"


async def test_leader_epochs_are_not_about_positions_that_somebody_else_wrote(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.journal.position(P, 5)
    await first.journal.record(LeaderEpochsFact(partition=P, epochs=(EpochStart(3, 0),)))
    assert (await rig.owner()).table.rows[P].leader_epochs == (EpochStart(3, 0),)
    rig.clock.advance(600)
    await rig.mirror_maker_stores(50)
    for _ in range(2):
        state = await rig.owner()
        assert (state.table.rows[P].position, state.table.rows[P].leader_epochs) == (50, ())


async def test_a_flow_of_which_an_import_was_cut_off_is_not_copied(rig: FlowRig) -> None:
    first = await rig.owner()
    await first.journal.record(RestoreFact(import_id="file", at_ms=1))
    second = await rig.process()
    with pytest.raises(StateError) as refused:
        await second.take_over(displaced=False)
    assert refused.value.reason == "IMPORT_UNFINISHED"
    await first.journal.retract("restore")
    await second.take_over(displaced=False)


@pytest.mark.parametrize("silent", ["offset syncs", "copies"])
async def test_an_owner_signs_on_time_whatever_does_not_answer(rig: FlowRig, silent: str) -> None:
    owner = await rig.owner(TRANSLATED)
    reported(owner, position=1, target_end=1)

    async def never(_call: Call) -> None:
        await asyncio.Event().wait()

    cluster, call = (rig.source, "describe_topics") if silent == "offset syncs" else (rig.target, "log_ends")
    cluster.intercept(call, never)
    rig.clock.advance(60)
    async with asyncio.timeout(RENEW_SECONDS):
        with pytest.raises(KafkaError, match="look at the copies"):
            await owner.renew()


async def test_a_look_for_the_producers_of_many_slots_goes_on_where_its_time_was_over(rig: FlowRig) -> None:
    ownership = (await rig.owner()).ownership
    asked: list[str] = []

    async def knows(transactional_ids: Sequence[str]) -> dict[int, str]:
        asked.append(transactional_ids[0])
        if len(asked) == 2:
            raise from_reason(TIMEOUT, "ask for the flow's producers")
        return {100 + len(asked): transactional_ids[0]} if len(asked) < 4 else {}

    ownership.known_producers = knows
    with pytest.raises(KafkaError):
        await ownership.find_producers()
    await ownership.find_producers()
    await ownership.find_producers()
    assert asked == [f"twinlog-A-B-{slot}-0" for slot in (0, 4, 4, 8, 0)]


async def test_slots_that_only_a_lost_log_named_are_fenced_as_they_are_found(rig: FlowRig) -> None:
    """A task of the owner before would write to copies that another one is told to go on with."""
    owner = await rig.owner()
    await owner.ownership.note_slots(1)
    rig.known_producers = {f"twinlog-A-B-{slot}-1": 70 + slot for slot in range(3)}
    copy, record = TopicPartition("A.t", 0), Record(offset=0, timestamp_ms=0, key=None, value=b"late")
    for slot in (0, 2):
        rig.open[slot] = copy, rig.target.append_transaction(copy, [record], outcome=None)
    await owner.ownership.find_producers()
    assert set(rig.open) == {0}, "its own tasks go on"
    signed = (await rig.owner()).positions.control.owner
    assert signed is not None
    assert signed.slots >= 3
    assert not rig.open


async def test_an_owner_that_was_displaced_unawares_fences_no_slot_of_the_next(rig: FlowRig) -> None:
    """It was frozen while it looked who had written to its copies."""
    former = await rig.owner()
    await former.ownership.note_slots(1)
    owner = await rig.owner()
    await owner.ownership.note_slots(3)
    rig.known_producers = {f"twinlog-A-B-{slot}-1": 70 + slot for slot in range(3)}
    copy, record = TopicPartition("A.t", 0), Record(offset=0, timestamp_ms=0, key=None, value=b"late")
    rig.open[2] = copy, rig.target.append_transaction(copy, [record], outcome=None)
    with pytest.raises(FatalKafkaError) as displaced:
        await former.ownership.find_producers()
    assert displaced.value.reason == "PRODUCER_FENCED"
    assert set(rig.open) == {2}
    await owner.positions.refresh()
    signed = owner.positions.control.owner
    assert signed is not None
    assert signed.instance == owner.ownership.instance_id


async def test_what_hangs_is_ended_on_every_copy_and_by_the_ids_of_every_slot_that_was_used(
    rig: FlowRig,
) -> None:
    owner = await rig.owner()
    await owner.ownership.note_slots(2)
    asked: list[tuple[set[str], Mapping[TopicPartition, TopicPartition]]] = []

    async def fence(names: Sequence[str], copies: Mapping[TopicPartition, TopicPartition]) -> None:
        asked.append((set(names), copies))

    owner.ownership.fence = fence
    await owner.end_hanging(1)
    ((names, copies),) = asked
    assert names == {name for slot in range(2) for name in ids_of_slot(owner.flow, 1, slot)}
    assert copies == {TopicPartition("A.t", 0): P}
