"""What is read of the positions topics that name producers of copies, and of those that cannot be read."""

import asyncio
from dataclasses import replace

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNAVAILABLE, from_code, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record
from unit.source.topics.test_origins import (
    EVERYWHERE,
    NOWHERE,
    OF_A,
    STRANGER,
    WRITER,
    P,
    Sides,
    asked,
    of,
    owned,
    why_unknown,
)
from unit.source.topics.test_origins import sides as sides


async def test_without_the_table_of_ids_nothing_is_judged(sides: Sides) -> None:
    await sides.begun()
    origins = await sides.origins()
    await asked(origins, sides, STRANGER)
    del sides.b.topics[OF_A]
    assert "does not exist on B" in str(await why_unknown(origins, sides))
    assert "does not exist on B" in str(await why_unknown(await sides.origins(), sides))
    sides.b.add_topic(OF_A)
    assert "was deleted and created again" in str(await why_unknown(origins, sides))


async def test_a_table_that_cannot_be_read_is_no_empty_one(sides: Sides) -> None:
    await sides.begun()
    origins = await sides.origins()

    def refuse(call: Call) -> None:
        raise from_reason(UNAVAILABLE, "fetch", alias="B")

    remove = sides.b.intercept("fetch", refuse)
    assert (await why_unknown(origins, sides)).reason == UNAVAILABLE.name
    remove()
    assert await asked(origins, sides, WRITER) == EVERYWHERE


async def test_the_ids_of_a_flow_that_does_not_come_back_hold_up_nothing(sides: Sides) -> None:
    await sides.begun()
    sides.b.add_topic("mm2-offsets.X.internal")
    origins = await sides.origins()
    assert await asked(origins, sides, STRANGER) == NOWHERE
    sides.b.add_topic("mm2-offsets.X.internal")
    assert await asked(origins, sides, STRANGER) == NOWHERE
    del sides.b.topics["mm2-offsets.X.internal"]
    assert await asked(origins, sides, WRITER) == EVERYWHERE


async def test_a_table_that_cannot_be_read_holds_up_only_what_it_may_be_about(sides: Sides) -> None:
    """A flow of another file may have any name for the cluster from which it copies."""
    await sides.begun()
    sides.more = "A->B.enabled = false\n"
    of_x = of(9, "cluster X")
    of_a = replace(of_x, source_cluster_id="cluster A")
    away, forbidden = from_reason(UNAVAILABLE, "fetch"), from_code(29, "fetch")
    for failure, told, is_waited_for in (
        (away, (), True),
        (forbidden, (), False),
        (away, (of_x,), False),
        (away, (of_a,), True),
        (forbidden, (of_a,), True),
    ):
        sides.b.add_topic(table := "mm2-offsets.X.internal")
        await sides.write(sides.b, table, source_offset_key("X", P), encode_source_offset(5))
        for fact in told:
            await sides.tell("X", fact)
        origins = await sides.origins()
        if told:
            await asked(origins, sides, STRANGER)
            await sides.tell("X", replace(told[0], producer_id=10))

        def refuse(call: Call, failure: KafkaError = failure, table: str = table) -> None:
            if call.arguments["partition"].topic == table:
                raise failure

        remove = sides.b.intercept("fetch", refuse)
        if is_waited_for:
            assert (await why_unknown(origins, sides)).reason == failure.reason
        else:
            assert await asked(origins, sides, STRANGER) == NOWHERE
            assert await asked(origins, sides, WRITER) == EVERYWHERE
        remove()
        await asked(origins, sides, STRANGER)


async def test_what_is_asked_together_is_answered_by_one_look(sides: Sides) -> None:
    await sides.begun()
    origins = await sides.origins()
    calls: list[str] = []
    for name in ("list_topics", "describe_topics", "list_offsets", "fetch"):
        sides.b.intercept(name, lambda call: calls.append(call.operation))
    async with asyncio.TaskGroup() as group:
        for producer_id in range(100, 150):
            group.create_task(asked(origins, sides, producer_id), name=str(producer_id))
    assert calls.count("list_topics") <= 2
    calls.clear()
    await asked(origins, sides, 200)
    assert calls == ["list_topics", "describe_topics", "list_offsets"], (
        "what has not changed is not read again"
    )


async def test_facts_of_a_later_format_are_not_guessed(sides: Sides) -> None:
    key, _ = fact_record(
        "A",
        of(4, "cluster A"),
    )
    await sides.write(sides.b, OF_A, key, b'{"format":99}')
    assert (await why_unknown(await sides.origins(), sides)).reason == "WIRE_VERSION"


@pytest.mark.parametrize("writer", ["a stranger", "nobody can read it"])
async def test_records_about_producers_that_the_flow_did_not_write_are_not_believed(
    sides: Sides, writer: str
) -> None:
    """Neither the batches of an application are left out because of one, nor are copies copied back."""
    await sides.begun()
    origins = await sides.origins()
    for fact in (of(STRANGER, "cluster A"), of(WRITER, "cluster X")):
        key, value = fact_record("A", fact)
        await sides.write(sides.b, OF_A, key, value if writer == "a stranger" else b'{"format":1}')
        why = await why_unknown(origins, sides)
        assert (why.reason, "did not write" in str(why)) == ("ORIGIN_UNKNOWN", True)
        await sides.tell("A", replace(fact, source_cluster_id="cluster A"))
        assert await asked(origins, sides, WRITER) == EVERYWHERE


async def test_a_later_process_notices_that_the_table_is_gone(sides: Sides) -> None:
    await sides.begun()
    await sides.note(origins := await sides.origins(), 0)
    await asked(origins, sides, WRITER)
    await sides.with_journal(lambda journal: origins.remember([P], {"orders": sides.topic()}, journal, owned))
    assert await asked(await sides.origins(), sides, WRITER) == EVERYWHERE
    del sides.b.topics[OF_A]
    sides.b.add_topic(OF_A)
    await sides.begun()
    later = await sides.origins()
    assert "was deleted" in str(await why_unknown(later, sides))
    await sides.with_journal(lambda journal: later.forget([P], journal, owned))
    assert await asked(later, sides, STRANGER) == NOWHERE
    await sides.with_journal(lambda journal: later.remember([P], {"orders": sides.topic()}, journal, owned))
    assert await asked(await sides.origins(), sides, WRITER) == EVERYWHERE


async def test_a_partition_of_which_nothing_is_known_holds_up_no_other(sides: Sides) -> None:
    """One that left the flow, and one that no flow copies back while the ids of the other one are missing."""
    await sides.begun()
    origins = await sides.origins()
    left, alone = TopicPartition("left", 0), TopicPartition("alone", 0)
    sides.b.add_topic("alone")
    topics = {
        "orders": sides.topic(),
        "alone": replace(sides.topic(), source_topic="alone", target_topic="alone"),
    }
    assert await origins.judge({left: [STRANGER], P: [WRITER]}, topics) == {(P, WRITER): EVERYWHERE}
    with pytest.raises(KafkaError, match="no topic of the flow"):
        await origins.judge({left: [STRANGER]}, topics)
    del sides.b.topics[OF_A]
    origins = await sides.origins()
    found = await origins.judge({P: [WRITER], alone: [STRANGER]}, topics)
    assert found == {(alone, STRANGER): NOWHERE}
