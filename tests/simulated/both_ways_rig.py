"""Clusters with the same topic names, which are copied both ways."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from simulated.world import ONE_BROKER, PORTS, World
from twinlog.config import load
from twinlog.model import Flow
from twinlog.testing.virtual_time import LoopClock
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

FILE = (
    ONE_BROKER
    + """
A->B.enabled = true
B->A.enabled = true
topics = orders.*
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5
emit.checkpoints.interval.seconds = 5
refresh.groups.interval.seconds = 10
refresh.topics.interval.seconds = 10
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
)
ONE_WAY = FILE.replace("B->A.enabled = true\n", "")
BESIDE_PORTS = 10_000
"""The services of another file listen at ports so much higher."""
LISTEN_BESIDE = "".join(
    f"twinlog.{service}.listen = 127.0.0.1:{port + BESIDE_PORTS}\n" for service, port in PORTS.items()
)


@asynccontextmanager
async def orders_on_all(
    directory: Path, *, seed: int, file: str = FILE, partition_count: int = 1, aliases: str = "AB"
) -> AsyncIterator[World]:
    """Each cluster has a topic `orders` of its own, before anything is copied."""
    async with World(directory, file, seed=seed, aliases=aliases) as world:
        for application in world.on.values():
            application.cluster.create_topic("orders", partition_count=partition_count)
        yield world


def write_back(world: World) -> Path:
    """The file of B->A."""
    back = world.file.with_name("back.properties")
    back.write_text(world.file.read_text().replace("A->B.enabled", "B->A.enabled") + LISTEN_BESIDE)
    return back


def start_both(world: World, *names: str) -> Path:
    """Services of a file for each direction; returns the file of B->A."""
    back = write_back(world)
    world.start(*names)
    world.start(*(f"{name} 2" for name in names), arguments=("--config", str(back)))
    return back


def values(world: World, alias: str, topic: str = "orders") -> list[tuple[int, bytes | None]]:
    return [(seen.partition, seen.value) for seen in world.on[alias].read(topic)]


def both_have_all(world: World, *topics: str) -> bool:
    """Whether both clusters have the same records, each once."""
    for topic in topics or ("orders",):
        a, b = Counter(values(world, "A", topic)), Counter(values(world, "B", topic))
        if a != b or any(count > 1 for count in a.values()):
            return False
    return True


def in_order(world: World, alias: str, prefix: bytes, topic: str = "orders") -> bool:
    """Whether what one cluster's applications wrote is in its order, in each partition."""
    found: dict[int, list[int]] = {}
    for partition, value in values(world, alias, topic):
        if value is not None and value.startswith(prefix):
            found.setdefault(partition, []).append(int(value[len(prefix) :]))
    return all(numbers == sorted(numbers) for numbers in found.values())


async def stands_still(world: World, *topics: str, seconds: float = 40) -> None:
    """Assert that nothing is copied round."""
    names = topics or ("orders",)
    ends = [world.on[alias].ends(topic) for alias in world.on for topic in names]
    await world.pause(seconds)
    assert [world.on[alias].ends(topic) for alias in world.on for topic in names] == ends


async def write(
    world: World, numbers: range, *, partitions: int = 2, seconds: float = 0.4, to: str = "ABC"
) -> None:
    """Each cluster's applications write one record for each number."""
    for number in numbers:
        for alias in [each for each in world.on if each in to]:
            world.on[alias].produce("orders", number % partitions, f"{alias}{number}".encode())
        await world.pause(seconds)


async def all_once(world: World, count: int) -> None:
    """Both clusters get to have these many records, each once and in the order of its cluster, and then
    nothing is copied round."""
    await world.until(lambda: min(len(values(world, alias)) for alias in world.on) >= count)
    await stands_still(world)
    assert both_have_all(world)
    for alias in world.on:
        assert len(values(world, alias)) == count
        for origin in world.on:
            assert in_order(world, alias, origin.encode())


async def write_hundreds(world: World, rounds: int) -> None:
    """Until all is copied."""
    for number in range(rounds):
        for alias, application in world.on.items():
            application.produce("orders", 0, *(f"{alias}{number}-{i}".encode() for i in range(100)))
        await world.pause(0.4)
    await world.until(lambda: both_have_all(world))


def skipped(world: World, group: str) -> set[bytes | None]:
    """What a group has not read where it is, and would leave out on the other cluster."""
    read: dict[str, set[bytes | None]] = {}
    for alias in world.on:
        end = world.on[alias].committed(group).get(("orders", 0), 0)
        read[alias] = {seen.value for seen in world.on[alias].read("orders") if seen.offset < end}
    return read["B"] - read["A"] if group == "everything" else read["A"] - read["B"]


async def verified(
    world: World, flow: Flow, *, complete: bool = True, file: Path | None = None
) -> tuple[str, int]:
    """The verdict, of a replicator that has stopped for good if `complete`, and how many records differ."""
    request = VerifyRequest(flow=flow, topics=frozenset({"orders"}), complete=complete)
    report = await Verification(
        configuration=load(file or world.file, environ={}), request=request, clock=LoopClock()
    ).run()
    assert not report.failures
    assert not [each.reason for proof in report.proofs for each in proof.not_compared]
    differing = sum(each.count for proof in report.proofs for each in proof.differences)
    return str(report.verdict), differing
