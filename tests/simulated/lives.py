"""What happens in one random life, and what has to hold in it."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration

from simulated.clients import Seen
from simulated.world import SERVICES, World
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.testing.broker import Loss
from twinlog.testing.broker.acls import Authorizer

_STEPS = 12
_LONGEST_PAUSE_SECONDS = 4.0
_SETTLING_SECONDS = 300.0
_REST_SECONDS = (10.0, 10.0, 30.0)
"""One of them: what is copied twice, or a group that runs ahead, comes soon after, or with a later look."""
_LOOK_SECONDS = 5.0
_OF_LOST_TAILS = ("GAPS", "OFFSETS")
_MOVE_SECONDS = 60.0
OF_MOVES = ("FENCE", "MOVE", "MOVED")
"""What is in force while a group is not at home."""
_MOST_REQUESTS_A_SECOND = 100
TOPICS = {"orders": 2, "orders.returns": 1}
"""With the count of their partitions."""
LARGE_BYTES = 700_000
"""Some of these are more than one fetch."""

Place = tuple[str, int]
"""A partition, by the topic's name on the source."""
Step = Callable[[], Awaitable[None]]


class Setting(NamedTuple):
    """What lives have in common that begin alike."""

    node_count: int
    has_same_names: bool
    is_translated: bool
    """Copies have offsets of their own."""
    is_both_ways: bool
    """Both clusters write to topics of the same names."""
    has_two_files: bool = False
    """Each direction has its own, with services of its own."""

    @property
    def prefix(self) -> str:
        return "" if self.has_same_names else "A."


class Life:
    """What happens in one life, from a begin in which all services run."""

    def __init__(self, world: World, setting: Setting, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.prefix = setting.prefix
        self.has_same_names = setting.has_same_names
        self.written = 0
        self.told: list[str] = []
        self.lost: set[Place] = set()
        """Copies that lost their tail."""
        self.is_moved: bool | None = False
        """Whether the group works on the target; None = a move has not said how it ended."""
        self.has_group = False
        """Whether the group had committed anything before it was moved last."""
        self.put_back: dict[Place, int] = {}
        """Where the last failback left the group on the source."""

    async def live(self) -> None:
        steps = [*self.writing(), *self.failing()]
        for _ in range(_STEPS):
            await self.world.pause(self.random.random() ** 3 * _LONGEST_PAUSE_SECONDS)
            step = self.random.choice(steps)
            self.told.append(f"{self.world.now():.3f} {step.__name__}")
            await step()
        self.told.append(f"{self.world.now():.3f} the end")
        for name in SERVICES:
            if name not in self.world.services:
                self.world.start(name)
        await self.produce()
        give_up_at = self.world.now() + _SETTLING_SECONDS
        while self.is_moved is not False:
            assert self.world.now() < give_up_at, "the group is not back"
            await self.move()
            await self.world.pause(1)
        await self.world.until(self.is_settled, give_up_at - self.world.now())
        await self.world.pause(self.random.choice(_REST_SECONDS))
        assert self.is_settled(), "it was settled, and is not any more"
        self.check()
        while (wrong := await self.wrongly_shown()) is not None:
            assert self.world.now() < give_up_at, f"what is shown is not what is: {wrong}"
            await self.world.pause(_LOOK_SECONDS)

    def writing(self) -> list[Step]:
        """What applications and their groups do; more often what is there twice."""
        return [
            self.produce,
            self.produce,
            self.transact,
            self.commit,
            self.commit,
            self.fill_up,
            self.move,
        ]

    def failing(self) -> list[Step]:
        return [
            self.kill,
            self.kill_tasks,
            self.elect,
            self.lose,
            self.hang,
            self.slow,
            self.outage,
            self.refuse,
            *([self.lose_tail] if self.has_same_names else []),
        ]

    def is_settled(self) -> bool:
        """The copies are equal. Where one lost its tail, a batch of ours may have come behind it, at another
        offset than its own: then everything follows once more, in order, and offsets are other ones."""
        others: set[Place] = set()
        for topic, count in TOPICS.items():
            here, there = self.world.on["A"].read(topic), self.world.on["B"].read(self.prefix + topic)
            for index in range(count):
                one, other = (
                    [content_of(seen) for seen in log if seen.partition == index] for log in (here, there)
                )
                if one != other:
                    if (topic, index) not in self.lost or not _is_within(one, other):
                        return False
                    others.add((topic, index))
        committed, copied = self.committed("A"), self.committed("B")
        same = [place for place in {*committed, *copied} - others if self.has_same_names]
        return all(committed.get(place) == copied.get(place) for place in same)

    def check(self) -> None:
        self.check_services()
        self.assert_not_ahead("B", self.unread("A"))
        assert self.world.on["B"].committed("locals") == {(self.prefix + "orders", 0): 0}
        assert not self.world.on["A"].committed("locals"), "a group of B was moved to A"

    def check_services(self, flows: int = 1) -> None:
        requests = len(self.world.requests) / self.world.now() / flows
        assert requests < _MOST_REQUESTS_A_SECOND, f"{requests:.0f} requests a second for each flow"
        crashed = [each for each in self.world.logged if each["level"] in ("error", "critical")]
        assert not crashed, crashed
        for alias, authorizer in self.authorizers():
            assert not authorizer.acls, f"ACLs are left on {alias}: {list(authorizer.acls)}"

    async def wrongly_shown(self) -> object:
        """What is shown of a deployment in which everything moves is that; None if so."""
        status = await self.world.status()
        found: list[object] = [
            (each.about, each.reason, each.message)
            for each in verdict_of(status).pressing
            if not (self.lost and each.reason in _OF_LOST_TAILS)
        ]
        flow = status.flows["A->B"]
        if (flow.lag_records, flow.partitions) != (0, {"RUNNING": sum(TOPICS.values()) + 1}):
            found.append((flow.lag_records, flow.partitions))  # Heartbeats are copied, too.
        found += [each for each in flow.in_force if each.kind in OF_MOVES]
        groups, copied = await self.world.groups(), self.committed("B")
        for (topic, index), offset in self.committed("A").items():
            if not any(each.partition == index for each in self.world.on["A"].read(topic)):
                continue  # Without a record there is no offset sync.
            shown = groups.get(("readers", self.prefix + topic, index))
            there = copied.get((topic, index), -1)
            # A group that stands where a failback left it keeps its place on the target, too.
            keeps = self.put_back.get((topic, index)) == offset
            if shown is None or not (
                shown.downstream_offset == there or (keeps and there < shown.downstream_offset)
            ):
                found.append((topic, index, copied, shown))
        return found or None

    def authorizers(self) -> list[tuple[str, Authorizer]]:
        found = [(alias, each.cluster.authorizer) for alias, each in self.world.on.items()]
        return [(alias, authorizer) for alias, authorizer in found if authorizer is not None]

    def committed(self, alias: str) -> dict[Place, int]:
        committed = self.world.on[alias].committed("readers")
        prefix = self.prefix if alias == "B" else ""
        return {(name.removeprefix(prefix), index): offset for (name, index), offset in committed.items()}

    def unread(self, alias: str) -> dict[Place, set[object]]:
        """What the group has still to read there."""
        prefix = self.prefix if alias == "B" else ""
        return {
            (topic, index): {
                content_of(each)
                for each in self.world.on[alias].read(prefix + topic)
                if each.partition == index and each.offset >= offset
            }
            for (topic, index), offset in self.committed(alias).items()
        }

    def assert_not_ahead(self, alias: str, unread: dict[Place, set[object]]) -> None:
        for place, left in self.unread(alias).items():
            skipped = unread.get(place, set()) - left
            assert not skipped, f"the group is ahead in {place} on {alias}: {list(skipped)[:3]}"

    def values(self, most: int = 5) -> list[bytes]:
        before, self.written = self.written, self.written + self.random.randint(1, most)
        return [b"%d" % number for number in range(before, self.written)]

    def place(self) -> Place:
        topic = self.random.choice(list(TOPICS))
        return topic, self.random.randrange(TOPICS[topic])

    async def produce(self) -> None:
        self.world.on["A"].produce(*self.place(), *self.values())

    async def transact(self) -> None:
        topic, _ = self.place()
        commits = self.random.random() < 0.7
        self.world.on["A"].transaction(topic, *self.values(), partitions=TOPICS[topic], commits=commits)

    def works_on(self) -> str | None:
        """Where the group works; None while that is not certain. A group that had committed nothing was not
        moved, and what it would commit on B afterwards would be B's own."""
        if self.is_moved is None or (self.is_moved and not self.has_group):
            return None
        return "B" if self.is_moved else "A"

    async def commit(self) -> None:
        alias = self.works_on()
        if alias is None:
            return
        topic, index = self.place()
        name = self.prefix + topic if self.is_moved else topic
        end = self.world.on[alias].ends(name)[index]
        before = self.committed(alias).get((topic, index), 0)
        self.world.on[alias].commit("readers", name, {index: self.random.randint(min(before, end), end)})

    async def move(self) -> None:
        """A failover, or its failback. One that fails is run again before anything else."""
        kind = "failback" if self.is_moved else "failover"
        unread = self.unread("B" if self.is_moved else "A")
        self.has_group = bool(unread)
        was_moved, self.is_moved = self.is_moved, self.is_moved or None
        try:
            async with asyncio.timeout(_MOVE_SECONDS):
                wait = Duration(seconds=20)
                *_, last = await self.world.move(kind, wait=wait, **self.options_of_move())
        except (grpc.RpcError, TimeoutError) as error:
            self.told.append(f"{self.world.now():.3f} {kind} failed: {str(error)[:300]}")
            return
        if last.report.left_behind:
            self.told.append(f"{self.world.now():.3f} {kind} is not complete: {last.report.left_behind}")
            return
        self.is_moved = not was_moved
        if was_moved:
            self.put_back = self.committed("A")
        self.told.append(f"{self.world.now():.3f} {kind} done")
        self.assert_not_ahead("B" if self.is_moved else "A", unread)

    def options_of_move(self) -> dict[str, Any]:
        return {"fence": self.random.random() < 0.5}

    async def fill_up(self) -> None:
        topic, index = self.place()
        for _ in range(4):
            self.world.on["A"].produce(topic, index, bytes(LARGE_BYTES))

    async def kill(self) -> None:
        name = self.random.choice(SERVICES)
        if name in self.world.services:
            await self.world.kill(name)
        if self.random.random() < 0.7:
            self.world.start(name)

    async def kill_tasks(self) -> None:
        await self.world.kill_tasks()

    async def elect(self) -> None:
        cluster = self.world.on[self.random.choice("AB")].cluster
        partitions = [each for each in cluster.partitions() if len(each.isr) > 1]
        if partitions:
            partition = self.random.choice(partitions)
            cluster.elect(partition, self.random.choice(partition.isr))

    def node(self) -> tuple[str, int]:
        alias = self.random.choice("AB")
        return alias, self.random.choice(list(self.world.on[alias].cluster.nodes))

    async def lose(self) -> None:
        alias, node_id = self.node()
        api = self.random.choice([None, "produce", "fetch", "end_txn", "add_offsets_to_txn", "list_offsets"])
        self.world.kafka[alias].faults.begin(
            api=api,
            node_id=node_id,
            times=self.random.randint(1, 3),
            loses=self.random.choice(list(Loss)),
            seconds=20,
        )

    async def lose_tail(self) -> None:
        """Of a copy. Positions of copies with other offsets are stored elsewhere, and do not notice it."""
        target = self.world.on["B"]
        topic, index = self.place()
        end = target.ends(topic)[index]
        if end:
            self.lost.add((topic, index))
            target.cluster.lose_tail(
                target.partition(topic, index), self.random.randint(max(0, end - 3), end)
            )

    async def refuse(self) -> None:
        """The target takes no large record for a while; it stands behind others of a new leader epoch."""
        topic, index = self.place()
        configs = self.world.on["B"].cluster.topics[self.prefix + topic].configs
        configs["max.message.bytes"] = str(LARGE_BYTES // 2)
        asyncio.get_running_loop().call_later(10, configs.pop, "max.message.bytes", None)
        partition = self.world.on["A"].partition(topic, index)
        if partition.leader in partition.isr:
            self.world.on["A"].cluster.elect(partition, partition.leader)
        self.world.on["A"].produce(topic, index, *self.values())
        self.world.on["A"].produce(topic, index, bytes(LARGE_BYTES))

    async def hang(self) -> None:
        alias, node_id = self.node()
        self.world.kafka[alias].faults.begin(node_id=node_id, hangs=True, seconds=self.random.random() * 40)

    async def slow(self) -> None:
        alias, node_id = self.node()
        self.world.kafka[alias].faults.begin(
            node_id=node_id,
            request_seconds=self.random.random(),
            answer_seconds=self.random.random(),
            seconds=20,
        )

    async def outage(self) -> None:
        alias, node_id = self.node()
        await self.world.kafka[alias].stop_node(node_id)
        await self.world.pause(self.random.random() * 20)
        await self.world.kafka[alias].start_node(node_id)


def content_of(seen: Seen) -> object:
    return seen.partition, seen.value, seen.timestamp_ms


def _is_within(content: list[object], copied: list[object]) -> bool:
    """Whether a copy has all of this in its order, and nothing else."""
    rest = iter(copied)
    return all(each in rest for each in content) and set(copied) <= set(content)
