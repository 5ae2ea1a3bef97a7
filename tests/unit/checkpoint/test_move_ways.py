"""Where progress on one cluster is progress on the other."""

from twinlog.model import TopicPartition
from twinlog_checkpoint.move_ways import Ways
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.test_moves import estate


async def test_copies_go_home_and_own_topics_away() -> None:
    async with estate() as world:
        on_target, on_source = Ways(away=None, home=world.parts), Ways(away=world.parts, home=None)
        assert on_target.destination(COPY) == ORIGIN
        assert on_target.destination(TopicPartition("only-there", 0)) is None
        assert on_source.destination(ORIGIN) == COPY


async def test_an_offset_that_was_put_on_a_copy_is_not_the_groups_own() -> None:
    """It says how far the group is, or was, on the other cluster: nothing is to be changed there by it."""
    async with estate() as world:
        world.logs.source.set_group("g", {ORIGIN: 100})
        world.fakes.clock.advance(60)
        await world.fakes.do_pass(world.parts.checkpointer)
        (checkpoint,) = world.fakes.checkpoints()
        put = checkpoint.downstream_offset
        ways = Ways(away=None, home=world.parts)
        assert not ways.is_own("g", COPY, put)
        assert ways.is_own("g", COPY, put + 1)
        assert ways.is_own("other", COPY, put)
        assert ways.is_own("g", TopicPartition("only-there", 0), 0)
