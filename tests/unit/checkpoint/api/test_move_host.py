"""A running move belongs to the service: it is followed, left, stopped and given up by RPCs."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.errors import ConfigError, StateError, TransientKafkaError
from twinlog.testing.fakes.cluster import Call
from twinlog_checkpoint.api.moves_servicer import PART_ROWS, split
from twinlog_checkpoint.api.servicer import CheckpointServicer
from unit.checkpoint.checkpoint_rig import turns
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, move_rig, offset_of
from unit.checkpoint.service_rig import CONTEXT, CheckpointServiceRig

FLOW = types_pb2.Flow(source="A", target="B")
FENCED = pb2.MoveOptions(fence=True, by="ann")


@dataclass(slots=True, kw_only=True)
class Hosted:
    rig: MoveRig
    servicer: CheckpointServicer

    def start(self) -> AsyncIterator[pb2.RunFailoverResponse]:
        return self.servicer.RunFailover(pb2.RunFailoverRequest(flow=FLOW, options=FENCED), CONTEXT)

    async def start_and_hang_up(self, at: str = "DRAIN") -> None:
        """Ask for a run, and cut the stream once it is at a step."""
        async with aclosing(self.start()) as events:  # type: ignore[type-var]
            async for event in events:
                if event.step.name == at and event.step.state == pb2.STEP_STATE_PROGRESS:
                    return

    async def attach_to_new_run(self) -> None:
        async for _ in self.start():
            pass

    async def status(self) -> pb2.GetMoveResponse:
        return await self.servicer.GetMove(pb2.GetMoveRequest(flow=FLOW), CONTEXT)

    async def attach(self) -> list[pb2.WatchMoveResponse]:
        return [event async for event in self.servicer.WatchMove(pb2.WatchMoveRequest(flow=FLOW), CONTEXT)]

    async def cancel(self) -> pb2.MoveRun:
        return (await self.servicer.CancelMove(pb2.CancelMoveRequest(flow=FLOW, by="bob"), CONTEXT)).run

    async def abort(self, kind: "pb2.MoveKind.ValueType" = pb2.MOVE_KIND_FAILOVER) -> list[str]:
        request = pb2.AbortMoveRequest(flow=FLOW, kind=kind, by="bob")
        return list((await self.servicer.AbortMove(request, CONTEXT)).unfenced_topics)


@asynccontextmanager
async def hosted(*, backlog: bool = True) -> AsyncIterator[Hosted]:
    """A service with a group to move; with a backlog the run waits in DRAIN until it is copied."""
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        if backlog:
            rig.logs.produce(40)
        service = CheckpointServiceRig(rig.fakes, rig.parts)
        async with service.hosting():
            yield Hosted(rig=rig, servicer=service.servicer)


async def test_after_a_run_the_groups_are_looked_at_again() -> None:
    """The table would show for minutes what was true before the move."""
    async with hosted(backlog=False) as service:
        groups, checkpointer = service.rig.parts.checkpointer.groups, service.rig.parts.checkpointer
        await service.attach_to_new_run()
        service.rig.logs.source.set_group("newer", {ORIGIN: 50})
        await service.rig.fakes.do_pass(checkpointer)
        assert groups.groups == {"g", "newer"}
        (row,) = checkpointer.table.rows("g")
        assert row.offset_on_target == await offset_of(service.rig.logs.target, "g", COPY)


async def test_a_run_goes_on_when_the_stream_is_cut_and_is_followed_again() -> None:
    async with hosted() as service:
        await service.start_and_hang_up()
        assert (await service.status()).run.running
        await service.rig.copy()
        events = await service.attach()
        written = await offset_of(service.rig.logs.target, "g", COPY)
        after = await service.status()
    service.rig.logs.check(100, written or 0)
    assert events[-1].report.run_id == after.last.run_id
    names = [event.step.name for event in events if event.HasField("step")]
    assert (names[0], names[-1]) == ("CHECK", "DONE")
    assert not after.run.running
    assert after.last.finished
    assert list(after.last.fenced_topics) == [ORIGIN.topic]


async def test_what_is_told_while_a_run_waits_does_not_grow() -> None:
    async with hosted() as service:
        await service.start_and_hang_up()
        before = len((await service.status()).run.steps)
        looks = 0

        def looked(_call: object) -> None:
            nonlocal looks
            looks += 1

        service.rig.logs.source.intercept("list_offsets", looked)
        await turns(lambda: looks > 20)
        assert len((await service.status()).run.steps) == before
        await service.cancel()


async def test_the_moves_of_all_flows_are_one_answer_and_a_silent_record_is_a_problem_of_one() -> None:
    async with hosted(backlog=False) as service:
        assert [event async for event in service.start()]
        asked = pb2.ListMovesRequest()
        (told,) = (await service.servicer.ListMoves(asked, CONTEXT)).moves
        status = await service.status()
        assert (told.flow, told.run, told.last) == (FLOW, status.run, status.last)

        def unreadable(_call: Call) -> None:
            raise TransientKafkaError("the broker went away")

        service.rig.logs.target.intercept("describe_topics", unreadable)
        (told,) = (await service.servicer.ListMoves(asked, CONTEXT)).moves
    assert "the broker went away" in told.problem
    assert not told.HasField("last")


async def test_a_second_run_is_told_how_to_follow_the_first() -> None:
    async with hosted() as service:
        await service.start_and_hang_up()
        with pytest.raises(StateError, match="watch 'A->B'") as refused:
            await service.start_and_hang_up()
        assert refused.value.reason == "MOVE_IN_PROGRESS"
        with pytest.raises(StateError) as refused:
            await service.abort()
        assert refused.value.reason == "MOVE_IN_PROGRESS"
        await service.cancel()


async def test_a_cancelled_run_leaves_its_fence_until_it_is_aborted() -> None:
    async with hosted() as service:
        await service.start_and_hang_up()
        run = await service.cancel()
        assert (run.running, run.reason) == (False, "MOVE_CANCELLED")
        with pytest.raises(StateError) as ended:
            await service.attach()
        assert ended.value.reason == "MOVE_CANCELLED"
        assert service.rig.logs.source.acls
        status = await service.status()
        assert (status.last.finished, list(status.last.fenced_topics)) == (False, [ORIGIN.topic])
        assert list(status.last.fenced_where_left) == [ORIGIN.topic]
        with pytest.raises(ConfigError, match="failover or failback"):
            await service.abort(pb2.MOVE_KIND_UNSPECIFIED)
        assert await service.abort() == [ORIGIN.topic]
        assert not service.rig.logs.source.acls
        assert (await service.status()).last.aborted
        assert await offset_of(service.rig.logs.target, "g", COPY) is None


async def test_a_cancelled_run_continues_when_it_is_asked_for_again() -> None:
    async with hosted() as service:
        await service.start_and_hang_up()
        await service.cancel()
        cut = (await service.status()).last.run_id
        await service.rig.copy()
        events = [event async for event in service.start()]
    assert events[-1].report.run_id == cut


async def test_without_a_run_there_is_nothing_to_follow_or_cancel() -> None:
    async with hosted() as service:
        for ask in (service.attach, service.cancel):
            with pytest.raises(StateError) as refused:
                await ask()
            assert refused.value.reason == "NO_MOVE"
        status = await service.status()
        assert not status.HasField("run")
        assert not status.HasField("last")


async def test_a_run_ends_with_the_service(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.logs.produce(40)
    service = CheckpointServiceRig(rig.fakes, rig.parts)
    for runner in (service.moves.failover, service.moves.failback):
        runner.planner.stop = service.stop
    hosting = Hosted(rig=rig, servicer=service.servicer)
    async with service.hosting():
        await hosting.start_and_hang_up()
    with pytest.raises(StateError) as ended:
        await hosting.attach()
    assert ended.value.reason == "STOPPING"


async def test_a_plan_tells_what_it_looks_at_and_comes_last() -> None:
    async with hosted(backlog=False) as service:
        request = pb2.PlanMoveRequest(flow=FLOW, kind=pb2.MOVE_KIND_FAILOVER)
        events = [event async for event in service.servicer.PlanMove(request, CONTEXT)]
    assert {event.step.name for event in events[:-1]} == {"CHECK"}
    assert [entry.group for entry in events[-1].plan.partitions] == ["g"]


def test_a_plan_that_is_too_large_for_one_message_comes_in_parts() -> None:
    rows = [pb2.MovePartition(group=f"g{number}") for number in range(2 * PART_ROWS + 1)]
    plan = pb2.MovePlan(partitions=rows, warnings=["w"])
    parts = list(split(plan))
    assert [len(part.partitions) for part in parts] == [PART_ROWS, PART_ROWS, 1]
    assert [entry for part in parts for entry in part.partitions] == rows
    assert (len(plan.partitions), list(plan.warnings)) == (0, ["w"])


async def test_an_empty_group_id_is_refused() -> None:
    async with hosted(backlog=False) as service:
        request = pb2.PlanMoveRequest(
            flow=FLOW, kind=pb2.MOVE_KIND_FAILOVER, options=pb2.MoveOptions(groups=[""])
        )
        with pytest.raises(ConfigError) as refused:
            await anext(aiter(service.servicer.PlanMove(request, CONTEXT)))
    assert refused.value.reason == "INVALID_GROUP"
