"""Whether a failover is in effect, as the record of the checkpoint service says it."""

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState
from twinlog_checkpoint.journal.record_format import encode_record
from twinlog_checkpoint.journal.record_parts import part_key
from twinlog_configsync.model.failover_record import Failover, failover_in_effect

FLOW = Flow("A", "B")
PLACE = TopicPartition("mm2-failover.A.internal", 0)


async def test_a_leader_that_shows_less_than_was_told_is_asked_again_and_damages_nothing() -> None:
    target = FakeCluster("B", clock=FakeClock())
    assert await failover_in_effect(target, FLOW) == Failover()
    target.add_topic(PLACE.topic, configs={"cleanup.policy": "compact"})
    async with target.writer() as writer:
        key, value = b'["TwinlogMove",{"flow":"A->B"}]', b'{"kind":"failover","state":"DONE"}'
        await writer.append(PLACE, key=key, value=value)
    assert "moved to B" in (await failover_in_effect(target, FLOW)).words

    def tell_more(call: Call) -> None:
        if call.arguments["spec"] is not OffsetSpec.EARLIEST:
            call.result[PLACE] += 1

    target.intercept("list_offsets", tell_more, after=True)
    with pytest.raises(TransientKafkaError, match="returned no records from offset 1 on"):
        await failover_in_effect(target, FLOW)


@pytest.mark.parametrize("count", [1, 7_000])
async def test_the_fences_are_those_that_the_checkpoint_service_records(count: int) -> None:
    """Thousands of them are in records of their own."""
    fences = tuple(fence_of(f"orders-{number}") for number in range(count))
    record = MoveRecord(
        run_id="1",
        kind=MoveKind.FAILOVER,
        state=MoveState.DONE,
        groups=(),
        by="ops",
        started_ms=1,
        fences=fences[1:],
        former_fences=fences[:1],
    )
    target = FakeCluster("B", clock=FakeClock())
    target.add_topic(PLACE.topic, configs={"cleanup.policy": "compact"})
    key, value, parts = encode_record(FLOW, record)
    async with target.writer() as writer:
        for name, part in parts.items():
            await writer.append(PLACE, key=part_key(FLOW, name), value=part)
            await writer.append(PLACE, key=part_key(Flow("C", "B"), name), value=b"{}")
        await writer.append(PLACE, key=key, value=value)
    assert (await failover_in_effect(target, FLOW)).fences == frozenset(fences)
    assert bool(parts) is (count > 1)
