"""Groups of topics that are copied both ways: where they continue on the other cluster."""

from pathlib import Path

import grpc
import pytest

from simulated.both_ways_rig import (
    FILE,
    all_once,
    both_have_all,
    orders_on_all,
    skipped,
    values,
    write,
    write_hundreds,
)
from simulated.test_steering import scope
from simulated.test_whose_copies import deny_reading
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.testing.broker.cluster import NO_LEADER
from twinlog.testing.broker.faults import Loss


@lives_in(orders_on_all, seed=7)
async def test_groups_continue_on_the_other_side_and_skip_nothing(world: World) -> None:
    await write(world, range(6), partitions=1, seconds=0)
    world.start(*SERVICES)
    await world.until(lambda: both_have_all(world) and len(values(world, "A")) == 12)
    a, b = world.on["A"], world.on["B"]
    a.commit("everything", "orders", {0: a.ends("orders")[0]})
    b.commit("nearly everything", "orders", {0: b.ends("orders")[0] - 2})
    a.commit("nothing", "orders", {0: 1})
    await world.until(lambda: b.committed("everything"))
    await world.until(lambda: a.committed("nearly everything"))
    assert b.committed("everything")["orders", 0] == b.ends("orders")[0]
    await world.until(lambda: b.committed("nothing"))
    assert b.committed("nothing")["orders", 0] == 0, "the log begins there: no sync is as old"
    await write(world, range(6, 20), partitions=1)
    a.commit("everything", "orders", {0: a.ends("orders")[0] - 3})
    for number in range(20, 40):
        await write(world, range(number, number + 1), partitions=1, seconds=0)
        await world.pause(2)
        for group in ("everything", "nearly everything"):
            assert not skipped(world, group)


@lives_in(orders_on_all, seed=7)
async def test_groups_skip_nothing_while_no_registry_says_that_a_topic_is_copied_both_ways(
    world: World,
) -> None:
    """The file says it: one flow copies, and the other one is about to."""
    await write(world, range(2), partitions=1, seconds=0)
    world.on["B"].commit("readers", "orders", {0: 0})
    deny_reading(world.on["B"].cluster, "mm2-configsync.A.internal")
    world.start(*SERVICES)
    await world.until(lambda: len(values(world, "A")) == 4)
    for _ in range(30):
        await world.pause(1)
        assert not skipped(world, "readers")
    world.on["B"].cluster.authorizer = None
    await world.until(lambda: world.on["A"].committed("readers"))
    assert not skipped(world, "readers")
    assert both_have_all(world)


@lives_in(World, FILE + "B->A.refresh.topics.interval.seconds = 90\n", seed=7, aliases="AB")
async def test_groups_of_a_new_topic_skip_nothing_while_one_flow_has_not_noticed_it(world: World) -> None:
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders0")
    world.start(*SERVICES)
    await world.until(lambda: "orders0" in b.cluster.topics)
    for each in (a, b):
        each.cluster.create_topic("orders")
    await write(world, range(2), partitions=1, seconds=0)
    a.commit("everything", "orders", {0: 0})
    await world.until(lambda: len(values(world, "B")) == 4)
    assert len(values(world, "A")) == 2
    for _ in range(30):
        await world.pause(1)
        assert not skipped(world, "everything")
    await world.until(lambda: both_have_all(world) and b.committed("everything"))
    assert not skipped(world, "everything")


@lives_in(
    World,
    FILE.replace("topics = orders.*", "A->B.topics = orders.*\nB->A.topics = orders0")
    + "B->A.refresh.topics.interval.seconds = 90\n",
    seed=2,
    aliases="AB",
)
async def test_groups_skip_nothing_before_the_changed_rules_of_the_flow_back_are_read(world: World) -> None:
    """A process that starts has read the registry of the flow back before it applies the rules in it."""
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders0")
    world.start(*SERVICES)
    await world.until(lambda: "orders0" in b.cluster.topics)
    await world.rule("B->A", "topics", "orders.*")
    await world.pause(20)
    for each in (a, b):
        each.cluster.create_topic("orders")
    await write(world, range(5), partitions=1, seconds=0)
    a.commit("everything", "orders", {0: 5})
    await world.kill("checkpoint")
    await world.until(lambda: len(values(world, "B")) == 10)
    assert len(values(world, "A")) == 5
    await world.kill("configsync")
    registry = a.partition("mm2-configsync.B.internal")
    leader, registry.leader = registry.leader, NO_LEADER
    world.start("checkpoint")
    await world.pause(1.74)
    registry.leader = leader
    for _ in range(300):
        await world.pause(0.05)
        assert not skipped(world, "everything")


@lives_in(orders_on_all, seed=7)
async def test_a_group_in_the_middle_reads_again_what_lies_between_two_syncs(world: World) -> None:
    """Of older syncs, which are 100 offsets apart, Kafka's store has none after a restart."""
    world.start(*SERVICES)
    await write_hundreds(world, 60)
    await world.kill("checkpoint")
    world.start("checkpoint")
    world.on["A"].commit("everything", "orders", {0: 6000})
    await world.until(lambda: world.on["B"].committed("everything"))
    assert not skipped(world, "everything")
    assert world.on["B"].committed("everything")["orders", 0] > 5500


@pytest.mark.parametrize("is_restarted", [False, True])
@lives_in(orders_on_all, seed=7)
async def test_a_topic_that_is_created_again_gives_no_place_to_groups_of_the_former_one(
    world: World, *, is_restarted: bool
) -> None:
    """The new log grows before anything of it is copied: what is known of the former one fits it."""
    a, b = world.on["A"], world.on["B"]
    world.start(*SERVICES)
    await write_hundreds(world, 10)
    b.commit("nearly everything", "orders", {0: 1500})
    await world.until(lambda: a.committed("nearly everything"))
    assert a.committed("nearly everything")["orders", 0] > 1000
    await world.kill("source")
    if is_restarted:
        await world.kill("checkpoint")
    a.cluster.delete_topic("orders")
    assert not a.committed("nearly everything")
    a.cluster.create_topic("orders")
    a.produce("orders", 0, *(b"A again %d" % number for number in range(2000)))
    if is_restarted:
        world.start("checkpoint")
    for _ in range(40):
        await world.pause(1)
        assert not skipped(world, "nearly everything")
    world.start("source")
    await world.until(lambda: a.committed("nearly everything"))
    for _ in range(40):
        await world.pause(1)
        assert not skipped(world, "nearly everything")
    assert both_have_all(world)
    assert a.committed("nearly everything")["orders", 0] == 0, "it has read none of what lies first"
    b.commit("nearly everything", "orders", {0: b.ends("orders")[0] - 100})
    await world.until(lambda: a.committed("nearly everything")["orders", 0] > 1700)
    assert not skipped(world, "nearly everything")
    a.commit("everything", "orders", {0: a.ends("orders")[0]})
    b.commit("nearly everything", "orders", {0: b.ends("orders")[0]})
    await world.until(lambda: b.committed("everything") == {("orders", 0): b.ends("orders")[0]})
    await world.until(lambda: a.committed("nearly everything") == {("orders", 0): a.ends("orders")[0]})


async def readers_are_on_both_and_a_dies(world: World) -> None:
    a, b = world.on["A"], world.on["B"]
    world.start(*SERVICES)
    await write_hundreds(world, 3)
    a.commit("readers", "orders", {0: a.ends("orders")[0]})
    await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
    await world.kafka["A"].stop_node(1)


@lives_in(orders_on_all, seed=7)
async def test_a_source_that_does_not_answer_takes_no_group_its_place(world: World) -> None:
    b = world.on["B"]
    await readers_are_on_both_and_a_dies(world)
    b.commit("readers", "orders", {0: 0})
    await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
    await world.move("failover", accept_loss=True)
    assert not skipped(world, "readers")


@lives_in(orders_on_all, seed=7)
async def test_groups_move_away_from_a_dead_source_also_after_a_restart(world: World) -> None:
    """The changed rules of the flow back are stored on the dead cluster."""
    b = world.on["B"]
    await readers_are_on_both_and_a_dies(world)
    for service in SERVICES:
        await world.kill(service)
    b.commit("readers", "orders", {0: 0})
    world.start(*SERVICES)
    await world.pause(60)
    await world.move("failover", accept_loss=True)
    assert b.committed("readers") == {("orders", 0): b.ends("orders")[0]}


@lives_in(orders_on_all, seed=3)
async def test_a_group_past_the_end_of_a_log_that_lost_records_skips_no_record_written_since(
    world: World,
) -> None:
    a, b = world.on["A"], world.on["B"]
    world.start(*SERVICES)
    await write_hundreds(world, 2)
    a.produce("orders", 0, *(b"A2-%d" % number for number in range(20)))
    await world.until(lambda: both_have_all(world))
    (end,) = a.ends("orders")
    a.commit("readers", "orders", {0: end})
    await world.until(lambda: b.committed("readers") == {("orders", 0): b.ends("orders")[0]})
    a.cluster.lose_tail(a.partition("orders"), end - 15)
    a.produce("orders", 0, *(b"new %d" % number for number in range(10)))
    await world.pause(60)
    new = next(each.offset for each in b.read("orders") if each.value == b"new 0")
    assert b.committed("readers")["orders", 0] <= new
    *_, last = await world.move("failover", accept_loss=True)
    assert not last.report.left_behind
    assert b.committed("readers")["orders", 0] <= new


@lives_in(orders_on_all, seed=18)
async def test_a_group_before_an_open_transaction_skips_nothing_of_the_other_side(world: World) -> None:
    """It has read all that it can, and copies lie behind the transaction."""
    world.start(*SERVICES)
    await write(world, range(3), partitions=1)
    await all_once(world, 6)
    a, b = world.on["A"], world.on["B"]
    stands_at = a.ends("orders")[0]
    a.open_transaction("orders", b"A3")
    await write(world, range(4, 9), partitions=1, to="B")
    await world.until(lambda: a.ends("orders")[0] >= stands_at + 6)
    await world.pause(30)
    a.commit("everything", "orders", {0: stands_at})
    await world.until(lambda: b.committed("everything"))
    await world.pause(30)
    assert not skipped(world, "everything")


@lives_in(orders_on_all, seed=17)
async def test_a_move_says_that_what_it_waits_for_may_come_from_the_other_side(world: World) -> None:
    world.start(*SERVICES)
    await write(world, range(3), partitions=1)
    await all_once(world, 6)
    pause = source.PauseReplicationRequest(scope=scope("orders"), by="ann")
    await world.order("PauseReplication", pause)
    await write(world, range(3, 8), partitions=1, to="B")
    await world.until(lambda: len(values(world, "A")) == 11)
    world.on["A"].commit("readers", "orders", {0: 2})
    told = r"orders-0: 5 records \(PAUSED.*; records that came from there count, too\)"
    with pytest.raises(grpc.RpcError, match=told):
        await world.move("failover", groups=["readers"])


@pytest.mark.parametrize("killed", ["tasks", "source", "source twice"])
def test_a_flow_whose_first_syncs_are_lost_with_it_is_not_one_that_copied_nothing(
    tmp_path: Path, killed: str
) -> None:
    async def life() -> None:
        file = FILE + "twinlog.offsets = translated\n"
        async with orders_on_all(tmp_path, seed=5, file=file) as world:
            a, b = world.on["A"], world.on["B"]
            world.start(*SERVICES)
            await world.until(lambda: "mm2-offset-syncs.B.internal" in a.cluster.topics)
            await world.pause(30)
            if killed == "source twice":
                await world.kill("source")
                world.start("source")
                await world.pause(30)
            with world.kafka["A"].faults.during(api="produce", loses=Loss.BEFORE):
                a.produce("orders", 0, b"A1", b"A2", b"A3")
                a.commit("readers", "orders", {0: 1})
                await world.until(lambda: both_have_all(world))
                await (world.kill_tasks() if killed == "tasks" else world.kill("source"))
            if killed != "tasks":
                world.start("source")
            await world.pause(60)
            assert b.committed("readers").get(("orders", 0), 0) <= 1
            *_, last = await world.move("failover", accept_loss=True)
            assert not last.report.left_behind
            assert b.committed("readers")["orders", 0] <= 1

    live(life())


@pytest.mark.parametrize("killed", ["tasks", "source", "both"])
@pytest.mark.parametrize("offsets", ["auto", "translated"])
def test_lagging_groups_of_a_topic_that_one_side_writes_keep_their_place_after_a_kill(
    tmp_path: Path, offsets: str, killed: str
) -> None:
    """Nobody writes after it, so no task does."""

    async def life() -> None:
        file = FILE + f"twinlog.offsets = {offsets}\n"
        async with orders_on_all(tmp_path, seed=5, file=file) as world:
            a, b = world.on["A"], world.on["B"]
            world.start(*SERVICES)
            for number in range(10):
                a.produce("orders", 0, *(b"A%d-%d" % (number, each) for each in range(100)))
                await world.pause(0.4)
            await world.until(lambda: both_have_all(world))
            await world.pause(10)
            if killed != "source":
                await world.kill_tasks()
                await world.pause(10)
            if killed != "tasks":
                await world.kill("source")
                world.start("source")
            await world.pause(30)
            a.commit("everything", "orders", {0: [seen.offset for seen in a.read("orders")][500]})
            await world.until(lambda: b.committed("everything"))
            (place,) = b.committed("everything").values()
            assert 300 < len([seen for seen in b.read("orders") if seen.offset < place]) <= 500
            assert not skipped(world, "everything")

    live(life())
