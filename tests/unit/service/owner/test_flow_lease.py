"""FlowLease: one of several processes works at a flow, and it stops before another may begin."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from twinlog.config import Address, load
from twinlog.errors import ConflictError, FatalKafkaError, StateError
from twinlog.model import Flow
from twinlog.service.owner.deployments import selection_fingerprint
from twinlog.service.owner.lease import FlowLease, LeaseState
from twinlog.service.owner.name import own_address
from twinlog.service.runtime import Backoff, Loop
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.clock import FakeClock
from twinlog.testing.fakes.cluster import Call, FakeCluster

FLOW = Flow("A", "B")
SESSION_SECONDS = 0.05
"""The real clock only paces the candidates: how long something counts is the fake clock's."""


class Process:
    """One process with a lease, and what its guarded loops do."""

    def __init__(self, name: str, cluster: FakeCluster, clock: FakeClock, *, rules: str = "") -> None:
        self.lease = FlowLease(
            FLOW,
            cluster.candidate("group", name=lambda: name, session_seconds=SESSION_SECONDS),
            group="group",
            session_seconds=SESSION_SECONDS,
            clock=clock,
            backoff=Backoff(initial_seconds=0.005, max_seconds=0.01, random=lambda: 0.5),
            rules=rules,
            on_owner=self._on_owner,
        )
        self.owners_seen = 0
        self.works = False
        self.stands_by = False
        self.draws = False
        self.fences = False

    def _on_owner(self) -> None:
        self.owners_seen += 1

    async def work(self, stop: asyncio.Event) -> None:
        self.works = True
        await stop.wait()
        self.works = False

    async def stand_by(self, stop: asyncio.Event) -> None:
        self.stands_by = True
        await stop.wait()
        self.stands_by = False

    async def draw(self, stop: asyncio.Event) -> None:
        self.draws = True
        await stop.wait()
        self.draws = False

    async def fence(self, stop: asyncio.Event) -> None:
        self.fences = True
        await stop.wait()
        self.fences = False


@asynccontextmanager
async def running(*processes: Process) -> AsyncIterator[Callable[[Process], asyncio.Event]]:
    stops = {process: asyncio.Event() for process in processes}
    async with asyncio.TaskGroup() as group:
        for process, stop in stops.items():
            lease = process.lease
            for loop in (
                lease.run,
                lease.guard(process.work, otherwise=process.stand_by),
                lease.guard(process.draw, in_doubt=True),
                lease.guard(process.fence, stays_in_doubt=True),
            ):
                group.create_task(_ended(loop, stop), name=f"{loop}")
        try:
            yield stops.__getitem__
        finally:
            for stop in stops.values():
                stop.set()


async def _ended(loop: Loop, stop: asyncio.Event) -> None:
    await loop(stop)


async def until(condition: Callable[[], bool]) -> None:
    async def met() -> bool:
        return condition()

    await eventually(met)


async def test_one_works_the_other_stands_by_and_takes_over() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with running(one) as stop_of:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            assert (two.works, two.draws, two.fences) == (False, False, False)
            assert (one.lease.is_elected, two.lease.is_elected) == (True, False)
            with pytest.raises(StateError, match="served by another process now \\(one\\)") as refused:
                await two.lease.require()
            assert refused.value.reason == "OWNED_ELSEWHERE"
            stop_of(one).set()
            await until(lambda: two.works and two.draws)
            assert not one.works
            await two.lease.require()
            assert (one.owners_seen, two.owners_seen) == (1, 2)
            assert two.lease.is_owner() is True


async def test_an_owner_that_hears_nothing_stops_before_its_session_ends() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.works)
        cluster.take_away()
        await until(lambda: process.lease._problem is not None)
        assert process.works
        clock.advance(SESSION_SECONDS * 0.71)
        await until(lambda: not process.works)
        assert process.draws, "what does no harm continues while the owner is not known"
        assert process.fences, "and what fences its rivals itself"
        assert not process.lease.is_elected
        assert process.lease.state is LeaseState.UNKNOWN
        cluster.bring_back()
        await until(lambda: process.works)


async def test_an_owner_that_was_put_out_stands_by() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by)
            cluster.silence("group")
            await until(lambda: two.works and one.stands_by)
            assert not one.works
            await until(lambda: two.fences and not one.fences)


async def test_what_fences_its_rivals_does_not_begin_in_doubt() -> None:
    """A second process would take the flow from the first one before it has heard of it."""
    cluster, clock = FakeCluster("B"), FakeClock()
    cluster.take_away()
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.lease._problem is not None and process.draws)
        assert not process.fences
        cluster.bring_back()
        await until(lambda: process.fences)


async def test_without_the_right_to_elect_it_works_alone() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="GROUP_UNAUTHORIZED", code=30)

    cluster.intercept("stand", refuse)
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.works)
        clock.advance(3600)
        await process.lease.require()
        assert process.works
        assert not process.lease.is_elected, "there may be others who cannot be elected either"


async def test_losing_the_right_to_elect_makes_no_stand_by_an_owner() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    refused: set[str] = set()

    def refuse(call: Call) -> None:
        refused.add("now")
        raise FatalKafkaError("no", reason="GROUP_UNAUTHORIZED", code=30)

    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            cluster.intercept("stand", refuse)
            await until(lambda: two.lease._problem is not None and one.lease._problem is not None)
            assert two.lease.state is LeaseState.ELSEWHERE
            assert two.stands_by
            assert not two.works
            assert one.works, "it was the owner, and nobody else can become one"


async def test_an_owner_that_cannot_be_asked_about_any_more_is_not_said_to_serve() -> None:
    """It may have died since: nobody takes its place without the right to be elected, and somebody has to be
    told."""
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)

    def refuse(call: Call) -> None:
        raise FatalKafkaError("READ is missing", reason="GROUP_UNAUTHORIZED", code=30)

    async with running(one) as stop_of:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            undo = cluster.intercept("stand", refuse)
            stop_of(one).set()
            await until(lambda: two.lease._problem is not None)
            clock.advance(3 * SESSION_SECONDS + 0.01)
            refusal = two.lease.refusal()
            assert refusal is not None
            assert (two.lease.state, refusal.reason) == (LeaseState.UNKNOWN, "GROUP_UNAUTHORIZED")
            assert not two.works
            undo()
            await until(lambda: two.works)


async def test_a_step_is_held_by_the_owner_only_and_its_errors_are_its_own() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)

    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise ConflictError("no", reason="PLAN_STALE")

    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            assert await one.lease.hold(answer) == 42
            with pytest.raises(ConflictError):
                await one.lease.hold(fail)
            with pytest.raises(StateError, match="served by another process"):
                await two.lease.hold(answer)


async def test_a_step_ends_when_its_process_is_no_longer_the_owner() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    began, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(one):
        await until(lambda: one.works)
        async with running(two), asyncio.TaskGroup() as group:
            await until(lambda: two.stands_by)
            held = group.create_task(_refused(one.lease.hold(endless, grace_seconds=0.0)), name="held")
            await began.wait()
            cluster.silence("group")
            await until(lambda: two.works)
            assert await held == "OWNED_ELSEWHERE"
            assert ended.is_set()


async def test_the_lease_is_not_given_back_before_a_held_step_ended() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    began, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def step() -> None:
        began.set()
        await may_end.wait()
        assert not two.works
        ended.set()

    async with running(one) as stop_of:
        await until(lambda: one.works)
        async with running(two), asyncio.TaskGroup() as group:
            await until(lambda: two.stands_by)
            group.create_task(one.lease.hold(step), name="held")
            await began.wait()
            stop_of(one).set()
            await until(lambda: not one.works)
            assert not two.works
            may_end.set()
            await until(lambda: two.works)
            assert ended.is_set()


async def _refused(step: Coroutine[Any, Any, None]) -> str:
    with pytest.raises(StateError) as refused:
        await step
    return refused.value.reason


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        ("host:1, process 7, rules aaaa", "OWNED_ELSEWHERE"),
        ("host:1, process 7", "OWNED_ELSEWHERE"),
        ("host:1, process 7, rules bbbb", "TWIN_DEPLOYMENT"),
    ],
)
async def test_a_deployment_that_selects_something_else_is_named_as_a_twin(owner: str, reason: str) -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    first = Process(owner, cluster, clock)
    second = Process("host:2, process 8, rules aaaa", cluster, clock, rules="aaaa")
    async with running(first):
        await until(lambda: first.lease.state is LeaseState.OWNER)
        async with running(second):
            await until(lambda: second.lease.state is LeaseState.ELSEWHERE)
            refusal = second.lease.refusal()
            assert refusal is not None
            assert refusal.reason == reason
            assert owner in str(refusal)


def test_the_fingerprint_is_of_what_the_file_selects(tmp_path: Path) -> None:
    def fingerprint(**settings: str) -> str:
        file = tmp_path / "mm2.properties"
        values = {
            "clusters": "A, B",
            "A.bootstrap.servers": "a:9092",
            "B.bootstrap.servers": "b:9092",
            "A->B.enabled": "true",
            **settings,
        }
        file.write_text("\n".join(f"{key} = {value}" for key, value in values.items()))
        return selection_fingerprint(load(file, environ={}).flow(FLOW))

    first = fingerprint(topics="a, b", groups="g")
    assert fingerprint(topics="b, a", groups="g") == first
    assert fingerprint(topics="b, a", groups="g", **{"replication.factor": "2"}) == first
    assert fingerprint(topics="a", groups="g") != first
    assert fingerprint(topics="a, b", groups="h") != first


@pytest.mark.parametrize(
    ("owner", "address"),
    [
        ("box:17404, process 7, at box-0.pods:17404, rules aaaa", "box-0.pods:17404"),
        ("elsewhere:17404, process 7, at 127.0.0.1:17404, rules aaaa", None),
        (f"{socket.gethostname()}:17404, process 7, at 127.0.0.1:17404, rules aaaa", "127.0.0.1:17404"),
        ("box:17404, process 7, rules aaaa", None),
        ("box:17404, process 7, at evil host/x:1, rules aaaa", None),
    ],
)
async def test_a_refusal_names_the_address_at_which_the_owner_is_called(
    owner: str, address: str | None
) -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    first, second = Process(owner, cluster, clock), Process("mine", cluster, clock, rules="aaaa")
    async with running(first):
        await until(lambda: first.lease.state is LeaseState.OWNER)
        async with running(second):
            await until(lambda: second.lease.state is LeaseState.ELSEWHERE)
            refusal = second.lease.refusal()
            assert refusal is not None
            assert refusal.metadata.get("owner_address") == address


@pytest.mark.parametrize(
    ("endpoint", "listen", "address"),
    [
        ("source-0.pods:17401", "0.0.0.0:17401", "source-0.pods:17401"),
        ("source-0.pods:0", "0.0.0.0:0", "source-0.pods:5"),
        ("127.0.0.1:17401", "0.0.0.0:17401", "box:5"),
        ("127.0.0.1:17401", "127.0.0.1:0", "127.0.0.1:5"),
    ],
)
def test_an_owner_is_called_where_the_file_says_that_it_is(endpoint: str, listen: str, address: str) -> None:
    places = {"endpoint": Address.parse(endpoint), "listen": Address.parse(listen)}
    assert own_address(**places, port=5, host="box") == address
