"""Whole lives of the services in one loop."""

import asyncio
from pathlib import Path

import pytest
from grpc import RpcError

from simulated.test_steering import scope
from simulated.world import ONE_BROKER, SERVICES, World, live, lives_in
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.testing.broker.faults import Loss

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
A->B.topics = orders.*
A->B.sync.group.offsets.enabled = true
A->B.sync.group.offsets.interval.seconds = 5
A->B.emit.checkpoints.interval.seconds = 5
A->B.refresh.groups.interval.seconds = 10
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
)


@lives_in(World, FILE)
async def test_a_heartbeat_service_that_is_killed_and_started_again_emits_again(world: World) -> None:
    for application in world.on.values():
        application.cluster.create_topic("heartbeats")
    world.start("heartbeat")
    await world.until(lambda: world.on["B"].read("heartbeats"))
    await world.kill("heartbeat")
    emitted = len(world.on["B"].read("heartbeats"))
    await world.pause(60)
    assert len(world.on["B"].read("heartbeats")) == emitted
    world.start("heartbeat")
    await world.until(lambda: len(world.on["B"].read("heartbeats")) > emitted)
    await world.stop("heartbeat")


def test_three_flows_have_all_cores_of_a_cluster_and_go_on_with_fewer_and_with_new_ones(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        file = (
            "clusters = A, B, C, M\n"
            + "".join(f"{alias}.bootstrap.servers = {{{alias}}}\n" for alias in "ABCM")
            + "".join(f"{alias}->M.enabled = true\n{alias}->M.topics = orders\n" for alias in "ABC")
            + "\n".join(ONE_BROKER.splitlines()[4:])
            + "\ntwinlog.epoch.seconds = 5\ntwinlog.epoch.max.seconds = 20\n"
        )
        cores, written = asyncio.Semaphore(3), list[bytes]()
        async with World(tmp_path, file, aliases="ABCM", cluster=cores) as world:

            async def copied_again(word: bytes) -> None:
                written.append(word)
                for alias in "ABC":
                    world.on[alias].produce("orders", 0, word)
                await world.until(lambda: all(values(world, f"{each}.orders") == written for each in "ABC"))

            for alias in "ABC":
                world.on[alias].cluster.create_topic("orders")
            world.start("configsync", "source")
            await copied_again(b"first")
            assert world.tasks is not None
            assert len(world.tasks.running) == 3
            await world.pause(60)
            assert cores.locked(), "epochs have changed, and no core was spare"
            await copied_again(b"after some epochs")
            lost = asyncio.get_running_loop().create_task(cores.acquire(), name="executor that is lost")
            await world.pause(0.1)
            await next(iter(world.tasks.running.values())).kill()
            await lost
            await copied_again(b"with two cores")
            await world.pause(60)
            await copied_again(b"after some more epochs")
            cores.release()
            await world.until(lambda: world.tasks is not None and len(world.tasks.running) == 3)
            await copied_again(b"with three cores")
            await world.stop("source")

    live(life())


def values(world: World, topic: str) -> list[bytes | None]:
    return [record.value for record in world.on["M"].read(topic)]


@lives_in(World, FILE, seed=7)
async def test_everything_arrives_once_and_groups_move_with_it(world: World) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders", partition_count=2)
    source.cluster.create_topic("orders.returns")
    source.produce("orders", 0, b"first", b"second")
    world.start(*SERVICES)
    await world.until(lambda: copied(world, "orders"))
    source.transaction("orders", b"paid", partitions=2)
    source.transaction("orders", b"not paid", partitions=2, commits=False)
    source.produce("orders.returns", 0, *(b"%d" % number for number in range(100)))
    source.commit("readers", "orders", {0: 3, 1: 0})
    source.commit("readers", "orders.returns", {0: 50})
    await world.until(lambda: copied(world, "orders", "orders.returns"))
    await world.until(lambda: target.committed("readers") == source.committed("readers"))
    await world.kill("source")
    source.produce("orders", 1, b"while it is away")
    source.commit("readers", "orders", {0: 3, 1: 2})
    world.start("source")
    await world.until(lambda: copied(world, "orders"))
    await world.kill_tasks()
    source.transaction("orders", b"paid, too", partitions=2)
    await world.until(lambda: copied(world, "orders"))
    await world.until(lambda: target.committed("readers") == source.committed("readers"))
    assert target.read("A.checkpoints.internal")
    for name in SERVICES:
        await world.stop(name)
    assert not [each for each in world.logged if each["level"] in ("error", "critical")]


def copied(world: World, *topics: str) -> bool:
    """Whether B has the records of A at the same offsets."""
    return all(world.on["A"].read(topic) == world.on["B"].read(topic) for topic in topics)


@lives_in(World, FILE)
async def test_a_failback_counts_what_others_wrote_between_copied_records_also_after_a_restart(
    world: World,
) -> None:
    source, target = world.on["A"], world.on["B"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, *(b"%d" % number for number in range(100)))
    world.start(*SERVICES)
    await world.until(lambda: copied(world, "orders"))
    source.commit("readers", "orders", {0: 10})
    await world.until(lambda: target.committed("readers"))
    await world.move("failover")
    target.commit("readers", "orders", {0: 30})
    target.produce("orders", 0, *(b"foreign" for _ in range(7)))
    source.produce("orders", 0, *(b"more" for _ in range(20)))
    await world.until(lambda: len(target.read("orders")) == 127)
    target.produce("orders", 0, b"foreign", b"foreign")
    for _ in range(2):
        await world.pause(20)
        with pytest.raises(RpcError, match="9 that other producers wrote into the copy"):
            await world.move("failback")
        for name in ("source", "checkpoint"):
            await world.kill(name)
        world.start("source", "checkpoint")


@lives_in(World, FILE, seed=44)
async def test_a_failback_right_after_others_wrote_skips_no_record_of_the_source(world: World) -> None:
    """The copy is not known yet to have other records than the source at its end."""
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, *(b"A%d" % number for number in range(10)))
    world.start(*SERVICES)
    await world.until(lambda: len(b.read("orders")) == 10)
    a.commit("readers", "orders", {0: 5})
    await world.pause(20)
    await world.move("failover", groups=["readers"])
    pause = source.PauseReplicationRequest(scope=scope("orders"), by="ann")
    await world.order("PauseReplication", pause)
    b.produce("orders", 0, *(b"X%d" % number for number in range(10)))
    b.commit("readers", "orders", {0: 20})
    a.produce("orders", 0, *(b"A%d" % number for number in range(10, 20)))
    *_, last = await world.move("failback", groups=["readers"])
    assert last.report.plan.partitions
    assert a.committed("readers")["orders", 0] == 10


@lives_in(World, f"{FILE}twinlog.offsets = translated\n", seed=45)
async def test_consumers_do_not_wait_for_the_end_of_a_transaction_that_nobody_goes_on_with(
    world: World,
) -> None:
    """The copy lost the marker behind it, with its tail, and the task that would have looked was killed."""
    a, b = world.on["A"], world.on["B"]
    a.cluster.create_topic("orders")
    a.produce("orders", 0, b"first")
    world.start("configsync", "source")
    await world.until(lambda: b.read("orders"))
    await world.pause(10)
    a.produce("orders", 0, b"last")
    await world.until(lambda: len(b.read("orders")) == 2)
    await world.pause(3)  # The task reports how far the copy reaches.
    b.cluster.lose_tail(b.partition("orders"), b.ends("orders")[0] - 1)
    assert len(b.read("orders")) == 1
    await world.kill_tasks()
    await world.until(lambda: len(b.read("orders")) == 2, seconds=100)
    await world.pause(100)
    assert not [each for each in world.logged if each["event"] == "round_failed"][1:]


@pytest.mark.parametrize("offsets", ["preserved", "translated"])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_lost_tail_that_grew_back_to_the_position_is_noticed_without_a_further_record(
    tmp_path: Path, offsets: str, *, is_away: bool
) -> None:
    """The source comes back with as many records as were copied, and others."""

    async def life() -> None:
        file = f"{FILE}twinlog.offsets = {'auto' if offsets == 'preserved' else offsets}\n"
        async with World(tmp_path, file, seed=4) as world:
            applications = world.on["A"]
            applications.cluster.create_topic("orders")
            for value in (b"kept", b"lost"):
                applications.produce("orders", 0, value)
            world.start(*SERVICES)
            await world.until(lambda: copied(world, "orders"))
            await world.pause(30)
            if is_away:
                await world.stop("source")
            applications.cluster.lose_tail(applications.partition("orders"), 1)
            applications.produce("orders", 0, b"in its place")
            if is_away:
                world.start("source")
            else:
                world.kafka["A"].faults.begin(api="fetch", loses=Loss.BEFORE, seconds=5)
            await world.until(
                lambda: (
                    [each.value for each in world.on["B"].read("orders")]
                    == [b"kept", b"lost", b"in its place"]
                ),
                60,
            )
            await world.pause(10)  # Tasks report from time to time.
            gaps = await world.order("ListGaps", source.ListGapsRequest())
            assert [each.reason for each in gaps.gaps] == ["TRUNCATION"]

    live(life())
