"""A task gets ready for both of its clusters before it says so, whatever one of them does."""

import asyncio

import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog_source.task.assembly import make_ready


@pytest.mark.parametrize("order", [("A", "B"), ("B", "A")])
@pytest.mark.parametrize("kind", [TransientKafkaError, FatalKafkaError])
async def test_a_cluster_that_fails_leaves_the_other_ready(
    order: tuple[str, str], kind: type[KafkaError]
) -> None:
    ready: list[str] = []

    async def fail() -> None:
        raise kind("away", reason="KAFKA_UNAVAILABLE")

    async def get_ready() -> None:
        ready.append("B")

    ways = {"A": fail, "B": get_ready}
    await make_ready({name: ways[name] for name in order})
    assert ready == ["B"]


@pytest.mark.parametrize("order", [("A", "B"), ("B", "A")])
async def test_a_cluster_that_hangs_is_left_after_the_bound_and_keeps_the_other_from_nothing(
    order: tuple[str, str],
) -> None:
    ready: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ready.append("A was left")

    async def get_ready() -> None:
        ready.append("B")

    ways = {"A": hang, "B": get_ready}
    await make_ready({name: ways[name] for name in order}, bound_seconds=0.01)
    assert ready == ["B", "A was left"]


async def test_both_clusters_are_met_at_the_same_time() -> None:
    both = asyncio.Barrier(2)
    met: list[int] = []

    async def meet() -> None:
        met.append(await both.wait())

    await make_ready({"A": meet, "B": meet})
    assert sorted(met) == [0, 1]


async def test_what_is_a_fault_of_the_program_is_not_hidden() -> None:
    async def fail() -> None:
        raise AssertionError("a fault")

    with pytest.raises(ExceptionGroup):
        await make_ready({"A": fail})
