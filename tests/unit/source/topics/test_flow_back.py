"""How far the flow back of another file has copied, by its positions topic."""

import pytest

from twinlog.errors import KafkaError
from twinlog.kafka.errors import UNAVAILABLE, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call
from twinlog.wire.source_offset import NOTHING_WRITTEN, encode_source_offset, source_offset_key
from twinlog_source.log.facts import CopyFact, TargetFact, TopicFact
from twinlog_source.topics.flow_back import CopiedBack, FlowBack
from unit.source.topics.test_origins import OF_A, P, Sides, of
from unit.source.topics.test_origins import sides as sides


async def flow_back(sides: Sides) -> FlowBack:
    sides.more = "A->B.enabled = false\n"
    reader = await sides.stack.enter_async_context(sides.b.reader())
    return FlowBack(ids=(await sides.origins()).ids, reader=reader)


async def copied_to(sides: Sides, position: int, *, nothing: bool = False) -> None:
    async with sides.b.writer() as writer:
        await writer.append(
            TopicPartition(OF_A, 0),
            key=source_offset_key("A", P),
            value=encode_source_offset(position),
            headers=((NOTHING_WRITTEN, b""),) if nothing else (),
        )


def copy(sides: Sides) -> CopyFact:
    there = sides.b.topic_id("orders")
    return CopyFact(partition=P, preserved=False, since=0, reason="BOTH_WAYS", target_topic_id=there)


def told(sides: Sides, position: int, target_end: int | None) -> list[CopiedBack]:
    ids = sides.a.topic_id("orders"), sides.b.topic_id("orders")
    return [CopiedBack(P, position, target_end, *ids)]


async def test_what_is_told_is_what_the_log_says(sides: Sides) -> None:
    back = await flow_back(sides)
    assert await back.told() == []
    await sides.begun()
    await copied_to(sides, 5, nothing=True)
    assert await back.told() == [], "its copy is not known"
    await sides.stored(copy(sides))
    assert await back.told() == told(sides, 5, 0)
    await copied_to(sides, 6)
    assert await back.told() == told(sides, 6, None)
    there = sides.b.topic_id("orders")
    await sides.stored(TargetFact(partition=P, topic_id=there, end_offset=9, position=6))
    assert await back.told() == told(sides, 6, 9)
    await sides.stored(TargetFact(partition=P, topic_id="former", end_offset=9, position=6))
    assert await back.told() == told(sides, 6, None)


async def test_while_the_log_cannot_be_read_or_is_another_one_nothing_old_is_told(sides: Sides) -> None:
    back = await flow_back(sides)
    await sides.begun()
    await copied_to(sides, 5)
    await sides.stored(copy(sides))
    assert await back.told() == told(sides, 5, None)

    def refuse(call: Call) -> None:
        raise from_reason(UNAVAILABLE, "list offsets", alias="B")

    remove = sides.b.intercept("list_offsets", refuse)
    with pytest.raises(KafkaError, match="no broker can be reached"):
        await back.told()
    remove()
    del sides.b.topics[OF_A]
    with pytest.raises(KafkaError, match="does not exist"):
        await back.told()
    sides.b.add_topic(OF_A)
    await copied_to(sides, 3)
    with pytest.raises(KafkaError, match="created again, and not written again"):
        await back.told()


async def test_what_two_flows_copy_is_not_told(sides: Sides) -> None:
    back = await flow_back(sides)
    await sides.begun()
    await copied_to(sides, 5)
    await sides.stored(copy(sides))
    sides.b.add_topic(of_x := "mm2-offsets.X.internal")
    await sides.tell("X", of(9, "cluster A"))
    await sides.tell("X", TopicFact(topic="orders", topic_id="x", known_partitions=1, target_topic_id="y"))
    assert await back.told() == told(sides, 5, None)
    await sides.tell("X", copy(sides))
    await sides.write(sides.b, of_x, source_offset_key("X", P), encode_source_offset(9))
    assert await back.told() == []
