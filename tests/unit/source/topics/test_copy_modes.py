"""How a copy begins: whether it has its source's offsets, and from where."""

import pytest

from twinlog.errors import TransientKafkaError, TwinlogError
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import ConfigChange
from twinlog.testing.fakes.cluster import Call
from twinlog_source.log.facts import ProducerFact, TopicFact
from twinlog_source.topics.flow_book import RETRY_SECONDS
from unit.source.flow_rig import FlowRig, P, ledger, set_position
from unit.source.topics.copy_modes_rig import (
    AUTO,
    COPY,
    NOT_EXACT,
    PRESERVED,
    TRANSLATED,
    assigned,
    blocker,
    kind,
    probe_of,
    told,
    write,
)


async def test_a_new_copy_is_preserved_and_begins_where_the_sources_log_starts(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 7)
    await rig.source.delete_records({P: 5})
    state = await rig.owner(AUTO)
    assert kind(state) == (True, 5, "", 0, 5)
    assert state.table.plannable() == {P}
    handed = assigned(state)
    assert (handed.position, handed.position_stored) == (5, False)
    assert handed.preserved is not None
    assert (handed.preserved.skip_from, handed.preserved.skip_to) == (0, 5)


async def test_what_began_before_is_translated_and_stays_so(rig: FlowRig) -> None:
    await (await rig.owner(TRANSLATED)).journal.position(P, 3)
    assert kind(await rig.owner(AUTO)) == (False, 0, "POSITION_STORED", 0, 0)
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "POSITION_STORED", 0, 0)
    assert assigned(state).preserved is None
    assert assigned(state).position == 3


async def test_a_copy_of_nothing_yet_can_still_be_preserved(rig: FlowRig) -> None:
    await (await rig.owner(TRANSLATED)).journal.position(P, 0)
    assert kind(await rig.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_compacted_target_and_one_with_records_are_translated(rig: FlowRig) -> None:
    await rig.write(rig.target, "A.t", 1)
    assert kind(await rig.owner(AUTO))[2] == "TARGET_NOT_EMPTY"
    rig.target.add_topic("A.t")
    await rig.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="compact")]})
    assert kind(await rig.owner(AUTO))[2] == "COMPACTED"


@pytest.mark.parametrize("settings", [(AUTO,), (TRANSLATED,), (AUTO, NOT_EXACT)])
async def test_what_others_wrote_before_a_copy_begins_is_foreign(
    rig: FlowRig, settings: tuple[str, ...]
) -> None:
    await rig.write(rig.target, "A.t", 5)
    await rig.target.delete_records({COPY: 2})
    rig.last_producers[COPY] = 77
    state = await rig.owner(*settings)
    assert state.table.plannable() == {P}, "it is copied all the same"
    assert told(state) == (3, [(2, 5, 77)])
    assert told(await rig.owner(*settings)) == (3, [(2, 5, 77)]), "the next owner knows it, too"


async def test_what_mirror_maker_copied_and_stored_a_position_of_is_not_foreign(rig: FlowRig) -> None:
    await rig.owner(TRANSLATED)
    await rig.write(rig.target, "A.t", 5)
    await rig.mirror_maker_stores(3)
    assert told(await rig.owner(AUTO)) == (0, [])


async def test_what_the_flow_itself_left_in_a_target_is_not_foreign(rig: FlowRig) -> None:
    first = await rig.owner(AUTO)
    writer = first.positions.control.writer
    assert writer is not None
    await first.journal.position(P, 7)
    rig.target.add_topic("A.t")
    await rig.write(rig.target, "A.t", 3)
    rig.last_producers[COPY] = writer.producer_id
    state = await rig.owner(AUTO)
    assert (kind(state)[2], told(state)) == ("TARGET_NOT_EMPTY", (0, []))


@pytest.mark.parametrize("names", [[], ["twinlog-A-B-0-2"]])
@pytest.mark.parametrize("settings", [AUTO, TRANSLATED])
async def test_a_copy_that_the_flow_has_written_waits_until_its_lost_position_is_told(
    rig: FlowRig, settings: str, names: list[str]
) -> None:
    """Also its ids are lost: coordinators know those of the last days."""
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [2, 3])
    rig.last_producers[COPY] = 77
    rig.known_producers = dict.fromkeys(names, 77)
    state = await rig.owner(settings)
    assert (blocker(state), told(state)[0]) == (("NO_POSITION", 0) if names else ("", 2))
    again = await rig.owner(settings)
    assert blocker(again) == ("NO_POSITION" if names else ""), "now the log has the id"
    await set_position(again, P, 3)
    assert assigned(again).position == 3
    assert assigned(await rig.owner(settings)).position == 3


async def test_a_copy_that_got_offsets_of_its_own_later_waits_until_its_lost_position_is_told(
    rig: FlowRig,
) -> None:
    """Its beginning is the source's: it would go on behind that, and copy the rest again."""
    await write(rig.source, P, [1, 2, 3, 4, 5])
    await write(rig.target, COPY, [1, 2, 9, 3, 4])
    rig.last_producers[COPY], rig.known_producers = 77, {"twinlog-A-B-0-2": 77}
    state = await rig.owner(AUTO)
    assert blocker(state) == "NO_POSITION"
    await set_position(state, P, 4)
    assert assigned(state).position == 4
    assert assigned(await rig.owner(AUTO)).position == 4


async def test_a_process_that_is_killed_while_it_stores_a_position_that_was_told_copies_nothing_again(
    rig: FlowRig,
) -> None:
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [2, 3])
    rig.last_producers[COPY], rig.known_producers = 77, {"twinlog-A-B-0-2": 77}
    state = await rig.owner(AUTO)
    assert blocker(state) == "NO_POSITION"

    def is_killed(_call: Call) -> None:
        if P in state.control.copies:
            raise TransientKafkaError("killed", reason="UNAVAILABLE")

    undo = rig.target.intercept("append", is_killed)
    with pytest.raises(TwinlogError):
        await set_position(state, P, 3)
    undo()
    again = await rig.owner(AUTO)
    assert assigned(again).position == 3


async def test_coordinators_that_do_not_tell_hold_up_only_copies_whose_last_producer_is_not_known(
    rig: FlowRig,
) -> None:
    for topic in ("a", "z"):
        rig.source.add_topic(topic)
        rig.target.add_topic(f"A.{topic}")
    await write(rig.target, COPY, [2, 3])
    rig.last_producers[COPY] = 77
    rig.known_producers = TransientKafkaError("no leader", reason="UNAVAILABLE")
    state = await rig.process(TRANSLATED, has_configsync=False)
    await rig.say(state.decisions, topics=("a", "t", "z"))
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert blocker(state) == "UNAVAILABLE"
    assert {each.topic for each in state.table.plannable()} == {"a", "z"}
    rig.known_producers = {}
    rig.clock.advance(RETRY_SECONDS)
    await state.refresh(owned=frozenset())
    assert (blocker(state), told(state)[0]) == ("", 2)


async def test_a_copy_that_is_told_where_it_begins_waits_for_no_coordinator(rig: FlowRig) -> None:
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [2, 3])
    rig.last_producers[COPY] = 77
    rig.known_producers = TransientKafkaError("no leader", reason="UNAVAILABLE")
    state = await rig.owner(TRANSLATED)
    assert blocker(state) == "UNAVAILABLE"
    await set_position(state, P, 3)
    assert assigned(state).position == 3


async def test_an_id_that_was_the_flows_on_another_target_is_somebody_elses_here(rig: FlowRig) -> None:
    """State that was imported to a cluster that was built again has the ids of the one before."""
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [2, 3])
    rig.last_producers[COPY] = 77
    state = await rig.process(TRANSLATED)
    await state.take_over(displaced=False)
    former = ProducerFact(
        producer_id=77,
        name="twinlog-A-B-0-2",
        cluster_id="cluster B before",
        source_cluster_id="cluster A",
        at_ms=1,
    )
    await state.journal.record(former)
    again = await rig.owner(TRANSLATED)
    assert (blocker(again), told(again)[0]) == ("", 2)


async def test_a_topic_whose_copy_has_the_name_of_anothers_is_copied_from_its_beginning(rig: FlowRig) -> None:
    rig.last_producers[COPY], rig.known_producers = 77, {"twinlog-A-B-0-2": 77}
    await write(rig.source, P, [1, 2, 3, 4])
    await write(rig.target, COPY, [2, 3])
    state = await rig.process(TRANSLATED)
    await state.take_over(displaced=False)
    copy_id = rig.target.topic_id(COPY.topic)
    await state.journal.record(
        TopicFact(topic="renamed", topic_id="id", known_partitions=1, target_topic_id=copy_id)
    )
    assert assigned(await rig.owner(TRANSLATED)).position == 0


async def test_a_copy_that_costs_too_much_is_translated_or_refused_as_configured(rig: FlowRig) -> None:
    little = "twinlog.offsets.fill.max = 4"
    await rig.write(rig.source, "t", 5)
    await rig.source.delete_records({P: 5})
    refused = await rig.owner(PRESERVED, little)
    assert blocker(refused) == "FILL_TOO_LARGE"
    assert refused.table.plannable() == frozenset()
    assert P not in refused.positions.control.copies
    assert kind(await rig.owner(AUTO, little)) == (False, 0, "FILL_TOO_LARGE", 0, 0)
    # It was decided once: a later demand does not change the copy, and is refused.
    state = await rig.owner(PRESERVED)
    assert blocker(state) == "FILL_TOO_LARGE"
    message = state.table.rows[P].blocker
    assert message is not None
    assert "delete the target topic" in message.message or "raise the key" in message.message


async def test_a_refused_copy_begins_once_the_cause_is_gone(rig: FlowRig) -> None:
    await rig.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="compact")]})
    state = await rig.owner(PRESERVED)
    assert blocker(state) == "COMPACTED"
    await rig.target.alter_topic_configs({"A.t": [ConfigChange(name="cleanup.policy", value="delete")]})
    rig.clock.advance(RETRY_SECONDS)
    assert await state.plan_is_stale(frozenset())
    assert kind(state)[0]


async def test_what_the_target_refuses_for_good_makes_a_copy_translated(rig: FlowRig) -> None:
    state = await rig.process(AUTO)
    probe_of(state).known[COPY] = from_code(29, "ask for producers", alias="B")
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert kind(state)[2] == "RIGHTS_MISSING"


@pytest.mark.parametrize("settings", [AUTO, TRANSLATED])
async def test_a_copy_that_may_not_be_read_begins_behind_what_it_holds(rig: FlowRig, settings: str) -> None:
    """MirrorMaker 2 needs no READ on its copies, and whose the records are is not known without it."""
    await rig.write(rig.target, "A.t", 5)
    rig.last_producers[COPY] = from_code(29, "read", alias="B")
    state = await rig.process(settings)
    probe_of(state).known[COPY] = from_code(29, "ask for producers", alias="B")
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert blocker(state) == ""
    assert state.table.plannable() == {P}
    assert told(state) == (0, [])


async def test_without_a_producer_identity_copies_are_translated(rig: FlowRig) -> None:
    state = await rig.process(AUTO)
    probe_of(state).no_writer = from_code(31, "initialise the producer", alias="B")
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert kind(state)[2] == "RIGHTS_MISSING"
    assert state.positions.control.writer is None


async def test_a_copy_of_which_nothing_is_known_now_waits(rig: FlowRig) -> None:
    state = await rig.process(AUTO)
    probe_of(state).known[COPY] = from_code(6, "ask for producers", alias="B")
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert (blocker(state), state.table.rows[P].copy) == ("LEADER_UNAVAILABLE", None)
    del probe_of(state).known[COPY]
    rig.clock.advance(RETRY_SECONDS)
    assert await state.plan_is_stale(frozenset())
    assert kind(state)[0]


async def test_a_flow_that_is_not_exactly_once_is_translated(rig: FlowRig) -> None:
    state = await rig.owner(AUTO, NOT_EXACT)
    assert kind(state)[2] == "TRANSACTIONS_DISABLED"


async def test_a_target_that_was_recreated_is_written_from_the_beginning(rig: FlowRig) -> None:
    """Nothing that the source still holds is missing from it: no gap."""
    await rig.write(rig.source, "t", 9)
    await rig.source.delete_records({P: 2})
    first = await rig.owner(AUTO)
    await first.journal.position(P, 7)
    rig.target.add_topic("A.t")
    state = await rig.owner(AUTO)
    assert kind(state) == (True, 2, "", 0, 2)
    assert (state.table.rows[P].position, ledger(state)) == (2, [])
    assert (await rig.owner(AUTO)).table.rows[P].position == 2


async def test_a_target_that_was_recreated_while_its_task_wrote_is_not_empty(rig: FlowRig) -> None:
    """What was on its way to the topic before may lie anywhere in the new one, also the end of a
    transaction."""
    first = await rig.owner(AUTO)
    writer = first.positions.control.writer
    assert writer is not None
    await first.journal.position(P, 7)
    rig.target.add_topic("A.t")
    await rig.write(rig.target, "A.t", 3)
    state = await rig.process(AUTO)
    probe_of(state).known[COPY] = [writer.producer_id]
    await state.take_over(displaced=False)
    await state.refresh(owned=frozenset())
    assert kind(state) == (False, 0, "TARGET_NOT_EMPTY", 0, 0)


async def test_a_translated_copy_that_was_recreated_is_decided_again(rig: FlowRig) -> None:
    await (await rig.owner(TRANSLATED)).journal.position(P, 3)
    assert not kind(await rig.owner(AUTO))[0]
    rig.target.add_topic("A.t")
    assert kind(await rig.owner(AUTO)) == (True, 0, "", 0, 0)


async def test_a_source_that_was_recreated_before_a_position_was_stored_begins_at_0(rig: FlowRig) -> None:
    await rig.write(rig.source, "t", 9)
    await rig.source.delete_records({P: 9})
    assert kind(await rig.owner(AUTO))[1] == 9
    rig.source.add_topic("t")
    state = await rig.owner(AUTO)
    assert kind(state) == (False, 0, "SOURCE_RECREATED", 0, 0)
    assert state.table.rows[P].position == 0


async def test_a_preserved_copy_that_is_given_a_router_of_records_waits_until_it_is_deleted(
    rig: FlowRig,
) -> None:
    router = (
        "transforms = big",
        "transforms.big.type = org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.big.regex = A.t",
        "transforms.big.replacement = A.big",
        "transforms.big.predicate = isBig",
        "predicates = isBig",
        "predicates.isBig.type = org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.isBig.name = big",
    )
    await rig.write(rig.source, "t", 2)
    assert kind(await rig.owner(AUTO))[0]
    state = await rig.owner(AUTO, *router)
    waits = state.table.rows[P].blocker
    assert waits is not None
    assert (waits.reason, "delete A.t, and it begins again" in waits.message) == ("ROUTE_REFUSED", True)
    assert state.table.plannable() == frozenset()
    # Without the router it goes on as it was; as a new topic it may have routes.
    assert kind(await rig.owner(AUTO))[0]
    await rig.target.delete_topics(["A.t"])
    rig.target.add_topic("A.t")
    state = await rig.owner(AUTO, *router)
    assert not kind(state)[0]
    assert state.table.plannable() == {P}
