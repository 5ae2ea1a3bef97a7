"""A move that is run again: what an earlier run has finished with is left alone, what went on since moves."""

import pytest

from twinlog.errors import TwinlogError
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from unit.checkpoint.dead_leader import deny_group
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, moved, offset_of, run
from unit.checkpoint.moves.test_move_fences import FENCED


async def test_a_group_that_went_on_where_it_was_moves_again(rig: MoveRig) -> None:
    """A drill, say: its consumers stayed on the source."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    _, first = await run(rig.served.failover)
    rig.logs.source.set_group("g", {ORIGIN: 200})
    _, second = await run(rig.served.failover)
    written = await offset_of(rig.logs.target, "g", COPY)
    _, third = await run(rig.served.failover)
    assert (first.already_done, second.already_done, third.already_done) == (False, False, True)
    rig.logs.check(200, written or 0)


async def test_a_group_moves_again_when_only_checkpoints_are_available(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover)
    rig.logs.source.set_group("g", {ORIGIN: 200})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    rig.logs.source.take_away()
    gone = MoveOptions(accept_loss=True)
    _, second = await run(rig.served.failover, gone)
    written = await offset_of(rig.logs.target, "g", COPY)
    _, third = await run(rig.served.failover, gone)
    assert (second.already_done, third.already_done) == (False, True)
    rig.logs.check(200, written or 0)


async def test_a_fence_that_somebody_took_away_is_raised_again(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await run(rig.served.failover, FENCED)
    rig.logs.source.acls.clear()
    _, again = await run(rig.served.failover, FENCED)
    assert not again.already_done
    assert set(filter(is_fence, rig.logs.source.acls)) == {fence_of(ORIGIN.topic)}


async def test_a_group_that_cannot_be_read_any_more_does_not_keep_others_from_being_moved(
    rig: MoveRig,
) -> None:
    rig.logs.source.set_group("secret", {ORIGIN: 100})
    await run(rig.served.failover)
    deny_group(rig.logs.source, "secret", is_listed=True)
    rig.logs.source.set_group("other", {ORIGIN: 100})
    await run(rig.served.failover, MoveOptions(groups=("other",), wait_seconds=0))
    record = await rig.served.failover.journal.load()
    assert moved(record) == ["other", "secret"]


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_group_that_cannot_be_read_is_named_and_nothing_is_moved(rig: MoveRig, side: str) -> None:
    """An offset that is not seen is no reason to write, nor a group that is not seen a reason to be done."""
    rig.logs.source.set_group("other", {ORIGIN: 100})
    for cluster in (rig.logs.source, rig.logs.target):
        cluster.set_group("secret", {ORIGIN if cluster is rig.logs.source else COPY: 290})
    deny_group(rig.logs.source if side == "source" else rig.logs.target, "secret", is_listed=True)
    with pytest.raises(TwinlogError, match="secret") as refused:
        await run(rig.served.failover)
    assert refused.value.reason == "MOVE_BLOCKED"
    assert await offset_of(rig.logs.target, "other", COPY) is None
    await run(rig.served.failover, MoveOptions(groups=("other",), wait_seconds=0))
    assert await offset_of(rig.logs.target, "other", COPY) is not None
