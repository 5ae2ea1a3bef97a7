"""FlowLease: one of several processes works at a flow, and it stops before another may begin."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from twinlog.errors import ConflictError, StateError
from twinlog.kafka.deadline import pause
from twinlog.service.owner.assignment import Reach, Why
from twinlog.service.owner.lease import FlowLease, LeaseState
from twinlog.testing.broker import FakeKafka
from twinlog.testing.virtual_time import FakeClock
from unit.service.owner.lease_rig import FLOW, GROUP, SESSION_SECONDS, Process, running, until
from unit.service.owner.test_owner_names import _refused


@pytest.fixture
async def kafka() -> AsyncIterator[FakeKafka]:
    async with FakeKafka() as kafka:
        yield kafka


def refuse(
    kafka: FakeKafka,
    error: ErrorCode = ErrorCode.group_authorization_failed,
    *,
    client_id: str | None = None,
) -> Callable[[], None]:
    """Every request of a member, or of one of them; they may see the group. Returns a function that ends
    it."""
    faults = [
        kafka.faults.begin(api=api, error=error, client_id=client_id) for api in ("join_group", "heartbeat")
    ]

    def end() -> None:
        for each in faults:
            kafka.faults.end(each)

    return end


async def put_out(kafka: FakeKafka, one: Process, two: Process) -> None:
    """The first one is no member any more, and comes back after the other one went on."""
    with kafka.faults.during(api="join_group", client_id="one", hangs=True):
        group = kafka.cluster.groups.by_id[GROUP]
        group.leave(group.leader)
        await until(lambda: two.works)
    await until(lambda: one.stands_by)


async def test_a_coordinator_that_a_new_cluster_has_not_made_yet_is_warned_of_once_it_takes_long(
    kafka: FakeKafka,
) -> None:
    def warned(logs: Sequence[MutableMapping[str, Any]]) -> list[str]:
        return [each["reason"] for each in logs if each["log_level"] == "warning"]

    one, end = Process("one", kafka), refuse(kafka, ErrorCode.coordinator_not_available)
    with capture_logs() as logs:
        async with running(one):
            await pause(30)
            assert (len(logs), warned(logs)) == (1, [])
            await pause(60)
            assert warned(logs) == ["COORDINATOR_UNAVAILABLE"]
            end()
            await until(lambda: one.works)


async def test_a_load_is_looked_at_every_few_minutes_and_not_with_each_sign_of_life(kafka: FakeKafka) -> None:
    """It is the sum of the rates of all partitions."""
    one = Process("one", kafka)
    async with running(one):
        await until(lambda: one.works)
        one.weighed = 0
        await pause(1000)
        assert 1 <= one.weighed <= 4


async def test_one_works_the_other_stands_by_and_takes_over(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
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


async def test_no_flow_moves_by_hand_to_a_process_that_has_lost_its_source(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
    two.reach = Reach.LOST
    async with running(one) as _:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and one.membership.owners()[0].able == ("one", "two"))
            for dry_run in (True, False):
                with pytest.raises(
                    ConflictError, match="two does not reach A, or its file does not copy it"
                ) as refused:
                    one.membership.move(FLOW, "two", dry_run=dry_run)
                assert refused.value.reason == "REPLICA_LOST_SOURCE"


async def test_a_flow_that_no_process_can_copy_moves_by_hand(kafka: FakeKafka) -> None:
    """No file enables it, so its heartbeats are all there is to do; or its source is away for all."""
    one, two = Process("one", kafka), Process("two", kafka)
    one.reach = two.reach = Reach.LOST
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and one.membership.owners()[0].able == ("one", "two"))
            one.membership.move(FLOW, "two", dry_run=False)
            await until(lambda: two.works)
            assert two.membership.owners()[0].why == Why.BY_HAND


async def test_what_was_confirmed_too_long_ago_is_not_said_to_be_owned(kafka: FakeKafka) -> None:
    """Such as an owner that waits for another member."""
    clock = FakeClock()
    lease = FlowLease(FLOW, group=GROUP, session_seconds=SESSION_SECONDS, clock=clock)
    confirmed_at = clock.monotonic()
    with capture_logs() as logs:
        for _ in range(3):
            lease.learn(leads=True, owner="one", asked_at=confirmed_at)
            clock.advance(SESSION_SECONDS)
    assert lease.state is LeaseState.UNKNOWN
    assert [each["event"] for each in logs] == ["flow_owned"]


async def test_an_owner_that_hears_nothing_stops_before_its_session_ends(kafka: FakeKafka) -> None:
    process, loop = Process("one", kafka), asyncio.get_running_loop()
    async with running(process):
        await until(lambda: process.works)
        await kafka.stop_node(1)
        away_since = loop.time()
        await until(lambda: process.lease.problem is not None)
        assert process.works
        await until(lambda: not process.works)
        assert loop.time() - away_since < SESSION_SECONDS
        assert process.draws, "what does no harm continues while the owner is not known"
        assert process.fences, "and what fences its rivals itself"
        assert not process.lease.is_elected
        assert process.lease.state is LeaseState.UNKNOWN
        (told,) = process.membership.owners()
        assert (told.process, told.why) == ("one", Why.IN_DOUBT)
        await kafka.start_node(1)
        await until(lambda: process.works)
        assert process.membership.owners()[0].why != Why.IN_DOUBT


async def test_an_owner_that_was_put_out_stands_by(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by)
            await put_out(kafka, one, two)
            assert two.works
            assert not one.works
            await until(lambda: two.fences and not one.fences)


async def test_what_fences_its_rivals_does_not_begin_in_doubt(kafka: FakeKafka) -> None:
    """A second process would take the flow from the first one before it has heard of it."""
    await kafka.stop_node(1)
    process = Process("one", kafka)
    async with running(process):
        await until(lambda: process.lease.problem is not None and process.draws)
        assert not process.fences
        await kafka.start_node(1)
        await until(lambda: process.fences)


async def test_without_the_right_to_elect_it_works_alone(kafka: FakeKafka) -> None:
    refuse(kafka)
    process, loop = Process("one", kafka), asyncio.get_running_loop()
    async with running(process):
        await until(lambda: process.works)
        until_when = loop.time() + 10 * SESSION_SECONDS
        await until(lambda: loop.time() > until_when)
        await process.lease.require()
        assert process.works
        assert not process.lease.is_elected, "there may be others who cannot be elected either"


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_process_that_may_not_join_leaves_flows_to_the_members_that_it_sees(
    kafka: FakeKafka, is_first: bool
) -> None:
    one, barred = Process("one", kafka), Process("barred", kafka)
    refuse(kafka, client_id="barred")
    first, second = (barred, one) if is_first else (one, barred)
    async with running(first):
        await until(lambda: first.works)
        async with running(second):
            await until(lambda: one.works and barred.stands_by and not barred.works)
            refusal = barred.lease.refusal()
            assert refusal is not None
            assert (refusal.reason, "cannot take over" in str(refusal)) == ("OWNED_ELSEWHERE", True)


async def test_an_owner_that_lost_the_right_to_be_a_member_leaves_its_flow_to_who_has_got_it(
    kafka: FakeKafka,
) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
    async with running(one):
        await until(lambda: one.works)
        refuse(kafka, client_id="one")
        await until(lambda: one.lease.works_alone)
        assert one.works, "nobody has got its flow yet"
        async with running(two):
            await until(lambda: two.works and not one.works)


async def test_losing_the_right_to_elect_makes_no_stand_by_an_owner(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
    async with running(one):
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            refuse(kafka)
            await until(lambda: two.lease.problem is not None and one.lease.problem is not None)
            assert two.lease.state is LeaseState.ELSEWHERE
            assert two.stands_by
            assert not two.works
            assert one.works, "it was the owner, and nobody else can become one"


async def test_an_owner_that_cannot_be_asked_about_any_more_is_not_said_to_serve(
    kafka: FakeKafka,
) -> None:
    """It may have died since: nobody takes its place without the right to be elected, and somebody has to be
    told."""
    one, two = Process("one", kafka), Process("two", kafka)

    async with running(one) as stop_of:
        await until(lambda: one.works)
        async with running(two):
            await until(lambda: two.stands_by and two.lease.state is LeaseState.ELSEWHERE)
            undo = refuse(kafka)
            stop_of(one).set()
            await until(lambda: two.lease.problem is not None)
            assert two.lease.state is LeaseState.ELSEWHERE
            await until(lambda: two.lease.state is LeaseState.UNKNOWN)
            refusal = two.lease.refusal()
            assert refusal is not None
            assert refusal.reason == "GROUP_UNAUTHORIZED"
            assert not two.works
            undo()
            await until(lambda: two.works)


async def test_a_coordinator_that_loads_is_a_problem_only_if_it_takes_long(kafka: FakeKafka) -> None:
    loads = refuse(kafka, ErrorCode.coordinator_load_in_progress)
    process, loop = Process("one", kafka), asyncio.get_running_loop()

    def told() -> str | None:
        refusal = process.lease.refusal()
        return None if refusal is None else refusal.reason

    async with running(process):
        await until(lambda: process.lease.problem is not None)
        began = loop.time()
        assert told() == "STARTING"
        loads()
        times_out = refuse(kafka, ErrorCode.request_timed_out)
        await until(lambda: told() == "KAFKA_TIMEOUT")
        times_out()
        loads = refuse(kafka, ErrorCode.coordinator_load_in_progress)
        await until(lambda: told() == "STARTING")
        await until(lambda: told() == "COORDINATOR_UNAVAILABLE")
        assert loop.time() - began > 59
        loads()
        await until(lambda: process.works)
        assert told() is None


async def test_a_step_is_held_by_the_owner_only_and_its_errors_are_its_own(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)

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


async def test_a_step_ends_when_its_process_is_no_longer_the_owner(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
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
            await put_out(kafka, one, two)
            assert await held == "OWNED_ELSEWHERE"
            assert ended.is_set()


async def test_the_lease_is_not_given_back_before_a_held_step_ended(kafka: FakeKafka) -> None:
    one, two = Process("one", kafka), Process("two", kafka)
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
