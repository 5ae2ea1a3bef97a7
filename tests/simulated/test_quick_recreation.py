"""A copy whose topic is deleted and created again at once, on brokers that take batches by names."""

from simulated.histories import IDENTITY
from simulated.world import World, lives_in
from twinlog.testing.broker.calls import KAFKA_3_9


@lives_in(World, IDENTITY, seed=31, release=KAFKA_3_9)
async def test_no_group_skips_what_was_written_to_a_new_topic_under_the_offsets_of_the_former_one(
    world: World,
) -> None:
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, *(b"%d" % each for each in range(50)))
    world.start("configsync", "source", "checkpoint")
    await world.until(lambda: b.ends("orders") == [50])
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
        assert not read & {b"%d" % each for each in range(45, 80)}, place
