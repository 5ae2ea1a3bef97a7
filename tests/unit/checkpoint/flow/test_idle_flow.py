"""What a flow without news costs: hundreds of them in a process must stay cheap."""

import asyncio
from collections import Counter

from twinlog.service.waiting import wait_or_stop
from twinlog.testing.fakes.cluster import Call
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig

SECONDS = 60


async def test_an_idle_flow_asks_for_offset_syncs_once_in_a_few_seconds() -> None:
    fakes = CheckpointFlowRig()
    asked: Counter[str] = Counter()

    def count(call: Call) -> None:
        asked[call.operation] += 1

    async with fakes.running():
        fakes.source.intercept("fetch", count)
        await wait_or_stop(asyncio.Event(), SECONDS)
    assert 0 < asked["fetch"] <= SECONDS / 5 + 1
