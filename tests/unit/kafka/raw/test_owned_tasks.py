"""A mistake in the background is told to the task that uses its work, not to the one that opened it."""

import asyncio

import pytest

from twinlog.kafka.raw.owned_tasks import OwnedTasks
from twinlog.testing.brokers import eventually


async def test_an_unexpected_error_ends_the_others_and_leaves_the_task_that_opened_them_alone() -> None:
    told: list[Exception] = []
    tasks = OwnedTasks("a test", told.append)
    opened, may_end = asyncio.Event(), asyncio.Event()

    async def opens() -> str:
        await tasks.open()
        opened.set()
        await may_end.wait()
        return "not cancelled"

    async def fails() -> None:
        raise ZeroDivisionError("a mistake of ours")

    async def continues() -> None:
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        opener = group.create_task(opens(), name="opens")
        await opened.wait()
        other = tasks.create_task(continues(), name="continues")
        tasks.create_task(fails(), name="fails")
        assert await eventually(lambda: told)
        assert other.cancelled()
        may_end.set()
    assert opener.result() == "not cancelled"
    await tasks.close()
    assert [type(error) for error in told] == [ZeroDivisionError]


async def test_it_is_closed_by_another_task_than_opened_it() -> None:
    told: list[Exception] = []
    tasks = OwnedTasks("a test", told.append)
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    async with asyncio.TaskGroup() as group:
        await group.create_task(tasks.open(), name="opens")
        tasks.create_task(work(), name="work")
        await group.create_task(tasks.close(), name="closes")
    assert (done, told) == ([1], [])


async def test_an_opening_that_is_cancelled_leaves_no_owner() -> None:
    told: list[Exception] = []
    tasks = OwnedTasks("a test", told.append)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await tasks.open()
    assert await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_what_was_never_opened_is_closed_at_once() -> None:
    told: list[Exception] = []
    await OwnedTasks("a test", told.append).close()
    assert not told
