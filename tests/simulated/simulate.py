"""Random lives of the whole system: `python -m simulated.simulate --seeds 100 [--from 1]`.

One seed decides everything: what applications do, what breaks, and when. What has to hold: after the last
fault everything is copied, in order, once; groups are not ahead; nobody asks brokers without a pause.
"""

import argparse
import gc
import os
import random
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random

from simulated.histories import DEFAULT, IDENTITY
from simulated.world import SERVICES, World, live
from twinlog.testing.broker import Loss

_STEPS = 12
_LONGEST_PAUSE_SECONDS = 4.0
_SETTLING_SECONDS = 300.0
_REST_SECONDS = 10.0
"""What is copied twice, or a group that runs ahead, comes soon after."""
_MOST_REQUESTS_A_SECOND = 100
_AGAIN = "cd tests; PYTHONHASHSEED=0 ../.venv/bin/python -m simulated.simulate --seeds 1 --from {}"
_FIRST_LIFE = 0
_TOPICS = ("orders", "orders.returns")


class Life:
    """What happens in one life."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.has_same_names = self.random.random() < 0.6
        self.written = 0
        self.told: list[str] = []

    async def live(self) -> None:
        source = self.world.on["A"]
        for topic in _TOPICS:
            source.cluster.create_topic(topic, partition_count=self.random.randint(1, 2))
        self.world.start(*SERVICES)
        writing = [self.produce, self.produce, self.transact, self.commit, self.fill_up]
        failing = [self.kill, self.kill_tasks, self.elect, self.lose, self.hang, self.slow, self.outage]
        steps = [*writing, *failing, *([self.lose_tail] if self.has_same_names else [])]
        for _ in range(_STEPS):
            await self.world.pause(self.random.random() ** 3 * _LONGEST_PAUSE_SECONDS)
            step = self.random.choice(steps)
            self.told.append(f"{self.world.now():.3f} {step.__name__}")
            await step()
        for name in SERVICES:
            if name not in self.world.services:
                self.world.start(name)
        await self.produce()
        await self.world.until(self.is_copied, _SETTLING_SECONDS)
        await self.world.pause(_REST_SECONDS)
        assert self.is_copied()
        self.check()

    def is_copied(self) -> bool:
        prefix = "" if self.has_same_names else "A."
        for topic in _TOPICS:
            here, there = (
                self.world.on[alias].read(name) for alias, name in (("A", topic), ("B", prefix + topic))
            )
            if [(each.partition, each.value, each.timestamp_ms) for each in here] != [
                (each.partition, each.value, each.timestamp_ms) for each in there
            ]:
                return False
        return True

    def check(self) -> None:
        requests = len(self.world.requests) / self.world.now()
        assert requests < _MOST_REQUESTS_A_SECOND, f"{requests:.0f} requests a second"
        crashed = [each for each in self.world.logged if each["level"] in ("error", "critical")]
        assert not crashed, crashed
        prefix = "" if self.has_same_names else "A."
        source, target = self.world.on["A"], self.world.on["B"]
        for (name, index), offset in target.committed("readers").items():
            topic = name.removeprefix(prefix)
            committed = source.committed("readers")[topic, index]
            unread = [
                each.value
                for each in source.read(topic)
                if each.partition == index and each.offset >= committed
            ]
            left = [
                each.value for each in target.read(name) if each.partition == index and each.offset >= offset
            ]
            assert left[len(left) - len(unread) :] == unread, f"the group is ahead in {name}-{index}"

    def values(self) -> list[bytes]:
        before, self.written = self.written, self.written + self.random.randint(1, 5)
        return [b"%d" % number for number in range(before, self.written)]

    def place(self) -> tuple[str, int]:
        topic = self.random.choice(_TOPICS)
        return topic, self.random.randrange(len(self.world.on["A"].ends(topic)))

    async def produce(self) -> None:
        self.world.on["A"].produce(*self.place(), *self.values())

    async def transact(self) -> None:
        topic, _ = self.place()
        count = len(self.world.on["A"].ends(topic))
        commits = self.random.random() < 0.7
        self.world.on["A"].transaction(topic, *self.values(), partitions=count, commits=commits)

    async def commit(self) -> None:
        topic, partition = self.place()
        end = self.world.on["A"].ends(topic)[partition]
        before = self.world.on["A"].committed("readers").get((topic, partition), 0)
        self.world.on["A"].commit("readers", topic, {partition: self.random.randint(min(before, end), end)})

    async def fill_up(self) -> None:
        self.world.on["A"].produce(*self.place(), *(bytes(10_000) for _ in range(30)))

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
        end = (target.ends(topic) or [0] * (index + 1))[index]
        if end:
            target.cluster.lose_tail(
                target.partition(topic, index), self.random.randint(max(0, end - 3), end)
            )

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


def lived(seed: int) -> None:
    """Raises what does not hold."""
    nodes = Random(seed).choice([1, 3])
    random.seed(seed)

    async def life() -> None:
        with tempfile.TemporaryDirectory() as directory:
            world = World(Path(directory), IDENTITY, seed=seed, node_count=nodes)
            one = Life(world, seed)
            world.properties = IDENTITY if one.has_same_names else DEFAULT
            async with world:
                try:
                    await one.live()
                except BaseException as error:
                    error.add_note("\n".join(one.told))
                    raise

    live(life())


def is_lived(seed: int) -> bool:
    """Lives in a copy of this process: what lives before have left in its memory changes nothing."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        lived(seed)
    except BaseException:
        sys.stdout.write(f"{traceback.format_exc()}\nseed {seed}; again: {_AGAIN.format(seed)}\n")
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", type=int, default=1, dest="first")
    asked = parser.parse_args()
    gc.disable()  # It takes a third of the time, at moments that differ.
    lived(_FIRST_LIFE)  # Loads what each life needs.
    gc.freeze()
    failed = [seed for seed in range(asked.first, asked.first + asked.seeds) if not is_lived(seed)]
    seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    sys.stdout.write(f"{asked.seeds} lives, {seconds / asked.seeds:.2f} CPU seconds each, failed: {failed}\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
