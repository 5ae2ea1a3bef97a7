"""Topics that are deleted and created again at once, and groups that had a place in their copies."""

import pytest

from simulated.histories import DEFAULT, IDENTITY
from simulated.world import World, lives_in
from twinlog.batches import EndMarker
from twinlog.testing.broker.calls import KAFKA_3_9


async def begin(world: World, copy: str = "orders") -> None:
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, *(b"old %d" % each for each in range(50)))
    world.start("configsync", "source", "checkpoint")
    await world.until(lambda: b.ends(copy) == [50])


@lives_in(World, IDENTITY, seed=31, release=KAFKA_3_9)
async def test_no_group_skips_what_was_written_to_a_new_topic_under_the_offsets_of_the_former_one(
    world: World,
) -> None:
    """Brokers before Kafka 4.1 take batches by names."""
    a, b = world.on["A"], world.on["B"]
    await begin(world)
    a.commit("readers", "orders", {0: 45})
    await world.until(lambda: b.committed("readers"))
    await world.pause(4)
    b.cluster.delete_topic("orders")
    b.cluster.create_topic("orders")
    a.produce("orders", 0, *(b"%d" % each for each in range(50, 80)))
    for _ in range(60):
        await world.pause(0.5)
        place = b.committed("readers").get(("orders", 0), 0)
        read = {each.value for each in b.read("orders") if each.offset < place}
        assert not read & {b"old 45", *(b"%d" % each for each in range(50, 80))}, place


async def both_created_again(
    world: World, copy: str, *, is_translated: bool = False, is_restarted: bool = False
) -> None:
    """Both topics are, at once; the group has no offset in the new one until it has read there."""
    a, b = world.on["A"], world.on["B"]
    await begin(world, copy)
    if is_translated:
        await world.pause(4)
        a.cluster.delete_topic("orders")
        await world.pause(0.01)
        a.cluster.create_topic("orders")
        a.produce("orders", 0, *(b"old %d" % each for each in range(50, 100)))
        await world.until(lambda: b.ends(copy)[0] >= 100)
        await world.pause(15)
    a.commit("readers", "orders", {0: 45})
    await world.until(lambda: b.committed("readers"))
    if is_restarted:
        await world.kill("checkpoint")
    for on, topic in ((a, "orders"), (b, copy)):
        on.cluster.delete_topic(topic)
        on.cluster.create_topic(topic)
    assert a.committed("readers") == b.committed("readers") == {}
    a.produce("orders", 0, *(b"%d" % each for each in range(200)))
    if is_restarted:
        world.start("checkpoint")
    for _ in range(60):
        await world.pause(0.5)
        assert b.committed("readers") == {}, "it had that place in the former topic"
    assert len(b.read(copy)) >= 200
    a.commit("readers", "orders", {0: 150})
    await world.until(lambda: b.committed("readers"))
    place = b.committed("readers")[copy, 0]
    left = [each.value for each in b.read(copy) if each.offset >= place]
    assert left == [b"%d" % each for each in range(150, 200)]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_translated", [False, True])
@lives_in(World, IDENTITY, seed=31)
async def test_no_group_gets_the_place_that_it_had_in_a_copy_that_is_gone(
    world: World, *, is_translated: bool, is_restarted: bool
) -> None:
    await both_created_again(world, "orders", is_translated=is_translated, is_restarted=is_restarted)


@lives_in(World, IDENTITY, seed=31, release=KAFKA_3_9)
async def test_no_group_gets_the_place_that_it_had_in_a_copy_that_is_gone_of_an_old_broker(
    world: World,
) -> None:
    await both_created_again(world, "orders")


@pytest.mark.parametrize("is_restarted", [False, True])
@lives_in(World, DEFAULT + "A->B.sync.group.offsets.enabled = true\n", seed=31)
async def test_no_group_gets_the_place_that_it_had_in_a_copy_of_another_name_that_is_gone(
    world: World, *, is_restarted: bool
) -> None:
    """Its checkpoints, which are MirrorMaker 2's to the byte, say nothing of the topics that they are of."""
    await both_created_again(world, "A.orders", is_restarted=is_restarted)


@lives_in(World, IDENTITY, seed=31)
async def test_a_transaction_of_an_application_on_a_copy_takes_no_group_its_place(world: World) -> None:
    """The copy is as long as it was, although nobody reads behind the transaction."""
    a, b = world.on["A"], world.on["B"]
    await begin(world)
    end = b.open_transaction("orders", b"of an application")
    a.produce("orders", 0, *(b"%d" % each for each in range(20)))
    await world.until(lambda: b.ends("orders")[0] > 70)
    await world.pause(15)
    a.commit("readers", "orders", {0: 45})
    await world.until(lambda: b.committed("readers"), 30)
    assert b.committed("readers") == {("orders", 0): 45}
    end(EndMarker.COMMIT)


@pytest.mark.parametrize("dies", ["source", "tasks"])
@lives_in(World, IDENTITY, seed=31, release=KAFKA_3_9)
async def test_a_copy_that_is_created_again_together_with_its_source_gets_each_record_once(
    world: World, *, dies: str
) -> None:
    """Brokers before Kafka 4.1 take batches by names, before configsync has told of the new copy."""
    a, b = world.on["A"], world.on["B"]
    await begin(world)
    if dies == "source":
        await world.kill("source")
    else:
        await world.kill_tasks()
    for on in (a, b):
        on.cluster.delete_topic("orders")
        on.cluster.create_topic("orders")
    if dies == "source":
        world.start("source")
    for each in range(100):
        a.produce("orders", 0, b"%d" % each)
        await world.pause(0.1)
    await world.until(lambda: len(b.read("orders")) >= 100)
    await world.pause(15)
    assert [each.value for each in b.read("orders")] == [b"%d" % each for each in range(100)]
    assert not any(each["event"] == "data_gap" for each in world.logged)
