"""Topics that somebody deletes under the running services: what they had is written or copied again."""

from simulated import histories
from simulated.histories import DEFAULT
from simulated.test_whole_life import FILE
from simulated.world import SERVICES, World, lives_in


@lives_in(World, FILE)
async def test_a_target_that_was_built_again_under_the_running_services_gets_everything(world: World) -> None:
    """Also the topics of Twinlog are gone, and nobody restarts anything."""
    source, target = world.on["A"], world.on["B"]
    for topic, policy in (("orders", "delete"), ("orders.last", "compact")):
        source.cluster.create_topic(topic, configs={"cleanup.policy": policy})
        source.produce(topic, 0, b"1", b"2")
    world.start(*SERVICES)
    await histories.copied(world, "orders", "orders.last")
    source.commit("readers", "orders", {0: 1})
    await histories.group_follows(world)
    for topic in list(target.cluster.topics):
        target.cluster.delete_topic(topic)
    source.produce("orders", 0, b"3")
    await histories.copied(world, "orders", "orders.last")
    await histories.group_follows(world)
    source.produce("orders.last", 0, b"4")
    await world.kill("source")
    world.start("source")
    await histories.copied(world, "orders", "orders.last")


@lives_in(World, FILE)
async def test_a_positions_topic_that_is_deleted_under_the_running_services_is_written_again(
    world: World,
) -> None:
    source, target = world.on["A"], world.on["B"]
    for topic, policy in (("orders", "delete"), ("orders.last", "compact")):
        source.cluster.create_topic(topic, configs={"cleanup.policy": policy})
        source.produce(topic, 0, b"1", b"2")
    world.start(*SERVICES)
    await histories.copied(world, "orders", "orders.last")
    target.cluster.delete_topic("mm2-offsets.A.internal")
    for number in (b"3", b"4"):
        source.produce("orders", 0, number)
        source.produce("orders.last", 0, number)
        await histories.copied(world, "orders", "orders.last")
        await world.kill("source")
        world.start("source")


@lives_in(World, FILE)
async def test_a_copy_that_is_written_while_its_positions_topic_is_deleted_gets_nothing_twice(
    world: World,
) -> None:
    """What the driver has read of the log is older than what its task has committed since."""
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders.last", configs={"cleanup.policy": "compact"})
    world.start(*SERVICES)
    for number in range(60):
        source.produce("orders.last", 0, b"%d" % number, key=b"%d" % number)
        await world.pause(0.5)
        if number == 50:
            target.cluster.delete_topic("mm2-offsets.A.internal")
    await histories.copied(world, "orders.last")
    assert len(target.read("orders.last")) == 60


@lives_in(World, FILE)
async def test_a_flow_that_copies_nothing_begins_after_its_positions_topic_was_deleted(world: World) -> None:
    world.start("configsync", "source")
    await world.pause(30)
    world.on["B"].cluster.delete_topic("mm2-offsets.A.internal")
    await world.pause(60)
    world.on["A"].cluster.create_topic("orders")
    world.on["A"].produce("orders", 0, b"1", b"2")
    await histories.copied(world, "orders")


@lives_in(World, FILE)
async def test_topics_of_syncs_and_checkpoints_that_are_deleted_under_the_running_services_are_made_again(
    world: World,
) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders.last", configs={"cleanup.policy": "compact"})
    source.produce("orders.last", 0, b"1", b"2")
    world.start(*SERVICES)
    await histories.copied(world, "orders.last")
    source.cluster.delete_topic("mm2-offset-syncs.B.internal")
    target.cluster.delete_topic("A.checkpoints.internal")
    source.transaction("orders.last", b"3")
    source.produce("orders.last", 0, b"4", b"5")
    await world.pause(120)
    source.produce("orders.last", 0, b"6")
    source.commit("readers", "orders.last", {0: 6})
    await world.until(lambda: target.committed("readers"))
    assert source.cluster.topics["mm2-offset-syncs.B.internal"].configs["cleanup.policy"] == "compact"
    assert "A.checkpoints.internal" in target.cluster.topics


@lives_in(World, DEFAULT + "A->B.sync.group.offsets.enabled = true\n")
async def test_a_record_of_moves_that_is_deleted_under_the_running_services_is_written_again(
    world: World,
) -> None:
    """Without it, the offsets of a group that was moved would be synced over its own."""
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"1", b"2", b"3", b"4", b"5")
    source.commit("readers", "orders", {0: 2})
    world.start(*SERVICES)
    await world.until(lambda: target.committed("readers"), 120)
    await world.move("failover", groups=["readers"])
    moved = dict(target.committed("readers"))
    target.cluster.delete_topic("mm2-failover.A.internal")
    source.commit("readers", "orders", {0: 5})
    await world.pause(180)
    assert target.committed("readers") == moved
    await world.kill("checkpoint")
    world.start("checkpoint")
    await world.pause(180)
    assert target.committed("readers") == moved
    *_, last = await world.move("failback", groups=["readers"])
    assert not last.report.left_behind


@lives_in(World, DEFAULT + "refresh.topics.interval.seconds = 20\n")
async def test_rules_in_force_outlive_the_registry_that_is_deleted_under_the_running_services(
    world: World,
) -> None:
    source, target = world.on["A"], world.on["B"]
    for topic in ("orders", "orders.left"):
        source.cluster.create_topic(topic)
        source.produce(topic, 0, b"1")
    world.start(*SERVICES)
    await world.until(lambda: target.read("A.orders") and target.read("A.orders.left"))
    await world.rule("A->B", "topics.exclude", "orders.left")
    await world.pause(60)
    source.produce("orders.left", 0, b"2")
    target.cluster.delete_topic("mm2-configsync.A.internal")
    await world.pause(60)
    for service in SERVICES:
        await world.kill(service)
    world.start(*SERVICES)
    source.produce("orders", 0, b"2")
    await world.until(lambda: len(target.read("A.orders")) == 2)
    await world.pause(60)
    assert [seen.value for seen in target.read("A.orders.left")] == [b"1"]


@lives_in(World, DEFAULT + "A->B.sync.group.offsets.enabled = true\n")
async def test_groups_go_on_after_their_checkpoints_topic_was_deleted_for_long(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"1", b"2", b"3", b"4", b"5")
    source.commit("readers", "orders", {0: 2})
    world.start(*SERVICES)
    await world.until(lambda: target.committed("readers"), 120)
    target.cluster.delete_topic("A.checkpoints.internal")
    await world.pause(400)
    source.commit("readers", "orders", {0: 5})
    await world.until(lambda: target.committed("readers") == {("A.orders", 0): 5}, 180)
    assert target.read("A.checkpoints.internal")
