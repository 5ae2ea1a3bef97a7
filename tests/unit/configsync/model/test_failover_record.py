"""Whether a failover is in effect, as the record of the checkpoint service says it."""

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import Flow, TopicPartition
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.model.failover_record import failover_in_effect

FLOW = Flow("A", "B")
PLACE = TopicPartition("mm2-failover.A.internal", 0)


async def test_a_leader_that_shows_less_than_was_told_is_asked_again_and_damages_nothing() -> None:
    target = FakeCluster("B", clock=FakeClock())
    assert await failover_in_effect(target, FLOW) == ""
    target.add_topic(PLACE.topic, configs={"cleanup.policy": "compact"})
    async with target.writer() as writer:
        key, value = b'["TwinlogMove",{"flow":"A->B"}]', b'{"kind":"failover","state":"DONE"}'
        await writer.append(PLACE, key=key, value=value)
    assert "moved to B" in await failover_in_effect(target, FLOW)

    def tell_more(call: Call) -> None:
        if call.arguments["spec"] is not OffsetSpec.EARLIEST:
            call.result[PLACE] += 1

    target.intercept("list_offsets", tell_more, after=True)
    with pytest.raises(TransientKafkaError, match="returned no records from offset 1 on"):
        await failover_in_effect(target, FLOW)
