"""An offset-syncs topic that was deleted and created again is another one, also where it is longer."""

import asyncio

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.flow.parts import FlowParts
from unit.checkpoint.checkpoint_rig import SYNCS_TOPIC, CheckpointFlowRig, turns

ORDERS = TopicPartition("orders", 0)
SYNCS = TopicPartition(SYNCS_TOPIC, 0)


def pairs(parts: FlowParts) -> list[tuple[int, int]]:
    known = parts.pairs(ORDERS)
    condensed = None if known is None else known.condensed()
    return [] if condensed is None else [(pair.upstream, pair.downstream) for pair in condensed.pairs]


async def replaced(fakes: CheckpointFlowRig, *, syncs: int) -> None:
    """The topic is another one, with so many syncs, before anybody looks."""
    await fakes.source.delete_topics([SYNCS_TOPIC])
    fakes.source.add_topic(SYNCS_TOPIC, configs={"cleanup.policy": "compact"})
    for number in range(syncs):
        await fakes.write_sync("orders", 1000 + number * 10, number * 10)


@pytest.mark.parametrize("quiet_seconds", [0, 60])
async def test_a_syncs_topic_that_is_another_one_and_longer_is_read_from_its_start(
    quiet_seconds: int,
) -> None:
    fakes = CheckpointFlowRig()
    for number in range(3):
        await fakes.write_sync("orders", number * 10, number * 10 + 500)
    async with fakes.running() as parts:
        await turns(lambda: (20, 520) in pairs(parts))
        fakes.clock.advance(quiet_seconds or 2)
        await replaced(fakes, syncs=8)
        await turns(lambda: (1070, 70) in pairs(parts) and parts.syncs_are_read)
        assert (1000, 0) in pairs(parts)
        assert not any(downstream >= 500 for _, downstream in pairs(parts))


async def test_it_is_seen_after_an_outage_whatever_the_time() -> None:
    fakes = CheckpointFlowRig()
    for number in range(3):
        await fakes.write_sync("orders", number * 10, number * 10 + 500)
    async with fakes.running() as parts:
        await turns(lambda: (20, 520) in pairs(parts))
        fakes.source.take_away()
        await turns(lambda: parts.checkpointer.tail.blocker)
        fakes.source.bring_back()
        await replaced(fakes, syncs=8)
        await eventually(lambda: (1070, 70) in pairs(parts) and parts.syncs_are_read)
        assert (1000, 0) in pairs(parts)


async def test_a_look_at_the_topic_that_fails_loses_no_sync() -> None:
    fakes = CheckpointFlowRig()
    await fakes.write_sync("orders", 0, 0)
    async with fakes.running() as parts:
        await turns(lambda: (0, 0) in pairs(parts))
        refused: list[Call] = []

        def refuse(call: Call) -> None:
            if not refused:
                refused.append(call)
                raise TransientKafkaError("no answer")

        fakes.source.intercept("describe_topics", refuse)
        fakes.clock.advance(5)
        await fakes.write_sync("orders", 10, 10)
        await eventually(lambda: (10, 10) in pairs(parts))
        assert refused


async def test_syncs_that_a_new_leader_does_not_have_are_not_waited_for() -> None:
    """They were lost while they were read; without new syncs their offsets never come again."""
    fakes = CheckpointFlowRig()
    for number in range(3):
        await fakes.write_sync("orders", number * 10, number * 10)

    def tell_more(call: Call) -> None:
        if call.arguments["spec"] is OffsetSpec.LATEST and SYNCS in call.result:
            call.result[SYNCS] += 5

    undo = fakes.source.intercept("list_offsets", tell_more, after=True)
    parts, stop = fakes.parts(), asyncio.Event()
    tail = parts.checkpointer.tail
    async with asyncio.TaskGroup() as group:
        group.create_task(tail.run(stop), name="tail")
        await eventually(lambda: "returned no records" in tail.problem)
        assert not parts.syncs_are_read
        undo()
        await eventually(lambda: (20, 20) in pairs(parts) and parts.syncs_are_read)
        stop.set()
