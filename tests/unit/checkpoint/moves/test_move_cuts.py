"""A run that is killed before or after any change it makes continues to the same end, there and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from twinlog.errors import TransientKafkaError
from twinlog.moves.record import MoveKind, MoveState
from twinlog.policy.internal_topics import failover_topic
from twinlog.testing.fakes.cluster import Call
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.runner import MoveRunner
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, last_run, moved, offset_of, run

FENCED = MoveOptions(wait_seconds=0, fence=True)
CHANGES = ("create_topics", "append", "create_acls", "delete_acls", "alter_group_offsets")
FAILOVER_CHANGES = [
    "create_topics",  # the record's topic
    "append",  # CHECK
    "append",  # the fence that is about to be raised
    "create_acls",
    "append",  # FENCE
    "append",  # FINAL_OFFSETS
    "append",  # the group may be on the target from here on
    "append",  # and so may groups at all
    "alter_group_offsets",
    "append",  # the group
    "append",  # DONE
]
FAILBACK_CHANGES = [
    "append",  # CHECK
    "append",  # FINAL_OFFSETS
    "alter_group_offsets",
    "delete_acls",
    "append",  # UNFENCE
    "append",  # the fence is gone
    "append",  # the group
    "append",  # DONE
]


@dataclass(slots=True)
class Changes:
    """What a run changes on either cluster; it dies at one of them."""

    fatal: int | None
    after: bool
    seen: list[str]

    def __call__(self, call: Call) -> None:
        if call.operation == "append" and call.arguments["partition"].topic != failover_topic(A_TO_B.source):
            return
        self.seen.append(call.operation)
        if len(self.seen) - 1 == self.fatal:
            raise TransientKafkaError("killed")


@contextmanager
def watched(rig: MoveRig, *, fatal: int | None = None, after: bool = False) -> Iterator[list[str]]:
    changes = Changes(fatal, after, [])
    undo = [
        cluster.intercept(name, changes, after=after)
        for cluster in (rig.logs.source, rig.logs.target)
        for name in CHANGES
    ]
    yield changes.seen
    for take_away in undo:
        take_away()


def restarted(rig: MoveRig, kind: MoveKind) -> MoveRunner:
    """The runner of a new process: it knows only what is on the clusters."""
    served = assemble_moves({A_TO_B: rig.parts}, rig.fakes.around())[A_TO_B]
    runner = served.failover if kind is MoveKind.FAILOVER else served.failback
    runner.drain_look_seconds = runner.planner.rate_seconds = 0
    return runner


async def cut_and_go_on(
    rig: MoveRig, kind: MoveKind, options: MoveOptions, *, fatal: int, after: bool
) -> None:
    """Die at one change, continue in a new process, and see that yet another run changes nothing."""
    with watched(rig, fatal=fatal, after=after), pytest.raises(TransientKafkaError, match="killed"):
        await run(restarted(rig, kind), options)
    cut = (await restarted(rig, kind).journal.load()).run
    _, report = await run(restarted(rig, kind), options)
    if cut is not None and cut.kind is kind:
        assert report.run_id == cut.run_id
    record = await restarted(rig, kind).journal.load()
    done = last_run(record)
    assert (done.kind, done.state, moved(record, kind)) == (kind, MoveState.DONE, ["g"])
    with watched(rig) as changes:
        _, again = await run(restarted(rig, kind), options)
    assert again.already_done
    assert changes == []


async def read_on(rig: MoveRig) -> int:
    """The group reads on the target; returns where it stands then."""
    at = await offset_of(rig.logs.target, "g", COPY)
    assert at is not None
    rig.logs.target.set_group("g", {COPY: at + 50})
    return at + 50


async def test_the_crash_points_cover_every_change_of_a_run(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    with watched(rig) as changes:
        await run(rig.served.failover, FENCED)
    assert changes == FAILOVER_CHANGES
    await read_on(rig)
    with watched(rig) as changes:
        await run(rig.served.failback)
    assert changes == FAILBACK_CHANGES


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fatal", range(len(FAILOVER_CHANGES)))
async def test_a_failover_that_is_killed_at_a_change_goes_on(rig: MoveRig, fatal: int, after: bool) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await cut_and_go_on(rig, MoveKind.FAILOVER, FENCED, fatal=fatal, after=after)
    assert set(filter(is_fence, rig.logs.source.acls)) == {fence_of(ORIGIN.topic)}
    rig.logs.check(100, await offset_of(rig.logs.target, "g", COPY) or 0)
    await run(restarted(rig, MoveKind.FAILBACK))
    assert rig.logs.source.acls == set()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fatal", range(len(FAILBACK_CHANGES)))
async def test_a_failback_that_is_killed_at_a_change_goes_on(rig: MoveRig, fatal: int, after: bool) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover, FENCED)
    at = await read_on(rig)
    await cut_and_go_on(rig, MoveKind.FAILBACK, NO_WAIT, fatal=fatal, after=after)
    assert rig.logs.source.acls == set()
    rig.logs.check(await offset_of(rig.logs.source, "g", ORIGIN) or 0, at)
