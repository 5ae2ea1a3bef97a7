"""Where progress on one cluster is progress on the other."""

from twinlog.model import TopicPartition
from twinlog.policy.replication import IdentityReplicationPolicy
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.routes.offset_router import OffsetRouter
from unit.checkpoint.checkpoint_rig import CheckpointFlowRig, KnownTopics
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import MoveRig, move_rig


async def test_copies_go_home_and_own_topics_away(rig: MoveRig) -> None:
    on_target = OffsetRouter(away=None, home=rig.parts, home_first=False)
    on_source = OffsetRouter(away=rig.parts, home=None, home_first=True)
    assert on_target.destination(COPY) == ORIGIN
    assert on_target.destination(TopicPartition("only-there", 0)) is None
    assert on_source.destination(ORIGIN) == COPY


async def test_an_offset_on_a_topic_that_configsync_has_not_noticed_yet_counts() -> None:
    """Its copy does not exist yet, so the group's consumers would begin there as auto.offset.reset says."""
    late = TopicPartition("late", 0)
    async with move_rig(known_topics=KnownTopics(names={ORIGIN.topic})) as rig:
        rig.logs.source.add_topic(late.topic)
        rig.logs.source.set_group("g", {ORIGIN: 100, late: 0})
        plan = await rig.served.failover.plan(MoveOptions())
    (reason,) = plan.blockers
    assert f"g on {late}" in reason


async def test_an_offset_that_was_put_on_a_copy_is_not_the_groups_own(rig: MoveRig) -> None:
    """It says how far the group is, or was, on the other cluster: nothing is to be changed there by it."""
    rig.logs.source.set_group("g", {ORIGIN: 100})
    rig.fakes.clock.advance(60)
    await rig.fakes.do_pass(rig.parts.checkpointer)
    (checkpoint,) = rig.fakes.checkpoints()
    ways = OffsetRouter(away=None, home=rig.parts, home_first=True)
    put = checkpoint.downstream_offset
    assert ways.is_own("g", COPY, put - 1), "it was put back there"
    assert ways.may_be_synced("g", COPY, put - 1)
    assert not ways.is_own("g", COPY, put)
    assert ways.is_own("g", COPY, put + 1)
    assert ways.is_own("other", COPY, put)
    assert ways.is_own("g", TopicPartition("only-there", 0), 0)


async def test_with_the_identity_policy_a_failover_maps_to_the_target_and_a_failback_to_the_source() -> None:
    fakes = CheckpointFlowRig(
        policy=IdentityReplicationPolicy(source_cluster_alias="A"), translation_max_bytes=1
    )
    for cluster in (fakes.source, fakes.target):
        cluster.add_topic(ORIGIN.topic)
        async with cluster.writer() as writer:
            await writer.append(ORIGIN, key=None, value=b"1")
    await fakes.write_sync(ORIGIN.topic, 0, 0)
    fakes.source.set_group("g", {ORIGIN: 1})
    async with fakes.running() as parts:
        fakes.clock.advance(60)
        await fakes.do_pass(parts.checkpointer)
        assert fakes.checkpoints()
        assert OffsetRouter(away=parts, home=parts, home_first=False).is_own("g", ORIGIN, 0)
        assert not OffsetRouter(away=parts, home=parts, home_first=True).is_own("g", ORIGIN, 1)
