"""Tasks of several flows in one worker: what happens to one is nothing to the others."""

import asyncio
from collections import Counter

import pytest

from twinlog_source.reasons import EndReason
from twinlog_source.task.run import TaskLostError, TaskSpec
from twinlog_source.task.shared_worker import Served, serve_all

FLOWS = ("A->C", "B->C", "D->C")
SPECS = [
    TaskSpec(
        flow_name=flow,
        epoch=7,
        slot=0,
        driver_endpoint="127.0.0.1:1",
        driver_certificate="",
        token="t",
        connect_timeout_seconds=1.0,
    )
    for flow in FLOWS
]

LOST = Served(reason=EndReason.LEASE_LOST, message="the control stream broke", was_served=True)
ENDED = Served(reason=EndReason.END_OF_EPOCH, message="", was_served=True)


async def test_a_task_that_is_lost_or_crashes_is_run_again_while_the_others_continue() -> None:
    served: Counter[str] = Counter()
    others_may_end = asyncio.Event()

    async def serve(spec: TaskSpec) -> Served:
        served[spec.flow_name] += 1
        if spec.flow_name != "A->C":
            await others_may_end.wait()
            return ENDED
        match served["A->C"]:
            case 1:
                return LOST
            case 2:
                raise RuntimeError("a mistake of ours")
        others_may_end.set()
        return Served(reason=EndReason.REFUSED, message="the epoch is over", was_served=False)

    async with asyncio.timeout(60):
        outcomes = await serve_all(SPECS, serve, again_seconds=0.0)
    assert served == {"A->C": 3, "B->C": 1, "D->C": 1}
    assert [outcome.reason for outcome in outcomes] == [
        EndReason.REFUSED,
        EndReason.END_OF_EPOCH,
        EndReason.END_OF_EPOCH,
    ]


@pytest.mark.parametrize("first", FLOWS)
async def test_a_worker_without_a_driver_ends_and_leaves_nothing_running(first: str) -> None:
    ended: set[str] = set()

    async def serve(spec: TaskSpec) -> Served:
        try:
            if spec.flow_name != first:
                await asyncio.Event().wait()
        finally:
            ended.add(spec.flow_name)
        return Served(reason=EndReason.LEASE_LOST, message="no answer", was_served=False)

    async with asyncio.timeout(60):
        with pytest.raises(TaskLostError):
            await serve_all(SPECS, serve, again_seconds=0.0)
    assert ended == set(FLOWS)
