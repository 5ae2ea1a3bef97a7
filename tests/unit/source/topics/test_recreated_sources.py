"""Source topics that were deleted and created again: the new topic is copied from its beginning, once."""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

import pytest

from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import TIMEOUT, from_code, from_reason
from twinlog.kafka.protocol.frames import raw_topic_id
from twinlog.model import TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.testing.fakes.cluster import Call
from twinlog_source.driver.state import FlowState
from twinlog_source.log.facts import MOST_FORMER_IDS, TopicFact
from twinlog_source.log.gaps import Gap
from twinlog_source.topics.flow_book import RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P, ledger, reported
from unit.source.topics.lost_copies_rig import AUTO, PRESERVED, TRANSLATED

LATEST = "A.consumer.auto.offset.reset = latest"
NO_ANSWER = from_reason(TIMEOUT, "describe topics", alias="A")
UNKNOWN_TO_A_LAGGING_BROKER = from_code(ErrorCode.unknown_topic_or_partition, "describe topics", alias="A")


def no_answer(call: Call) -> None:
    call.result["t"] = NO_ANSWER


async def recreated_and_copied(rig: FlowRig) -> tuple[FlowState, str]:
    """An owner that has copied five records of a topic that was created again, and the id of the deleted
    one."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 9)
    reported(state, position=9, source_end=9)
    deleted_id = rig.source.topic_id("t")
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 5)
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    await state.journal.position(P, 5)
    return state, deleted_id


async def say_deleted(
    rig: FlowRig, decisions: Decisions, deleted_id: str, *, topics: Collection[str] = ("t",)
) -> None:
    """configsync looks less often, and still reports the deleted topic."""
    present = rig.source.topics["t"]
    rig.source.topics["t"] = replace(present, topic_id=UUID(bytes=raw_topic_id(deleted_id)))
    await rig.say(decisions, topics=topics)
    rig.source.topics["t"] = present


async def as_earlier_releases_record(state: FlowState) -> None:
    """Without the ids of deleted topics."""
    await state.positions.refresh()
    mark = replace(state.control.topics["t"], former_ids=())
    await state.journal.record(mark)


@pytest.mark.parametrize("error", [NO_ANSWER, UNKNOWN_TO_A_LAGGING_BROKER])
async def test_a_look_at_ids_that_fails_does_not_bring_the_id_of_the_deleted_topic_back(
    rig: FlowRig, error: Exception
) -> None:
    """configsync looks less often, and still reports the deleted topic."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 9)
    reported(state, position=9, source_end=9)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 5)
    rig.clock.advance(2)
    assert await state.plan_is_stale(frozenset([P]))
    await state.refresh(owned=frozenset())
    await state.journal.position(P, 5)
    reported(state, position=5, source_end=5)

    def fail(call: Call) -> None:
        call.result["t"] = error

    undo = rig.source.intercept("describe_topics", fail, after=True)
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P])), "its task copies on"
    undo()
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P]))
    assert (state.table.rows[P].position, ledger(state)) == (5, [])
    assert state.control.topics["t"].topic_id == rig.source.topic_id("t")


async def test_the_id_of_a_topic_that_left_is_forgotten(rig: FlowRig) -> None:
    """It may come back as another topic, at a moment when the source does not answer."""
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 9)
    await rig.say(state.decisions, topics=())
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    rig.source.add_topic("t")
    await rig.say(state.decisions)
    undo = rig.source.intercept("describe_topics", no_answer, after=True)
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    assert state.table.plannable() == frozenset(), "it is not copied from the position of the deleted topic"
    undo()
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    assert state.table.plannable() == {P}
    assert (await state.positions.refresh())[P] == 0


@pytest.mark.parametrize("release", ["this one", "an earlier one"])
async def test_a_topic_does_not_begin_again_when_a_new_owner_hears_the_id_of_the_deleted_one(
    rig: FlowRig, release: str
) -> None:
    """From configsync, at a moment when the source does not answer."""
    first, deleted_id = await recreated_and_copied(rig)
    if release != "this one":
        await as_earlier_releases_record(first)
    second = await rig.process(TRANSLATED)
    await say_deleted(rig, second.decisions, deleted_id)
    undo = rig.source.intercept("describe_topics", no_answer, after=True)
    await second.take_over(displaced=False)
    await second.refresh(owned=frozenset())
    undo()
    rig.clock.advance(2)
    await second.refresh(owned=frozenset())
    assert (await second.positions.refresh(), ledger(second)) == ({P: 5}, [])
    assert second.table.plannable() == {P}
    assert second.control.topics["t"].topic_id == rig.source.topic_id("t")


async def test_a_topic_does_not_begin_again_when_an_owner_that_saw_the_deleted_one_comes_back(
    rig: FlowRig,
) -> None:
    """It has taken the flow over before it asks the source again, which then does not answer."""
    await rig.write(rig.source, "t", 9)
    first = await rig.owner(TRANSLATED)
    await first.journal.position(P, 9)
    second = await rig.process(TRANSLATED)
    await second.take_over(displaced=False)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 5)
    await second.refresh(owned=frozenset())
    await second.journal.position(P, 5)
    await as_earlier_releases_record(second)
    await rig.say(first.decisions)
    undo = rig.source.intercept("describe_topics", no_answer, after=True)
    await first.take_over(displaced=False)
    await first.refresh(owned=frozenset())
    assert first.table.plannable() == {P}
    undo()
    rig.clock.advance(2)
    await first.refresh(owned=frozenset())
    assert (await first.positions.refresh(), ledger(first)) == ({P: 5}, [])


async def test_a_topic_does_not_begin_again_when_a_lagging_broker_reports_the_deleted_one(
    rig: FlowRig,
) -> None:
    state, deleted_id = await recreated_and_copied(rig)
    reported(state, position=5, source_end=5)

    def lag(call: Call) -> None:
        call.result["t"] = replace(call.result["t"], topic_id=deleted_id)

    undo = rig.source.intercept("describe_topics", lag, after=True)
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P]))
    undo()
    rig.clock.advance(2)
    assert not await state.refresh(owned=frozenset([P]))
    assert (await state.positions.refresh(), ledger(state)) == ({P: 5}, [])


async def test_a_topic_begins_again_when_the_alias_leads_to_an_earlier_cluster_again(rig: FlowRig) -> None:
    """bootstrap.servers had named another cluster by mistake: its position means nothing in the right one."""
    await rig.write(rig.source, "t", 9)
    await (await rig.owner(TRANSLATED)).journal.position(P, 9)
    right = rig.source.topics["t"]
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 50)
    mistaken = await rig.owner(TRANSLATED)
    assert (await mistaken.positions.refresh())[P] == 0
    await mistaken.journal.position(P, 50)
    rig.source.topics["t"] = right
    state = await rig.owner(TRANSLATED)
    assert P not in state.table.plannable(), "a broker of the other cluster may lag behind"
    for _ in range(5):
        rig.clock.advance(10)
        await state.refresh(owned=frozenset())
    assert (await state.positions.refresh())[P] == 0
    assert P in state.table.plannable()
    mark = state.control.topics["t"]
    assert mark.topic_id == rig.source.topic_id("t")
    assert mark.topic_id not in mark.former_ids


async def test_a_recorded_topic_without_an_id_gets_one_and_does_not_begin_again(rig: FlowRig) -> None:
    """Its brokers had shown none."""
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    await state.journal.position(P, 9)
    await state.journal.record(replace(state.control.topics["t"], topic_id=""))
    later = await rig.owner(TRANSLATED)
    assert (await later.positions.refresh())[P] == 9
    assert later.control.topics["t"].topic_id == rig.source.topic_id("t")


@pytest.mark.parametrize("is_recreated", [True, False])
async def test_a_topic_that_only_configsync_calls_recreated_waits_for_the_source_and_says_so(
    rig: FlowRig, is_recreated: bool
) -> None:
    """The other topic of the flow is copied on."""
    other, topics = TopicPartition("other", 0), ("t", "other")
    rig.source.add_topic("other")
    rig.target.add_topic("A.other")
    first, deleted_id = await recreated_and_copied(rig)
    await as_earlier_releases_record(first)
    state = await rig.process(TRANSLATED)
    if is_recreated:
        rig.source.add_topic("t")
        await rig.write(rig.source, "t", 2)
        await rig.say(state.decisions, topics=topics)
    else:
        await say_deleted(rig, state.decisions, deleted_id, topics=topics)
    undo = rig.source.intercept("describe_topics", no_answer, after=True)
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    for _ in range(20):
        assert state.table.plannable() == {other}
        blocker = state.table.rows[P].blocker
        assert blocker is not None
        assert (blocker.reason, "created again" in blocker.message) == (NO_ANSWER.reason, True)
        rig.clock.advance(2)
        assert not await state.plan_is_stale(frozenset([other])), "its epoch goes on"
    undo()
    rig.clock.advance(2)
    assert await state.plan_is_stale(frozenset([other]))
    await state.refresh(owned=frozenset())
    assert state.table.plannable() == {P, other}
    assert (await state.positions.refresh())[P] == (0 if is_recreated else 5)


async def test_a_topic_whose_source_shows_no_ids_is_copied(rig: FlowRig) -> None:
    """Brokers before Kafka 2.8; a newer one may have shown one before."""
    rig.source.topics["t"] = replace(rig.source.topics["t"], topic_id=UUID(int=0))
    await rig.write(rig.source, "t", 9)
    state = await rig.owner(TRANSLATED)
    assert state.table.plannable() == {P}
    await state.journal.position(P, 9)
    await state.journal.record(TopicFact(topic="t", topic_id="of a newer broker", known_partitions=1))
    after = await rig.owner(TRANSLATED)
    assert after.table.plannable() == {P}
    assert (after.table.rows[P].position, ledger(after)) == (9, [])


async def test_the_ids_of_deleted_topics_that_are_remembered_are_bounded(rig: FlowRig) -> None:
    state = await rig.owner(TRANSLATED)
    ids = [rig.source.topic_id("t")]
    for _ in range(MOST_FORMER_IDS + 3):
        rig.source.add_topic("t")
        ids.append(rig.source.topic_id("t"))
        rig.clock.advance(2)
        await state.refresh(owned=frozenset())
    mark = (await rig.owner(TRANSLATED)).control.topics["t"]
    assert (*mark.former_ids, mark.topic_id) == tuple(ids[-MOST_FORMER_IDS - 1 :])


@pytest.mark.parametrize("began_by", ["retention", "latest"])
@pytest.mark.parametrize("offsets", [TRANSLATED, AUTO, PRESERVED])
async def test_a_topic_that_is_recreated_before_its_position_was_stored_begins_at_its_first_record(
    rig: FlowRig, offsets: str, began_by: str
) -> None:
    """Also where the source's offsets are required and refused, so that nothing was decided."""
    await rig.write(rig.source, "t", 9)
    if offsets == PRESERVED:
        await rig.write(rig.target, "A.t", 3)
    if began_by == "retention":
        await rig.source.delete_records({P: 9})
    state = await rig.owner(offsets, LATEST if began_by == "latest" else "")
    assert state.table.rows[P].position == 9
    assert P not in await state.positions.refresh()
    rig.clock.advance(2)
    rig.source.add_topic("t")
    await rig.write(rig.source, "t", 20)
    await state.refresh(owned=frozenset())
    # What was set aside is looked at again after a while.
    rig.clock.advance(RETRY_SECONDS)
    await state.refresh(owned=frozenset())
    assert (state.table.rows[P].position, ledger(state)) == (0, [])


@pytest.mark.parametrize("offsets", [TRANSLATED, AUTO])
async def test_what_a_deleted_topic_had_behind_a_position_that_was_never_stored_is_a_gap(
    rig: FlowRig, offsets: str
) -> None:
    """Its first task was killed before it had stored anything."""
    await rig.write(rig.source, "t", 9)
    await rig.source.delete_records({P: 9})
    state = await rig.owner(offsets)
    await rig.write(rig.source, "t", 4)
    reported(state, position=9, source_end=13)
    await state.reread([P])
    rig.source.add_topic("t")
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    assert (state.table.rows[P].position, ledger(state)) == (0, [(9, 13, "TOPIC_RECREATED")])


async def test_since_when_a_topic_is_the_present_one_is_on_the_log(rig: FlowRig) -> None:
    """What the ledger has of before is about the deleted one, also where all of that was copied."""
    state = await rig.owner(TRANSLATED)
    assert state.control.topics["t"].since_ms == 0, "there was none before"
    rig.source.add_topic("t")
    rig.clock.advance(2)
    await state.refresh(owned=frozenset())
    since_ms = state.control.topics["t"].since_ms
    assert since_ms == rig.clock.now_ms()
    rig.target.add_topic("A.t")
    rig.clock.advance(2)
    await rig.say(state.decisions)
    await state.refresh(owned=frozenset())
    assert (await rig.owner(TRANSLATED)).control.topics["t"].since_ms == since_ms, "the copy is another one"


async def test_a_loss_names_the_topic_whose_offsets_it_has(rig: FlowRig) -> None:
    """Times do not tell: those of the tasks that find losses are of other clocks."""
    state, ids = await rig.owner(TRANSLATED), []
    for begin in (3, 7):
        lost = Gap(partition=P, from_offset=begin, to_offset=begin + 2, reason="RETENTION", found_at_ms=5)
        await state.ledger.write(lost)
        ids.append(rig.source.topic_id("t"))
        rig.source.add_topic("t")
        rig.clock.advance(2)
        await state.refresh(owned=frozenset())
    for each in (state, await rig.owner(TRANSLATED)):
        found = {gap.from_offset: gap.topic_id for gap in each.positions.gaps.values()}
        assert found == {3: ids[0], 7: ids[1]}
