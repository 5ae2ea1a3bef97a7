"""Scripted histories: what happens to a world, from its begin until it is at rest."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from simulated.world import ONE_BROKER, SERVICES, World
from twinlog.batches import Codec, EndMarker
from twinlog.testing.broker.compaction import compact
from twinlog.wire.murmur2 import partition_for_key

_QUICK = """
A->B.enabled = true
A->B.topics = orders.*
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5
emit.checkpoints.interval.seconds = 5
refresh.groups.interval.seconds = 10
refresh.topics.interval.seconds = 10
emit.heartbeats.interval.seconds = 10
"""
_SAME_NAMES = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
IDENTITY = ONE_BROKER + _QUICK + _SAME_NAMES
DEFAULT = ONE_BROKER + _QUICK
BOTH_WAYS = DEFAULT + "B->A.enabled = true\nB->A.topics = orders.*\n"
_REST_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class History:
    name: str
    live: Callable[[World], Awaitable[None]]
    file: str = IDENTITY
    node_count: int = 1
    prefix: str = ""
    """Of names on the target."""


HISTORIES: dict[str, History] = {}


def history(
    file: str = IDENTITY, *, node_count: int = 1
) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    def add(live: Callable[[World], Awaitable[None]]) -> None:
        HISTORIES[live.__name__] = History(name=live.__name__, live=live, file=file, node_count=node_count)

    return add


async def begin(world: World, *, partitions: int = 2, prefix: str = "") -> None:
    """Some records, all services, everything copied."""
    world.on["A"].cluster.create_topic("orders", partition_count=partitions)
    for partition in range(partitions):
        world.on["A"].produce("orders", partition, b"one", b"two", b"three")
    world.start(*SERVICES)
    await copied(world, prefix=prefix)


async def copied(world: World, *topics: str, prefix: str = "") -> None:
    """Until every value of A is on B, in order, by partition."""

    def values(alias: str, topic: str) -> list[tuple[int, bytes | None]]:
        return [(seen.partition, seen.value) for seen in world.on[alias].read(topic)]

    await world.until(
        lambda: all(values("A", topic) == values("B", prefix + topic) for topic in topics or ("orders",))
    )


async def group_follows(world: World, group: str = "readers") -> None:
    await world.until(lambda: world.on["B"].committed(group) == world.on["A"].committed(group))


# ---------------------------------------------------------------------------------------- records and topics


@history()
async def transactions_of_producers(world: World) -> None:
    await begin(world)
    source = world.on["A"]
    source.transaction("orders", b"paid", b"shipped", partitions=2)
    source.transaction("orders", b"not paid", partitions=2, commits=False)
    source.produce("orders", 0, b"after")
    await copied(world)


@history(DEFAULT)
async def names_with_the_alias(world: World) -> None:
    await begin(world, prefix="A.")
    world.on["A"].transaction("orders", b"not paid", commits=False)
    world.on["A"].produce("orders", 0, b"after")
    await copied(world, prefix="A.")


@history()
async def every_kind_of_record(world: World) -> None:
    await begin(world, partitions=1)
    source = world.on["A"]
    source.produce("orders", 0, None, key=b"tombstone")
    source.produce("orders", 0, b"", key=None, headers=((b"a", b"1"), (b"a", None), (b"", b"\xff")))
    for codec in Codec:
        source.produce("orders", 0, b"x" * 100, b"y" * 100, codec=codec)
    await copied(world)


@history()
async def topics_that_come_and_grow(world: World) -> None:
    await begin(world)
    source = world.on["A"]
    source.cluster.create_topic("orders.later", configs={"cleanup.policy": "compact"})
    source.produce("orders.later", 0, b"one")
    source.cluster.add_partitions(source.cluster.topics["orders"], 3)
    source.produce("orders", 2, b"in the new one")
    await copied(world, "orders", "orders.later")


@history()
async def a_topic_that_begins_late(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"deleted", b"deleted, too")
    source.produce("orders", 0, b"first")
    source.partition("orders").log.delete_before(2)
    world.start(*SERVICES)
    await copied(world)
    source.produce("orders", 0, b"second")
    await copied(world)


@history()
async def a_compacted_topic_with_holes(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders", configs={"cleanup.policy": "compact"})
    for number in range(4):
        source.produce("orders", 0, b"%d" % number, key=b"a")
        source.produce("orders", 0, b"%d" % number, key=b"b%d" % number)
    compact(source.partition("orders"))
    world.start(*SERVICES)
    await copied(world)
    source.produce("orders", 0, b"last", key=b"a")
    await copied(world)


@history()
async def records_deleted_before_they_were_copied(world: World) -> None:
    await begin(world, partitions=1)
    source = world.on["A"]
    await world.kill("source")
    source.produce("orders", 0, *(b"%d" % number for number in range(10)))
    source.produce("orders", 0, b"left")
    source.partition("orders").log.delete_before(13)
    world.start("source")
    await world.until(lambda: world.on["B"].read("orders")[-1].value == b"left")


@history()
async def a_source_topic_created_again(world: World) -> None:
    await begin(world, partitions=1)
    source = world.on["A"]
    source.cluster.delete_topic("orders")
    source.cluster.create_topic("orders")
    source.produce("orders", 0, b"another one")
    await world.until(lambda: any(seen.value == b"another one" for seen in world.on["B"].read("orders")))


@history()
async def a_target_topic_created_again(world: World) -> None:
    await begin(world, partitions=1)
    target = world.on["B"]
    target.cluster.delete_topic("orders")
    await world.until(lambda: target.read("orders"))
    await copied(world)


@history()
async def a_target_topic_with_records_of_others(world: World) -> None:
    target = world.on["B"]
    target.cluster.create_topic("orders", partition_count=2)
    target.produce("orders", 0, b"foreign")
    world.on["A"].cluster.create_topic("orders", partition_count=2)
    world.on["A"].produce("orders", 0, b"one", b"two")
    world.on["A"].produce("orders", 1, b"three")
    world.start(*SERVICES)
    await world.until(lambda: len(target.read("orders")) == 4)
    world.on["A"].commit("readers", "orders", {0: 1, 1: 1})
    await world.until(lambda: len(target.committed("readers")) == 2)


@history()
async def a_transaction_that_stays_open(world: World) -> None:
    await begin(world, partitions=1)
    source = world.on["A"]
    end = source.open_transaction("orders", b"late")
    source.produce("orders", 0, b"behind it")
    await world.pause(30)
    end(EndMarker.COMMIT)
    await copied(world)


# --------------------------------------------------------------------------------------- kills and take-overs


@history()
async def the_source_service_is_killed(world: World) -> None:
    await begin(world)
    await world.kill("source")
    world.on["A"].produce("orders", 0, b"while it is away")
    world.start("source")
    await copied(world)


@history(DEFAULT)
async def the_source_service_is_killed_five_times(world: World) -> None:
    await begin(world, prefix="A.")
    for number in range(5):
        world.on["A"].produce("orders", 0, b"%d" % number)
        await world.pause(0.1 * number)
        await world.kill("source")
        world.start("source")
        await copied(world, prefix="A.")


@history()
async def tasks_are_killed(world: World) -> None:
    await begin(world)
    for number in range(3):
        world.on["A"].transaction("orders", b"%d" % number, partitions=2)
        await world.kill_tasks()
        world.on["A"].produce("orders", 1, b"%d again" % number)
        await copied(world)


@history()
async def all_services_are_killed(world: World) -> None:
    await begin(world)
    world.on["A"].commit("readers", "orders", {0: 2})
    await group_follows(world)
    for name in SERVICES:
        await world.kill(name)
    world.on["A"].produce("orders", 0, b"while they are away")
    world.on["A"].commit("readers", "orders", {0: 4})
    world.start(*SERVICES)
    await copied(world)
    await group_follows(world)


@history()
async def all_services_are_stopped_and_started(world: World) -> None:
    await begin(world)
    for name in SERVICES:
        await world.stop(name)
    world.on["A"].produce("orders", 0, b"while they are away")
    world.start(*SERVICES)
    await copied(world)


@history()
async def a_standby_takes_over(world: World) -> None:
    await begin(world)
    world.start("source 2", arguments=("--listen", "127.0.0.1:0"))
    await world.pause(5)
    await world.kill("source")
    world.on["A"].produce("orders", 0, b"for the other one")
    await copied(world)


@history()
async def the_checkpoint_service_is_killed(world: World) -> None:
    await begin(world)
    world.on["A"].commit("readers", "orders", {0: 1, 1: 3})
    await group_follows(world)
    await world.kill("checkpoint")
    world.on["A"].commit("readers", "orders", {0: 3})
    world.start("checkpoint")
    await group_follows(world)


# ------------------------------------------------------------------------------------------------- brokers


@history()
async def the_source_loses_its_tail(world: World) -> None:
    await begin(world, partitions=1)
    source = world.on["A"]
    source.produce("orders", 0, b"kept")
    source.produce("orders", 0, b"lost")
    await copied(world)
    source.cluster.lose_tail(source.partition("orders"), 4)
    source.produce("orders", 0, b"in its place")
    await world.pause(10)
    source.produce("orders", 0, b"behind it")
    await world.until(lambda: world.on["B"].read("orders")[-1].value == b"behind it")


@history()
async def the_target_loses_its_tail(world: World) -> None:
    await begin(world, partitions=1)
    target = world.on["B"]
    world.on["A"].produce("orders", 0, b"copied twice")
    await copied(world)
    target.cluster.lose_tail(target.partition("orders"), 3)
    world.on["A"].produce("orders", 0, b"behind it")
    await copied(world)


@history(node_count=3)
async def leaders_move(world: World) -> None:
    await begin(world, partitions=1)
    for alias in "AB":
        cluster, partition = world.on[alias].cluster, world.on[alias].partition("orders")
        others = [node_id for node_id in cluster.nodes if node_id != partition.leader]
        if partition.leader in partition.replicas and len(partition.replicas) > 1:
            cluster.elect(partition, next(each for each in others if each in partition.replicas))
        world.on["A"].produce("orders", 0, alias.encode())
        await copied(world)


@history()
async def the_target_is_away(world: World) -> None:
    await begin(world)
    await world.kafka["B"].stop_node(1)
    world.on["A"].produce("orders", 0, b"while it is away")
    await world.pause(40)
    await world.kafka["B"].start_node(1)
    await copied(world)


@history()
async def the_source_is_away(world: World) -> None:
    await begin(world)
    await world.kafka["A"].stop_node(1)
    await world.pause(40)
    await world.kafka["A"].start_node(1)
    world.on["A"].produce("orders", 0, b"when it is back")
    await copied(world)


# ------------------------------------------------------------------------------------------ groups and moves


@history()
async def groups_of_equal_offsets(world: World) -> None:
    await begin(world)
    source = world.on["A"]
    source.commit("readers", "orders", {0: 0, 1: 3})
    source.commit("others", "orders", {1: 2})
    await group_follows(world)
    await group_follows(world, "others")
    source.produce("orders", 0, *(b"%d" % number for number in range(200)))
    await copied(world)
    source.commit("readers", "orders", {0: 150})
    await group_follows(world)


@history(DEFAULT)
async def groups_of_translated_offsets(world: World) -> None:
    world.on["B"].cluster.create_topic("A.orders")
    world.on["B"].produce("A.orders", 0, b"foreign")
    source = world.on["A"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, *(b"%d" % number for number in range(20)))
    world.start(*SERVICES)
    await world.until(lambda: len(world.on["B"].read("A.orders")) == 21)
    source.commit("readers", "orders", {0: 10})
    await world.until(lambda: world.on["B"].committed("readers"))
    source.transaction("orders", b"paid")
    source.commit("readers", "orders", {0: 21})
    await world.until(lambda: len(world.on["B"].read("A.orders")) == 22)
    await world.until(lambda: world.on["B"].committed("readers")[("A.orders", 0)] > 20)


@history(IDENTITY + "B->A.enabled = true\nB->A.topics = nothing\n")
async def a_failover_and_its_failback(world: World) -> None:
    await begin(world)
    world.on["A"].commit("readers", "orders", {0: 2, 1: 3})
    await group_follows(world)
    await world.move("failover")
    world.on["B"].commit("readers", "orders", {0: 3})
    await world.move("failback")
    assert world.on["A"].committed("readers")[("orders", 0)] == 3


@history(BOTH_WAYS)
async def both_ways(world: World) -> None:
    world.on["B"].cluster.create_topic("orders")
    world.on["B"].produce("orders", 0, b"of B")
    await begin(world, prefix="A.")
    await world.until(lambda: [seen.value for seen in world.on["A"].read("B.orders")] == [b"of B"])


# ------------------------------------------------------------------------------------------------- take-overs


def mirror_maker(world: World, *, copied_records: int) -> None:
    """What MirrorMaker 2 left: a copy at offsets of its own, its position, its topics."""
    target = world.on["B"]
    target.cluster.create_topic("A.orders")
    target.copy("A.orders", world.on["A"].read("orders")[:copied_records])
    compacted = {"cleanup.policy": "compact"}
    positions = target.cluster.create_topic("mm2-offsets.A.internal", partition_count=25, configs=compacted)
    key = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]'
    index = partition_for_key(key, len(positions.partitions))
    target.produce("mm2-offsets.A.internal", index, b'{"offset":%d}' % (copied_records - 1), key=key)


@history(DEFAULT)
async def mirror_maker_before_us(world: World) -> None:
    source = world.on["A"]
    source.cluster.create_topic("orders")
    source.produce("orders", 0, *(b"%d" % number for number in range(8)))
    mirror_maker(world, copied_records=5)
    world.start(*SERVICES)
    await copied(world, prefix="A.")
    source.commit("readers", "orders", {0: 6})
    await world.until(lambda: world.on["B"].committed("readers"))


@history(DEFAULT)
async def mirror_maker_between_us(world: World) -> None:
    """Twinlog, then MirrorMaker 2 for a while, then Twinlog."""
    source, target = world.on["A"], world.on["B"]
    await begin(world, partitions=1, prefix="A.")
    for name in SERVICES:
        await world.stop(name)
    source.produce("orders", 0, b"of MirrorMaker 2")
    target.copy("A.orders", source.read("orders")[3:])
    key = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]'
    target.produce("mm2-offsets.A.internal", partition_for_key(key, 25), b'{"offset":3}', key=key)
    world.start(*SERVICES)
    source.produce("orders", 0, b"of Twinlog")
    await copied(world, prefix="A.")


async def rest(world: World) -> None:
    """What is written every few seconds has been written."""
    await world.pause(_REST_SECONDS)
    for name in sorted(world.services):
        await world.stop(name)
