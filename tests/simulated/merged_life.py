"""A random life in which both clusters write to topics of the same names, and topics are created again."""

from collections import Counter
from typing import Any

from simulated.clients import Seen
from simulated.lives import LARGE_BYTES, OF_MOVES, TOPICS, Life, Place, Setting, Step, content_of
from simulated.world import World
from twinlog.cli.verdict.verdict import verdict_of

HOMES = {"readers": "A", "writers": "B"}
"""Groups, and the cluster on which each works; readers move to the other one and back."""


class MergedLife(Life):
    """Applications of each cluster write, and groups of each are translated to the other one."""

    def __init__(self, world: World, setting: Setting, seed: int) -> None:
        super().__init__(world, setting, seed)
        self.has_read: dict[str, set[object]] = {group: set() for group in HOMES}
        """What each group has read at home, also in topics that are gone."""
        self.recreated: set[str] = set()
        """Topics in which what one cluster wrote came from the other one once more, behind newer records."""

    def writing(self) -> list[Step]:
        often = [self.produce, self.transact, self.commit]
        return [
            self.produce,
            *often,
            *often,
            self.commit,
            self.recreate,
            self.recreate,
            self.fill_up,
            self.move,
        ]

    def failing(self) -> list[Step]:
        return [self.kill, self.kill_tasks, self.elect, self.lose, self.hang, self.slow, self.outage]

    async def wrongly_shown(self) -> object:
        """What is pressing in the status of a deployment in which everything moves; None if nothing is."""
        status = await self.world.status()
        found = [
            (each.about, each.reason, each.message)
            for each in verdict_of(status).pressing
            if not (self.recreated and each.reason == "GAPS")
        ]
        moving = [each for flow in status.flows.values() for each in flow.in_force if each.kind in OF_MOVES]
        return [*found, *moving] or None

    def is_settled(self) -> bool:
        """Each cluster has everything once, and what one writer wrote in its order."""
        self.assert_nobody_is_ahead()
        for topic in TOPICS:
            logs = [self.world.on[alias].read(topic) for alias in "AB"]
            one, other = (Counter(map(content_of, log)) for log in logs)
            if one != other or any(count > 1 for count in one.values()):
                return False
        return True

    def check(self) -> None:
        self.check_services(flows=2)
        for topic in TOPICS.keys() - self.recreated:
            for log in (self.world.on[alias].read(topic) for alias in "AB"):
                for writer in (b"A", b"B"):
                    assert _is_in_order(log, writer), f"{topic}: {writer!r} is not in order"

    def assert_not_ahead(self, _alias: str, _unread: dict[Place, set[object]]) -> None:
        """After a move: as always."""
        self.assert_nobody_is_ahead()

    def assert_nobody_is_ahead(self) -> None:
        for group in HOMES:
            for alias in "AB":
                skipped = self.read_by(group, alias) - self.has_read[group]
                assert not skipped, f"{group} are ahead on {alias}: {sorted(skipped, key=repr)[:3]}"

    def read_by(self, group: str, alias: str) -> set[object]:
        committed = self.world.on[alias].committed(group)
        return {
            content_of(seen)
            for topic in TOPICS
            for seen in self.world.on[alias].read(topic)
            if seen.offset < committed.get((topic, seen.partition), 0)
        }

    def there(self) -> tuple[str, str, int] | None:
        """A partition of a topic that exists."""
        (topic, index), alias = self.place(), self.random.choice("AB")
        return (alias, topic, index) if topic in self.world.on[alias].cluster.topics else None

    async def produce(self) -> None:
        if there := self.there():
            alias, topic, index = there
            self.world.on[alias].produce(topic, index, *self.written_by(alias, most=60))

    async def transact(self) -> None:
        if there := self.there():
            alias, topic, _ = there
            commits, count = self.random.random() < 0.7, TOPICS[topic]
            values = self.written_by(alias)
            self.world.on[alias].transaction(topic, *values, partitions=count, commits=commits)

    async def fill_up(self) -> None:
        if there := self.there():
            alias, topic, index = there
            for value in self.written_by(alias):
                self.world.on[alias].produce(topic, index, value + bytes(LARGE_BYTES))

    def written_by(self, alias: str, most: int = 5) -> list[bytes]:
        return [alias.encode() + value for value in self.values(most)]

    async def move(self) -> None:
        """A group that has committed nothing is none. Both write everywhere: without records of its own a
        topic has no offset syncs, and moves wait for them."""
        for alias, applications in self.world.on.items():
            for topic in filter(applications.cluster.topics.__contains__, TOPICS):
                for index in range(TOPICS[topic]):
                    applications.produce(topic, index, *self.written_by(alias, most=1))
        if not self.is_moved and not self.committed("A"):
            self.is_moved = False
        else:
            await super().move()

    def options_of_move(self) -> dict[str, Any]:
        """A fence would stop the other flow, too."""
        return {"groups": ["readers"]}

    async def commit(self) -> None:
        """A group where it works: it has read more, or everything."""
        self.assert_nobody_is_ahead()
        (topic, index), group = self.place(), self.random.choice(list(HOMES))
        alias = self.works_on() if group == "readers" else HOMES[group]
        if alias is not None and topic in (on := self.world.on[alias]).cluster.topics:
            end, before = on.ends(topic)[index], on.committed(group).get((topic, index), 0)
            offset = self.random.choice((end, self.random.randint(min(before, end), end)))
            on.commit(group, topic, {index: offset})
            self.has_read[group] |= self.read_by(group, alias)

    async def recreate(self) -> None:
        """A topic of one cluster, also by the flow from the other. What nobody has copied is lost. The new
        log may be as long as the former one before anything is copied to it."""
        (topic, _), alias = self.place(), self.random.choice("AB")
        cluster = self.world.on[alias].cluster
        if topic not in cluster.topics:
            return
        self.recreated.add(topic)
        cluster.delete_topic(topic)
        self.told.append(f"{self.world.now():.3f} {topic} is deleted on {alias}")
        await self.world.pause(self.random.choice((0, self.random.random(), 20 * self.random.random())))
        if topic not in cluster.topics:
            cluster.create_topic(topic, partition_count=TOPICS[topic])
            self.told.append(f"{self.world.now():.3f} {topic} is created again on {alias}")
            for index in range(TOPICS[topic]):
                most = self.random.choice((1, 100))
                self.world.on[alias].produce(topic, index, *self.written_by(alias, most))


def _is_in_order(log: list[Seen], writer: bytes) -> bool:
    found: dict[int, list[int]] = {}
    for seen in log:
        if seen.value is not None and seen.value.startswith(writer):
            found.setdefault(seen.partition, []).append(int(seen.value[1:].rstrip(b"\0")))
    return all(numbers == sorted(numbers) for numbers in found.values())
