"""Several processes of a service share the flows to a cluster: evenly, one owner each, and as they were."""

import asyncio
import json
import os
from itertools import product
from pathlib import Path
from random import Random

import grpc
import pytest

from simulated.replicas_rig import OTHERS, SESSION_SECONDS, Ahead, Replicas, owned, replicated
from simulated.world import SERVICES, World, live, lives_in
from twinlog.api.common.v1 import owners_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.api.common.v1.owners_service_pb2_grpc import OwnersServiceStub
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import Pulse
from twinlog.testing.broker.acls import Acl, Authorizer, Operation, Pattern, Permission, Resource
from twinlog.testing.rpc import MemoryRpc

TWELVE, FOUR = "ABCDEFGHIJKL", "ABCD"


@lives_in(replicated, TWELVE, machines_differ=True)
async def test_three_share_twelve_flows_and_only_what_must_moves(world: World, replicas: Replicas) -> None:
    replicas.start(1, 2, 3)
    await replicas.until(4, 4, 4)
    await world.pause(20)
    replicas.changes.clear()
    lost = {flow for flow, (owner,) in replicas.owners.items() if owner == "2"}
    await world.kill("configsync 2")
    await replicas.until(6, 6, seconds=SESSION_SECONDS + 5)
    assert set(replicas.changes) == lost, "the others were left alone"
    replicas.changes.clear()
    replicas.start(4)
    await replicas.until(4, 4, 4)
    await world.pause(60)
    assert set(replicas.changes.values()) == {1}
    assert len(replicas.changes) == 4
    await world.stop("configsync 1")
    await replicas.until(6, 6)


@lives_in(replicated, FOUR, machines_differ=True)
async def test_owners_stay_while_the_cluster_is_away(world: World, replicas: Replicas) -> None:
    replicas.start(1, 2, 3)
    await replicas.until(1, 1, 2)
    before = replicas.owners
    await world.kafka["M"].stop_node(1)
    await world.pause(90)
    assert replicas.counts == [], "nobody works on hearsay"
    await world.kafka["M"].start_node(1)
    await replicas.until(1, 1, 2)
    assert replicas.owners == before
    await world.pause(60)
    assert replicas.owners == before


@lives_in(replicated, FOUR, machines_differ=True)
async def test_one_that_comes_while_another_is_frozen_costs_nobody_its_flows(
    world: World, replicas: Replicas
) -> None:
    """The group waits for the frozen one as long as its session lasts."""
    replicas.start(1, 2)
    await replicas.until(2, 2)
    kept = {flow for flow, (owner,) in replicas.owners.items() if owner == "1"}
    await world.kill("configsync 2")
    replicas.start(3)
    for _ in range(100):
        await world.pause(0.1)
        assert {flow for flow, owners in replicas.owners.items() if "1" in owners} >= kept
    await replicas.until(2, 2)


def test_each_gets_only_flows_that_it_serves(tmp_path: Path) -> None:
    async def life() -> None:
        async with replicated(tmp_path, FOUR) as (world, replicas):
            replicas.start(1, more=("--flows", "A->M,B->M"))
            replicas.start(2, more=("--flows", "B->M,C->M"))
            await replicas.until(1, 2)
            owners = replicas.owners
            assert (owners["A->M"], owners["C->M"]) == (["1"], ["2"])
            assert sorted(owners) == ["A->M", "B->M", "C->M"]
            other = tmp_path / "other.properties"
            other.write_text(world.file.read_text() + "\nC->M.topics = orders\n")
            replicas.start(3, more=("--config", str(other), "--flows", "B->M,C->M"))
            await world.pause(30)
            assert replicas.owners["C->M"] == ["2"], "of files that differ the owner's stays"
            await world.kill("configsync 2")
            await world.until(lambda: replicas.owners.get("C->M") == ["3"])

    live(life(), machines_differ=True)


@lives_in(replicated, FOUR, machines_differ=True)
async def test_clocks_that_are_apart_change_nothing(world: World, replicas: Replicas) -> None:
    replicas.start(1)
    world.start("configsync 2", arguments=OTHERS, clock=Ahead())
    await replicas.until(2, 2)
    await world.kill("configsync 1")
    await replicas.until(4, seconds=SESSION_SECONDS + 5)


@lives_in(replicated, FOUR, machines_differ=True)
async def test_a_process_of_an_earlier_release_keeps_its_flow_until_it_ends(
    world: World, replicas: Replicas
) -> None:
    properties = {"bootstrap.servers": world.kafka["M"].bootstrap}
    async with open_cluster("M", properties) as cluster:
        earlier = cluster.member(
            "twinlog-configsync-A-M",
            assign=lambda said, _: said,
            session_seconds=SESSION_SECONDS,
            rebalance_seconds=SESSION_SECONDS,
        )
        await earlier.join(lambda _: b"old:17402, process 1, rules ")
        replicas.start(1, 2)
        for _ in range(10):
            await world.pause(3)
            assert await earlier.beat() is Pulse.SEATED
            assert "A->M" not in replicas.owners
        assert sum(replicas.counts) == 3
        await earlier.withdraw()
        await world.until(lambda: len(replicas.owners) == 4, 10)


@lives_in(replicated, FOUR, machines_differ=True)
async def test_what_the_members_say_of_many_flows_is_not_large(world: World, replicas: Replicas) -> None:
    replicas.start(1)
    await replicas.until(4)
    async with open_cluster("M", {"bootstrap.servers": world.kafka["M"].bootstrap}) as cluster:
        (group,) = (await cluster.describe_groups(["twinlog-configsync.M"])).values()
        (about,) = group.members  # type: ignore[union-attr]
    said = json.loads(about.partition(b"\0")[0])
    assert sorted(said["flows"]) == [f"{source}->M" for source in FOUR]
    assert len(about) < 150 + 4 * 60


@lives_in(replicated, FOUR, machines_differ=True)
async def test_a_flow_that_is_moved_by_hand_goes_where_it_is_sent_and_stays(
    world: World, replicas: Replicas
) -> None:
    replicas.start(1, 2)
    await replicas.until(2, 2)
    flow = next(flow for flow, owners in replicas.owners.items() if owners == ["1"])
    source, target = flow.split("->")
    asked = types_pb2.Flow(source=source, target=target)
    first, second = (f"127.0.0.1:{world.contexts[f'configsync {n}'].bound.number}" for n in (1, 2))
    async with MemoryRpc(world.rpc).insecure_channel(first) as channel:
        stub = OwnersServiceStub(channel)
        trial = await stub.MoveFlow(pb2.MoveFlowRequest(to=second, dry_run=True, flow=asked))
        assert f":{second.rpartition(':')[2]}, " in trial.to
        await world.pause(10)
        assert replicas.owners[flow] == ["1"]
        for wrong, code in (("nowhere", "NOT_FOUND"), (first, "ABORTED")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.MoveFlow(pb2.MoveFlowRequest(to=wrong, flow=asked))
            assert refused.value.code().name == code
        await stub.MoveFlow(pb2.MoveFlowRequest(to=second, flow=asked))
        await world.until(lambda: replicas.owners.get(flow) == ["2"], 20)
        with pytest.raises(grpc.aio.AioRpcError, match="served by another process"):
            await stub.MoveFlow(pb2.MoveFlowRequest(to=second, flow=asked))
        await replicas.until(2, 2)
        answer = await stub.ListOwners(pb2.ListOwnersRequest())
        listed = {f"{each.flow.source}->M": each for each in answer.owners}
    assert replicas.owners[flow] == ["2"], "another one came back in its place"
    assert (listed[flow].process, listed[flow].why) == (trial.to, "BY_HAND")
    assert sum(each.why == "EVEN_LOAD" for each in listed.values()) == 1


@lives_in(replicated, "ABC", machines_differ=True)
async def test_records_of_flows_that_move_are_copied_once_and_in_order(
    world: World, replicas: Replicas
) -> None:
    for alias in "ABC":
        world.on[alias].cluster.create_topic("orders")

    def values(alias: str, topic: str) -> list[bytes | None]:
        return [seen.value for seen in world.on[alias].read(topic)]

    def copied() -> bool:
        return all(values(alias, "orders") == values("M", f"{alias}.orders") for alias in "ABC")

    async def write(count: int) -> None:
        for number in range(count):
            for alias in "ABC":
                world.on[alias].produce("orders", 0, b"%d" % number)
            await world.pause(0.5)

    replicas.start(1)
    world.start("source 1")
    await write(1)
    await world.until(copied)
    world.start("source 2", arguments=OTHERS)
    await write(60)
    assert sorted(len(owned(world, each)) for each in ("source 1", "source 2")) == [1, 2]
    await world.until(copied)
    await world.kill("source 1")
    await write(30)
    await world.until(copied)
    assert len(owned(world, "source 2")) == 3


@lives_in(replicated, "A", machines_differ=True)
async def test_of_two_that_may_neither_join_nor_see_who_has_joined_one_copies(
    world: World, replicas: Replicas
) -> None:
    """Each works as if alone, and what they write to the target tells them apart."""
    all_rights = [
        Acl(each, "*", Pattern.LITERAL, "User:*", "*", Operation.ALL, Permission.ALLOW) for each in Resource
    ]
    barred = Acl(
        *(Resource.GROUP, "twinlog-", Pattern.PREFIXED, "User:*", "*"),
        *(Operation.ALL, Permission.DENY),
    )
    authorizer = world.on["M"].cluster.authorizer = Authorizer()
    authorizer.add([*all_rights, barred])
    world.on["A"].cluster.create_topic("orders")
    written: list[bytes] = []

    async def write(seconds: int) -> None:
        for _ in range(seconds):
            written.append(b"%d" % len(written))
            world.on["A"].produce("orders", 0, written[-1])
            await world.pause(1)

    def takes_over() -> list[float]:
        return [each["at"] for each in world.logged if each["event"] == "flow_taken_over"]

    replicas.start(1)
    world.start("source 1")
    await write(10)
    world.start("source 2", arguments=OTHERS)
    await write(30)
    assert len(takes_over()) == 2, "the one that came last copies, and stays"
    assert "OWNED_ELSEWHERE" in [e["reason"] for e in world.logged if e["event"] == "flow_waits"]
    await world.kill("source 2")
    await write(80)
    assert len(takes_over()) == 3
    await world.pause(10)
    assert [each.value for each in world.on["M"].read("A.orders")] == written


class Chaos:
    """Three processes of each service, one of which is killed or cut off at a time; one's clock is apart."""

    def __init__(self, world: World, sources: str, seed: int) -> None:
        self.world, self.sources, self.random = world, sources, Random(seed)
        self.written = 0
        self.told: list[str] = []
        self.wrong: list[str] = []
        self._changed_at = world.now()
        self._owned_at: dict[tuple[str, str], float] = {}

    def start(self, name: str) -> None:
        more = () if name.endswith("1") else OTHERS
        self.world.start(name, arguments=more, clock=Ahead() if name.endswith("3") else None)

    def tell(self, what: str) -> None:
        self._changed_at = self.world.now()
        self.told.append(f"{self._changed_at:.1f} {what}")

    async def watch(self) -> None:
        flows = [f"{source}->M" for source in self.sources]
        while True:
            now = self.world.now()
            for service, flow in product(SERVICES, flows):
                owners = [name for name in self.world.services if name.startswith(service)]
                owners = [name for name in owners if flow in owned(self.world, name)]
                if len(owners) > 1:
                    self.wrong.append(f"{now:.1f} {flow} has two owners: {owners}")
                if owners:
                    self._owned_at[service, flow] = now
                since = max(self._changed_at, self._owned_at.get((service, flow), 0))
                if now - since > SESSION_SECONDS + 5:
                    self.wrong.append(f"{now:.1f} {service} of {flow} has no owner")
            await self.world.pause(0.1)

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            name = f"{self.random.choice(SERVICES)} {self.random.randint(1, 3)}"
            way = self.random.choice([*self.sources, "M", "", "".join([*self.sources, "M"])])
            seconds = self.random.choice([1, 5, 15, 80])
            self.tell(f"{name} {'is cut off from ' + way if way else 'is killed'} for {seconds} s")
            if way:
                self.world.bar(name, *way)
            else:
                await self.world.kill(name)
            await self.write(seconds)
            self.tell("is back")
            if way:
                self.world.bar(name)
            else:
                self.start(name)
            await self.write(self.random.choice([1, 10, 40]))

    async def write(self, seconds: float) -> None:
        end = self.world.now() + seconds
        while self.world.now() < end:
            for alias in self.sources:
                self.world.on[alias].produce("orders", 0, b"%d" % self.written)
            self.written += 1
            await self.world.pause(1)


@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("SEEDS", "1"))))
@lives_in(replicated, "AB", machines_differ=True)
async def test_three_of_each_that_die_and_are_cut_off_copy_once_with_one_owner_each(
    world: World, replicas: Replicas, *, seed: int
) -> None:
    chaos = Chaos(world, "AB", seed)

    def copied(expected: list[bytes]) -> bool:
        found = [[each.value for each in world.on["M"].read(f"{alias}.orders")] for alias in "AB"]
        return found == [expected, expected]

    for alias in "AB":
        world.on[alias].cluster.create_topic("orders")
    for service, number in product(SERVICES, "123"):
        chaos.start(f"{service} {number}")
    await chaos.write(20)
    chaos.tell("begin")
    watching = asyncio.get_running_loop().create_task(chaos.watch(), name="watch owners")
    try:
        await chaos.live(6)
        expected = [b"%d" % number for number in range(chaos.written)]
        await world.until(lambda: copied(expected))
        await world.pause(10)
        assert copied(expected), chaos.told
    finally:
        watching.cancel()
    assert not chaos.wrong, (chaos.wrong[:5], chaos.told)
