"""How loops end: supervise's four cases, and the loop that retries."""

import asyncio
from collections.abc import Mapping

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError, TwinlogError
from twinlog.service.runtime import Backoff, Loop, LoopExited, retrying_loop, supervise
from twinlog.service.waiting import finish_or_cancel, timeout_of_own_time, wait_for_any, wait_or_stop
from twinlog.testing.virtual_time import LoopClock, run_in_virtual_time


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _stop_after(stop: asyncio.Event, seconds: float) -> None:
    await wait_or_stop(asyncio.Event(), seconds)
    stop.set()


async def _supervise(*, stop_after: float, **loops: Loop) -> float:
    """Supervise and return when it ended."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        stopper = group.create_task(_stop_after(stop, stop_after), name="stopper")
        try:
            await supervise(loops, stop=stop, grace_seconds=5.0)
        finally:
            stopper.cancel()
    return _now()


async def _drains(stop: asyncio.Event) -> None:
    await stop.wait()
    await wait_or_stop(asyncio.Event(), 2.0)


async def test_a_clean_stop_waits_for_loops_to_drain() -> None:
    assert await _supervise(stop_after=10, one=_drains, two=_drains) == pytest.approx(12)


async def test_a_stuck_loop_is_cancelled_at_the_end_of_the_grace_and_cleans_up() -> None:
    cleaned_up = []

    async def stuck(stop: asyncio.Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(_now())

    ended = await _supervise(stop_after=10, stuck=stuck, good=_drains)

    assert ended == pytest.approx(15)
    assert cleaned_up == [pytest.approx(15)]


async def test_a_crash_surfaces_at_once_and_cancels_the_others() -> None:
    cancelled = []

    async def crashes(stop: asyncio.Event) -> None:
        await wait_or_stop(stop, 3)
        raise ValueError("broken")

    async def other(stop: asyncio.Event) -> None:
        try:
            await stop.wait()
        except asyncio.CancelledError:
            cancelled.append(_now())
            raise

    with pytest.raises(ExceptionGroup) as failure:
        await _supervise(stop_after=10, crashes=crashes, other=other)

    assert failure.group_contains(ValueError, match="broken")
    assert cancelled == [pytest.approx(3)]


async def test_a_loop_that_returns_before_stop_is_a_failure_that_names_it() -> None:
    async def leaves(stop: asyncio.Event) -> None:
        return

    with pytest.raises(ExceptionGroup) as failure:
        await _supervise(stop_after=10, leaves=leaves, good=_drains)

    assert failure.group_contains(LoopExited, match="'leaves'")


async def test_a_failure_while_draining_lets_the_others_drain_first() -> None:
    drained = []

    async def fails(stop: asyncio.Event) -> None:
        await stop.wait()
        raise ValueError("late")

    async def good(stop: asyncio.Event) -> None:
        await _drains(stop)
        drained.append(_now())

    with pytest.raises(ExceptionGroup) as failure:
        await _supervise(stop_after=10, fails=fails, good=good)

    assert failure.group_contains(ValueError, match="late")
    assert drained == [pytest.approx(12)]


async def test_waiting_ends_by_stop_or_by_time() -> None:
    stop = asyncio.Event()
    assert not await wait_or_stop(stop, 7)
    assert _now() == pytest.approx(7)
    async with asyncio.TaskGroup() as group:
        group.create_task(_stop_after(stop, 1), name="stopper")
        assert await wait_or_stop(stop, 7)
    assert _now() == pytest.approx(8)


async def test_waiting_for_any_event_leaves_no_waiter_behind() -> None:
    one, other = asyncio.Event(), asyncio.Event()
    assert not await wait_for_any(one, other, seconds=2)
    async with asyncio.TaskGroup() as group:
        group.create_task(_stop_after(other, 1), name="setter")
        assert await wait_for_any(one, other, seconds=5)
    assert len(asyncio.all_tasks()) == 1


async def test_waiting_for_one_event_ends_by_it_or_by_time() -> None:
    event = asyncio.Event()
    assert not await wait_for_any(event, seconds=2)
    async with asyncio.TaskGroup() as group:
        group.create_task(_stop_after(event, 1), name="setter")
        assert await wait_for_any(event)
    assert _now() == pytest.approx(3)


async def test_a_step_that_waits_for_a_broker_is_cut_short_after_stop() -> None:
    stop = asyncio.Event()

    async def step() -> str:
        await wait_or_stop(asyncio.Event(), 30)
        return "answer"

    async with asyncio.TaskGroup() as group:
        group.create_task(_stop_after(stop, 2), name="stopper")
        assert await finish_or_cancel(step(), stop=stop, grace_seconds=3) is None
        assert _now() == pytest.approx(5)


async def test_a_step_that_ends_in_time_gives_its_result_and_its_error() -> None:
    stop = asyncio.Event()

    async def answers() -> str:
        await wait_or_stop(stop, 1)
        return "answer"

    async def refuses() -> str:
        raise FatalKafkaError("no")

    async def times_out() -> str:
        raise TimeoutError("its own")

    with pytest.raises(FatalKafkaError, match="no"):
        await finish_or_cancel(refuses(), stop=stop)
    with pytest.raises(TimeoutError, match="its own"):
        await finish_or_cancel(times_out(), stop=stop)
    assert await finish_or_cancel(answers(), stop=stop) == "answer"


def test_backoff_grows_to_its_bound_and_starts_again_after_a_success() -> None:
    backoff = Backoff(initial_seconds=1, max_seconds=5, random=lambda: 0.5)

    waits = [backoff.next() for _ in range(5)]
    backoff.reset()

    assert waits == [0.5, 1.0, 2.0, 2.5, 2.5]
    assert backoff.next() == 0.5


def _retrying(failures: Mapping[int, TwinlogError], *, until: float) -> tuple[list[float], list[str]]:
    """Run steps that take one second; those in `failures` fail. Returns when each began, and the reasons."""
    begun: list[float] = []
    reasons: list[str] = []

    async def scenario() -> None:
        stop = asyncio.Event()

        async def step() -> None:
            begun.append(_now())
            await wait_or_stop(asyncio.Event(), 1)
            failure = failures.get(len(begun))
            if failure is not None:
                raise failure

        async with asyncio.TaskGroup() as group:
            group.create_task(_stop_after(stop, until), name="stopper")
            await retrying_loop(
                "steps",
                step,
                stop=stop,
                interval_seconds=10,
                backoff=Backoff(initial_seconds=2, max_seconds=100, random=lambda: 1.0),
                clock=LoopClock(),
                on_error=lambda error: reasons.append(error.reason),
            )

    run_in_virtual_time(scenario())
    return begun, reasons


def test_steps_begin_at_their_interval_whatever_they_take() -> None:
    begun, reasons = _retrying({}, until=25)

    assert begun == [0, pytest.approx(10), pytest.approx(20)]
    assert reasons == []


def test_a_failed_step_is_repeated_after_a_growing_backoff_retriable_or_not() -> None:
    failures = {
        1: TransientKafkaError("away"),
        2: FatalKafkaError("no right"),
        3: TransientKafkaError("away"),
    }
    begun, reasons = _retrying(failures, until=30)

    assert begun == [0, pytest.approx(3), pytest.approx(8), pytest.approx(17), pytest.approx(27)]
    assert reasons == ["KAFKA_UNAVAILABLE", "KAFKA_REFUSED", "KAFKA_UNAVAILABLE"]


def test_a_loop_without_an_interval_sleeps_until_its_step_is_due_or_it_is_woken() -> None:
    begun: list[float] = []

    async def scenario() -> float:
        stop, woken = asyncio.Event(), asyncio.Event()

        async def step() -> None:
            begun.append(_now())
            await wait_or_stop(stop, 1)

        async with asyncio.TaskGroup() as group:
            group.create_task(_stop_after(woken, 30), name="waker")
            group.create_task(_stop_after(stop, 31.5), name="stopper")
            await retrying_loop(
                "steps",
                step,
                stop=stop,
                interval_seconds=lambda: 20,
                backoff=Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0),
                clock=LoopClock(),
                woken=woken,
            )
        return _now()

    assert run_in_virtual_time(scenario()) == pytest.approx(31.5)
    assert begun == [0, pytest.approx(21), pytest.approx(30)]


def test_a_step_that_only_waits_for_news_holds_no_stop_up() -> None:
    async def scenario() -> float:
        stop = asyncio.Event()

        async def step() -> None:
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(_stop_after(stop, 5), name="stopper")
            await retrying_loop(
                "news",
                step,
                stop=stop,
                interval_seconds=0.0,
                backoff=Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0),
                clock=LoopClock(),
                grace_seconds=0.0,
            )
        return _now()

    assert run_in_virtual_time(scenario()) == pytest.approx(5)


def test_a_defect_in_a_step_ends_the_loop() -> None:
    async def scenario() -> None:
        async def step() -> None:
            raise KeyError("defect")

        await retrying_loop(
            "steps",
            step,
            stop=asyncio.Event(),
            interval_seconds=1,
            backoff=Backoff(initial_seconds=1, max_seconds=1, random=lambda: 1.0),
            clock=LoopClock(),
        )

    with pytest.raises(KeyError, match="defect"):
        run_in_virtual_time(scenario())


async def test_what_comes_while_the_process_was_starved_is_not_late() -> None:
    loop = asyncio.get_running_loop()
    async with timeout_of_own_time(10.0):
        for _ in range(5):
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn


async def test_nothing_that_comes_is_late_by_the_time_of_the_process() -> None:
    with pytest.raises(TimeoutError):
        async with timeout_of_own_time(5.0):
            await asyncio.Event().wait()
    assert _now() == pytest.approx(5.0)
