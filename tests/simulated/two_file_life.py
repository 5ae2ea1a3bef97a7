"""A random life of topics that two files copy both ways, a process of each service for each direction.

Besides what happens in `merged_life.py`, topics are created again on both clusters at once, positions topics
are deleted, rules change, and a file stops and begins again to ask for exactly once.
"""

from collections import Counter
from collections.abc import Awaitable
from typing import Any

import grpc

from simulated.both_ways_rig import BESIDE_PORTS, write_back
from simulated.lives import TOPICS, Setting, Step, content_of
from simulated.merged_life import HOMES, MergedLife
from simulated.test_steering import scope
from simulated.world import PORTS, World
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.errors import TwinlogError

NAMES = ("configsync", "source", "checkpoint")
_STEPS = 10
_LONGEST_LOOKS = 8
_LOOK_SECONDS = 1.0
_QUIET_SECONDS = 30.0
_SETTLING_SECONDS = 600.0
_UNKNOWN_SECONDS = 60.0
"""For so long an operator waits until a flow knows by itself whose records are copies."""
_DIRECTIONS = {"": ("A", "B"), " 2": ("B", "A")}
"""By what the names of a file's processes end with."""


class TwoFileLife(MergedLife):
    def __init__(self, world: World, setting: Setting, seed: int) -> None:
        super().__init__(world, setting, seed)
        self.without_exactly_once: set[str] = set()
        self.is_always_exactly_once = True
        self.is_always_both_ways = True
        self.operated: dict[str, float] = {}
        """When an operator last restarted the source service of a file."""
        self.files = {"": world.file, " 2": write_back(world)}
        self.texts = {each: file.read_text() for each, file in self.files.items()}
        rare: list[Step] = [self.lose_positions, self.rule, self.toggle]
        self.rare = [each for each in rare if self.random.random() < 0.4]

    def writing(self) -> list[Step]:
        return [*[self.produce] * 2, self.transact, *[self.commit] * 3, *[self.recreate] * 2]

    def failing(self) -> list[Step]:
        usual: list[Step] = [self.kill, self.kill, self.kill_tasks, self.lose, self.hang, self.outage]
        return [*usual, *self.rare, *self.rare]

    async def live(self) -> None:
        steps = [*self.writing(), *self.failing()]
        for _ in range(_STEPS):
            step = self.random.choice(steps)
            self.tell(step.__name__)
            await self.produce()
            await step()
            await self.look(self.random.randrange(_LONGEST_LOOKS))
        await self.settle()

    def tell(self, what: str) -> None:
        self.told.append(f"{self.world.now():.3f} {what}")

    async def look(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await self.world.pause(_LOOK_SECONDS)
            self.assert_nobody_is_ahead()

    async def settle(self) -> None:
        """Everything is copied, also with the help of an operator, and every partition runs."""
        self.tell("the end")
        for flow in ("A->B", "B->A"):
            for key, value in (("topics", "orders.*"), ("groups.exclude", "none")):
                await self.until_taken(flow, key, value)
        for topic, count in TOPICS.items():
            for applications in self.world.on.values():
                if topic not in applications.cluster.topics:
                    applications.cluster.create_topic(topic, partition_count=count)
        await self.produce()
        begun, quiet = self.world.now(), 0.0
        while quiet < _QUIET_SECONDS:
            wrong = await self.operate(is_patient=self.world.now() < begun + _UNKNOWN_SECONDS)
            assert self.world.now() < begun + _SETTLING_SECONDS, (wrong, self.differences())
            await self.look(5)
            quiet = quiet + 5 if self.is_settled() and not wrong else 0
        for group, home in HOMES.items():
            on = self.world.on[home]
            on.commit(group, "orders", dict(enumerate(on.ends("orders"))))
            self.has_read[group] |= self.read_by(group, home)
        await self.look(20)
        assert not self.differences()
        self.check()

    def is_settled(self) -> bool:
        self.assert_nobody_is_ahead()
        return not self.differences()

    def differences(self) -> dict[str, Any]:
        """By topic: what a cluster lacks, or has twice although both files always asked for exactly once."""
        found = {}
        for topic in TOPICS:
            one, other = (Counter(map(content_of, self.world.on[alias].read(topic))) for alias in "AB")
            twice = {each for each, count in (one | other).items() if count > 1}
            if one.keys() ^ other.keys() or (twice and self.is_always_exactly_once):
                found[topic] = list(one.keys() ^ other.keys())[:3], list(twice)[:3]
        return found

    def assert_nobody_is_ahead(self) -> None:
        """While a rule lets a topic be copied one way, nobody knows what comes back later."""
        if self.is_always_both_ways:
            super().assert_nobody_is_ahead()

    async def kill(self) -> None:
        name = self.random.choice([f"{service}{file}" for service in NAMES for file in self.files])
        self.tell(f"  {name}")
        await self.away(name, self.random.choice((self.world.kill, self.world.stop)))

    async def kill_tasks(self) -> None:
        await self.world.kill_tasks_of(f"source{self.random.choice(list(self.files))}")

    async def away(self, name: str, ends: Any) -> None:
        await ends(name)
        await self.world.pause(self.random.choice((0, 20 * self.random.random())))
        self.start(name)

    def start(self, name: str) -> None:
        file = self.files[" 2" if name.endswith(" 2") else ""]
        self.world.start(name, arguments=("--config", str(file)))

    async def recreate(self) -> None:
        """On one cluster, or on both at once."""
        if self.random.random() < 0.7:
            await super().recreate()
            return
        topic, _ = self.place()
        self.recreated.add(topic)
        self.tell(f"  {topic} on both")
        clusters = [each.cluster for each in self.world.on.values() if topic in each.cluster.topics]
        for cluster in clusters:
            cluster.delete_topic(topic)
        await self.world.pause(self.random.choice((0, 20 * self.random.random())))
        for cluster in clusters:
            if topic not in cluster.topics:
                cluster.create_topic(topic, partition_count=TOPICS[topic])

    async def lose_positions(self) -> None:
        here, there = self.random.choice(list(_DIRECTIONS.values()))
        lost = [(there, f"mm2-offsets.{here}.internal")]
        if self.random.random() < 0.3:
            lost.append((here, f"mm2-offset-syncs.{there}.internal"))
        for alias, topic in lost:
            if topic in (cluster := self.world.on[alias].cluster).topics:
                self.tell(f"  {topic} on {alias}")
                cluster.delete_topic(topic)

    async def toggle(self) -> None:
        """Whether a file asks for exactly once."""
        file, self.is_always_exactly_once = self.random.choice(list(self.files)), False
        self.without_exactly_once ^= {file}
        disabled = "exactly.once.source.support = disabled\n" * (file in self.without_exactly_once)
        self.files[file].write_text(self.texts[file] + disabled)
        await self.away(f"source{file}", self.random.choice((self.world.kill, self.world.stop)))

    async def rule(self) -> None:
        flow = self.random.choice(("A->B", "B->A"))
        key, value = self.random.choice(
            (
                ("topics", "others"),
                ("topics", "orders.*"),
                ("groups.exclude", ".*"),
                ("groups.exclude", "none"),
            )
        )
        if (key, value) == ("topics", "others"):
            self.is_always_both_ways = False
        await self.is_taken(
            self.world.rule(flow, key, value, port=self.port(flow, PORTS["configsync"])),
            f"{flow} {key} {value}",
        )

    async def until_taken(self, flow: str, key: str, value: str) -> None:
        give_up_at = self.world.now() + _UNKNOWN_SECONDS * 2
        while not await self.is_taken(
            self.world.rule(flow, key, value, port=self.port(flow, PORTS["configsync"])), flow
        ):
            assert self.world.now() < give_up_at, f"{flow} takes no rules"
            await self.look(5)

    async def is_taken(self, ordered: Awaitable[Any], what: str) -> bool:
        try:
            await ordered
        except (grpc.aio.AioRpcError, TwinlogError) as error:
            self.tell(f"  {what} failed: {str(error)[:150]}")
            return False
        self.tell(f"  {what}")
        return True

    def port(self, flow: str, port: int) -> int:
        return port + BESIDE_PORTS * (flow == "B->A")

    async def operate(self, *, is_patient: bool) -> list[str]:
        """Set positions that were lost; returns what does not run."""
        wrong: list[str] = []
        for file, (here, there) in _DIRECTIONS.items():
            port, asked = self.port(f"{here}->{there}", PORTS["source"]), scope("orders", here, there).flow
            try:
                told = await self.world.order(
                    "ListPartitions", source.ListPartitionsRequest(flow=asked), port=port
                )
            except (grpc.aio.AioRpcError, TwinlogError) as error:
                wrong.append(str(error))
                continue
            for each in told.partitions:
                if each.state == source.PARTITION_STATE_RUNNING or each.source.topic not in TOPICS:
                    continue
                wrong.append(f"{here}->{there} {each.source.topic}-{each.source.partition} {each.message}")
                is_unknown = each.reason == "ORIGIN_UNKNOWN" and "deleted" in each.message and not is_patient
                if each.reason != "NO_POSITION" and not is_unknown:
                    continue
                move = source.SetPositionsRequest(scope=scope(each.source.topic, here, there), by="ann")
                move.scope.partition = each.source.partition
                move.target.offset = self.first_missing(each.source, here, there)
                await self.is_taken(
                    self.world.order("SetPositions", move, port=port), f"{wrong[-1]}: {move.target.offset}"
                )
                if is_unknown and self.world.now() > self.operated.get(file, 0) + 120:
                    self.operated[file] = self.world.now()
                    await self.away(f"source{file}", self.world.stop)
        return wrong

    def first_missing(self, partition: Any, here: str, there: str) -> int:
        one, other = (
            [
                each
                for each in self.world.on[alias].read(partition.topic)
                if each.partition == partition.partition
            ]
            for alias in (here, there)
        )
        known = set(map(content_of, other))
        missing = [each.offset for each in one if content_of(each) not in known]
        return min(missing, default=self.world.on[here].ends(partition.topic)[partition.partition])
