"""Tasks of several flows in one worker: what happens to one is nothing to the others."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from twinlog_source.reasons import EndReason
from twinlog_source.task.run import TaskLostError, TaskOutcome, TaskSpec
from twinlog_source.task.shared_worker import serve_all

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

Ended = tuple[str, str]
LOST = EndReason.LEASE_LOST, "the control stream broke"
ENDED = EndReason.END_OF_EPOCH, ""
OVER = EndReason.REFUSED, "the epoch is over"


@dataclass(slots=True)
class Connection:
    """To a driver that is told by the test what to do with it."""

    spec: TaskSpec
    serve: Callable[["Connection"], Awaitable[Ended]]
    was_served: bool = False

    async def run(self) -> Ended:
        return await self.serve(self)


async def served_by(serve: Callable[[Connection], Awaitable[Ended]]) -> list[TaskOutcome]:
    async with asyncio.timeout(60):
        return await serve_all(SPECS, lambda spec: Connection(spec, serve), again_seconds=0.0)


async def test_a_task_that_is_lost_or_crashes_is_run_again_while_the_others_continue() -> None:
    served: Counter[str] = Counter()
    others_may_end = asyncio.Event()

    async def serve(connection: Connection) -> Ended:
        flow = connection.spec.flow_name
        served[flow] += 1
        connection.was_served = True
        if flow != "A->C":
            await others_may_end.wait()
            return ENDED
        match served[flow]:
            case 1:
                return LOST
            case 2:
                raise RuntimeError("a mistake of ours")
        others_may_end.set()
        return OVER

    outcomes = await served_by(serve)
    assert served == {"A->C": 3, "B->C": 1, "D->C": 1}
    assert [outcome.reason for outcome in outcomes] == [
        EndReason.REFUSED,
        EndReason.END_OF_EPOCH,
        EndReason.END_OF_EPOCH,
    ]


async def test_a_task_that_its_driver_does_not_serve_tries_again_while_another_is_served() -> None:
    tries: Counter[str] = Counter()
    another_is_served, others_may_end = asyncio.Event(), asyncio.Event()

    async def serve(connection: Connection) -> Ended:
        flow = connection.spec.flow_name
        tries[flow] += 1
        if flow == "A->C":
            if tries[flow] < 100:
                return EndReason.LEASE_LOST, "the control stream broke: RESOURCE_EXHAUSTED"
            others_may_end.set()
            return OVER
        # The others were turned away, too, but not for long.
        if tries[flow] == 1:
            if flow == "D->C":
                await another_is_served.wait()
            return LOST
        connection.was_served = True
        another_is_served.set()
        await others_may_end.wait()
        return ENDED

    await served_by(serve)
    assert tries == {"A->C": 100, "B->C": 2, "D->C": 2}


@pytest.mark.parametrize("last", FLOWS)
async def test_a_worker_without_a_driver_ends_and_leaves_nothing_running(last: str) -> None:
    tries: Counter[str] = Counter()
    running: Counter[str] = Counter()
    others_were_turned_away = asyncio.Event()

    async def serve(connection: Connection) -> Ended:
        flow = connection.spec.flow_name
        tries[flow] += 1
        running[flow] += 1
        if all(tries[each] >= 2 for each in FLOWS if each != last):
            others_were_turned_away.set()
        try:
            if flow == last:
                # It is served until its driver is gone, and that is so for the others already.
                connection.was_served = tries[flow] == 1
                await others_were_turned_away.wait()
            elif tries[flow] > 2:
                await asyncio.Event().wait()
        finally:
            running[flow] -= 1
        return EndReason.LEASE_LOST, "no answer"

    with pytest.raises(TaskLostError, match="no answer"):
        await served_by(serve)
    assert tries[last] == 2
    assert not running.total()
