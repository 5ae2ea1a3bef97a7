"""FlowLease: one of several processes works at a flow, and it stops before another may begin."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from twinlog.errors import ConflictError, FatalKafkaError, StateError, TransientKafkaError
from twinlog.service.owner.assignment import Reach, Why
from twinlog.service.owner.lease import LeaseState
from twinlog.testing.fakes.cluster import Call, FakeCluster, Hook
from twinlog.testing.virtual_time import FakeClock
from unit.service.owner.lease_rig import FLOW, GROUP, SESSION_SECONDS, Process, running, until
from unit.service.owner.test_owner_names import _refused


def refuse_all(cluster: FakeCluster, hook: Hook) -> Callable[[], None]:
    """For every request of a member; returns a function that ends it."""
    undo = [cluster.intercept(operation, hook) for operation in ("join", "beat")]

    def end() -> None:
        for each in undo:
            each()

    return end


async def test_one_works_the_other_stands_by_and_takes_over() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with running(one) as stop_of:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            assert (two.works, two.draws, two.fences) == (False, False, False)
            assert (one.lease.is_elected, two.lease.is_elected) == (True, False)
            with pytest.raises(
                StateError, match="served by another process now \\(one, rules \\)"
            ) as refused:
                await two.lease.require()
            assert refused.value.reason == "OWNED_ELSEWHERE"
            stop_of(one).set()
            await until(lambda: two.works and two.draws)
            assert not one.works
            await two.lease.require()
            assert (one.owners_seen, two.owners_seen) == (1, 2)
            assert two.lease.is_owner() is True


async def test_no_flow_moves_by_hand_to_a_process_that_has_lost_its_source() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    two.reach = Reach.LOST
    async with running(one) as _:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and one.membership.owners()[0].able == ("one", "two"))
            for dry_run in (True, False):
                with pytest.raises(
                    ConflictError, match="two does not reach A, so it could not copy"
                ) as refused:
                    one.membership.move(FLOW, "two", dry_run=dry_run)
                assert refused.value.reason == "REPLICA_LOST_SOURCE"


async def test_what_was_confirmed_too_long_ago_is_not_said_to_be_owned() -> None:
    """Such as an owner that waits for another member."""
    clock = FakeClock()
    lease = Process("one", FakeCluster("B"), clock).lease
    confirmed_at = clock.monotonic()
    with capture_logs() as logs:
        for _ in range(3):
            lease.learn(leads=True, owner="one", asked_at=confirmed_at)
            clock.advance(SESSION_SECONDS)
    assert lease.state is LeaseState.UNKNOWN
    assert [each["event"] for each in logs] == ["flow_owned"]


async def test_an_owner_that_hears_nothing_stops_before_its_session_ends() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.works)
        cluster.take_away()
        await until(lambda: process.lease.problem is not None)
        assert process.works
        clock.advance(SESSION_SECONDS * 0.71)
        await until(lambda: not process.works)
        assert process.draws, "what does no harm continues while the owner is not known"
        assert process.fences, "and what fences its rivals itself"
        assert not process.lease.is_elected
        assert process.lease.state is LeaseState.UNKNOWN
        (told,) = process.membership.owners()
        assert (told.process, told.why) == ("one", Why.IN_DOUBT)
        cluster.bring_back()
        await until(lambda: process.works)
        assert process.membership.owners()[0].why != Why.IN_DOUBT


async def test_an_owner_that_was_put_out_stands_by() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, two = Process("one", cluster, clock), Process("two", cluster, clock)
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by)
            cluster.silence(GROUP)
            await until(lambda: two.works and one.stands_by)
            assert not one.works
            await until(lambda: two.fences and not one.fences)


async def test_what_fences_its_rivals_does_not_begin_in_doubt() -> None:
    """A second process would take the flow from the first one before it has heard of it."""
    cluster, clock = FakeCluster("B"), FakeClock()
    cluster.take_away()
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.lease.problem is not None and process.draws)
        assert not process.fences
        cluster.bring_back()
        await until(lambda: process.fences)


async def test_without_the_right_to_elect_it_works_alone() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()

    def refuse(call: Call) -> None:
        raise FatalKafkaError("no", reason="GROUP_UNAUTHORIZED", code=30)

    refuse_all(cluster, refuse)
    process = Process("one", cluster, clock)
    async with running(process):
        await until(lambda: process.works)
        clock.advance(3600)
        await process.lease.require()
        assert process.works
        assert not process.lease.is_elected, "there may be others who cannot be elected either"


def seen_by_another(cluster: FakeCluster) -> FakeCluster:
    """The same cluster for another user."""
    seen = FakeCluster("B")
    seen.member_groups = cluster.member_groups
    return seen


def bar(cluster: FakeCluster) -> FakeCluster:
    """The user may see the group, and not be a member."""

    def refuse(call: Call) -> None:
        raise FatalKafkaError("READ is missing", reason="GROUP_UNAUTHORIZED", code=30)

    refuse_all(cluster, refuse)
    return cluster


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_process_that_may_not_join_leaves_flows_to_the_members_that_it_sees(is_first: bool) -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    one, barred = Process("one", cluster, clock), Process("barred", bar(seen_by_another(cluster)), clock)
    first, second = (barred, one) if is_first else (one, barred)
    async with running(first):
        await until(lambda: first.works)
        async with running(second):
            await until(lambda: one.works and barred.stands_by and not barred.works)
            refusal = barred.lease.refusal()
            assert refusal is not None
            assert (refusal.reason, "READ is missing" in str(refusal)) == ("OWNED_ELSEWHERE", True)


async def test_an_owner_that_lost_the_right_to_be_a_member_leaves_its_flow_to_who_has_got_it() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()
    of_one = seen_by_another(cluster)
    one, two = Process("one", of_one, clock), Process("two", cluster, clock)
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by)
            bar(of_one)
            await until(lambda: one.lease.works_alone)
            assert one.works, "nobody has got its flow yet"
            cluster.silence(GROUP)
            await until(lambda: two.works and not one.works)


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
            refuse_all(cluster, refuse)
            await until(lambda: two.lease.problem is not None and one.lease.problem is not None)
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
            undo = refuse_all(cluster, refuse)
            stop_of(one).set()
            await until(lambda: two.lease.problem is not None)
            clock.advance(3 * SESSION_SECONDS + 0.01)
            refusal = two.lease.refusal()
            assert refusal is not None
            assert (two.lease.state, refusal.reason) == (LeaseState.UNKNOWN, "GROUP_UNAUTHORIZED")
            assert not two.works
            undo()
            await until(lambda: two.works)


async def test_a_coordinator_that_loads_is_a_problem_only_if_it_takes_long() -> None:
    cluster, clock = FakeCluster("B"), FakeClock()

    reasons = ["COORDINATOR_UNAVAILABLE"]

    def loads(call: Call) -> None:
        raise TransientKafkaError("so", reason=reasons[0])

    undo = refuse_all(cluster, loads)
    process = Process("one", cluster, clock)

    def told() -> str | None:
        refusal = process.lease.refusal()
        return None if refusal is None else refusal.reason

    async with running(process):
        await until(lambda: process.lease.problem is not None)
        clock.advance(59)
        assert told() == "STARTING"
        reasons[0] = "KAFKA_TIMEOUT"
        await until(lambda: told() == "KAFKA_TIMEOUT")
        reasons[0] = "COORDINATOR_UNAVAILABLE"
        await until(lambda: told() == "STARTING")
        clock.advance(2)
        assert told() == "COORDINATOR_UNAVAILABLE"
        undo()
        await until(lambda: process.works)
        assert told() is None


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
            cluster.silence(GROUP)
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
