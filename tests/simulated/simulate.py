"""Random lives of the whole system: `python -m simulated.simulate --seeds 100 [--from 1]`.

One seed decides everything: what applications do, what breaks, and when. What has to hold: after the last
fault everything is copied, in order, once; groups are not ahead; nobody asks brokers without a pause.
"""

import argparse
import asyncio
import gc
import os
import random
import resource
import sys
import tempfile
import traceback
from itertools import groupby
from pathlib import Path
from random import Random
from typing import NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration

from simulated.clients import Seen
from simulated.histories import DEFAULT, IDENTITY
from simulated.world import SERVICES, World, live
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
_MOST_REQUESTS_A_SECOND = 100
_AGAIN = "cd tests; PYTHONHASHSEED=0 ../.venv/bin/python -m simulated.simulate --seeds 1 --from {}"
_TOPICS = {"orders": 2, "orders.returns": 1}
"""With the count of their partitions."""
_FIRST = 0
_LARGE_BYTES = 700_000
"""Some of these are more than one fetch."""

Place = tuple[str, int]
"""A partition, by the topic's name on the source."""


class Setting(NamedTuple):
    """What lives have in common that begin alike."""

    node_count: int
    has_same_names: bool
    is_translated: bool
    """Copies have offsets of their own."""

    @property
    def prefix(self) -> str:
        return "" if self.has_same_names else "A."


def setting_of(seed: int) -> Setting:
    decided = Random(seed)
    nodes, has_same_names = decided.choice([1, 3]), decided.random() < 0.6
    return Setting(nodes, has_same_names, not has_same_names and decided.random() < 0.5)


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

    async def live(self) -> None:
        writing = [
            self.produce,
            self.produce,
            self.transact,
            self.commit,
            self.commit,
            self.fill_up,
            self.move,
        ]
        failing = [
            self.kill,
            self.kill_tasks,
            self.elect,
            self.lose,
            self.hang,
            self.slow,
            self.outage,
            self.refuse,
        ]
        steps = [*writing, *failing, *([self.lose_tail] if self.has_same_names else [])]
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

    def is_settled(self) -> bool:
        """The copies are equal. Where one lost its tail, a batch of ours may have come behind it, at another
        offset than its own: then everything follows once more, in order, and offsets are other ones."""
        others: set[Place] = set()
        for topic, count in _TOPICS.items():
            here, there = self.world.on["A"].read(topic), self.world.on["B"].read(self.prefix + topic)
            for index in range(count):
                one, other = (
                    [_content(seen) for seen in log if seen.partition == index] for log in (here, there)
                )
                if one != other:
                    if (topic, index) not in self.lost or not _is_within(one, other):
                        return False
                    others.add((topic, index))
        committed, copied = self.committed("A"), self.committed("B")
        same = [place for place in {*committed, *copied} - others if self.has_same_names]
        return all(committed.get(place) == copied.get(place) for place in same)

    def check(self) -> None:
        requests = len(self.world.requests) / self.world.now()
        assert requests < _MOST_REQUESTS_A_SECOND, f"{requests:.0f} requests a second"
        crashed = [each for each in self.world.logged if each["level"] in ("error", "critical")]
        assert not crashed, crashed
        self.assert_not_ahead("B", self.unread("A"))
        for alias, authorizer in self.authorizers():
            assert not authorizer.acls, f"ACLs are left on {alias}: {list(authorizer.acls)}"
        assert self.world.on["B"].committed("locals") == {(self.prefix + "orders", 0): 0}
        assert not self.world.on["A"].committed("locals"), "a group of B was moved to A"

    async def wrongly_shown(self) -> object:
        """What is shown of a deployment in which everything moves is that; None if so."""
        status = await self.world.status()
        found: list[object] = [
            (each.about, each.reason, each.message)
            for each in verdict_of(status).pressing
            if not (self.lost and each.reason in _OF_LOST_TAILS)
        ]
        flow = status.flows["A->B"]
        if (flow.lag_records, flow.partitions) != (0, {"RUNNING": sum(_TOPICS.values()) + 1}):
            found.append((flow.lag_records, flow.partitions))  # Heartbeats are copied, too.
        found += [each for each in flow.in_force if each.kind in ("FENCE", "MOVE", "MOVED")]
        groups, copied = await self.world.groups(), self.committed("B")
        for topic, index in self.committed("A"):
            if not any(each.partition == index for each in self.world.on["A"].read(topic)):
                continue  # Without a record there is no offset sync.
            shown = groups.get(("readers", self.prefix + topic, index))
            if shown is None or shown.downstream_offset != copied.get((topic, index)):
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
                _content(each)
                for each in self.world.on[alias].read(prefix + topic)
                if each.partition == index and each.offset >= offset
            }
            for (topic, index), offset in self.committed(alias).items()
        }

    def assert_not_ahead(self, alias: str, unread: dict[Place, set[object]]) -> None:
        for place, left in self.unread(alias).items():
            skipped = unread.get(place, set()) - left
            assert not skipped, f"the group is ahead in {place} on {alias}: {list(skipped)[:3]}"

    def values(self) -> list[bytes]:
        before, self.written = self.written, self.written + self.random.randint(1, 5)
        return [b"%d" % number for number in range(before, self.written)]

    def place(self) -> Place:
        topic = self.random.choice(list(_TOPICS))
        return topic, self.random.randrange(_TOPICS[topic])

    async def produce(self) -> None:
        self.world.on["A"].produce(*self.place(), *self.values())

    async def transact(self) -> None:
        topic, _ = self.place()
        commits = self.random.random() < 0.7
        self.world.on["A"].transaction(topic, *self.values(), partitions=_TOPICS[topic], commits=commits)

    async def commit(self) -> None:
        """Where the group works; nowhere while that is not certain. A group that had committed nothing was
        not moved, and what it would commit on B afterwards would be B's own."""
        if self.is_moved is None or (self.is_moved and not self.has_group):
            return
        (topic, index), alias = self.place(), "B" if self.is_moved else "A"
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
                fence = self.random.random() < 0.5
                *_, last = await self.world.move(kind, fence=fence, wait=Duration(seconds=20))
        except (grpc.RpcError, TimeoutError) as error:
            self.told.append(f"{self.world.now():.3f} {kind} failed: {str(error)[:300]}")
            return
        if last.report.left_behind:
            self.told.append(f"{self.world.now():.3f} {kind} is not complete: {last.report.left_behind}")
            return
        self.is_moved = not was_moved
        self.told.append(f"{self.world.now():.3f} {kind} done")
        self.assert_not_ahead("B" if self.is_moved else "A", unread)

    async def fill_up(self) -> None:
        topic, index = self.place()
        for _ in range(4):
            self.world.on["A"].produce(topic, index, bytes(_LARGE_BYTES))

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
        configs["max.message.bytes"] = str(_LARGE_BYTES // 2)
        asyncio.get_running_loop().call_later(10, configs.pop, "max.message.bytes", None)
        partition = self.world.on["A"].partition(topic, index)
        if partition.leader in partition.isr:
            self.world.on["A"].cluster.elect(partition, partition.leader)
        self.world.on["A"].produce(topic, index, *self.values())
        self.world.on["A"].produce(topic, index, bytes(_LARGE_BYTES))

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


def _content(seen: Seen) -> object:
    return seen.partition, seen.value, seen.timestamp_ms


def _is_within(content: list[object], copied: list[object]) -> bool:
    """Whether a copy has all of this in its order, and nothing else."""
    rest = iter(copied)
    return all(each in rest for each in content) and set(copied) <= set(content)


async def _begin(world: World, setting: Setting) -> None:
    for applications in world.on.values():
        applications.cluster.authorizer = Authorizer(super_users=["User:ANONYMOUS"])
    for topic, count in _TOPICS.items():
        world.on["A"].cluster.create_topic(topic, partition_count=count)
    world.start(*SERVICES)
    await world.until(lambda: all(world.on["B"].ends(setting.prefix + each) for each in _TOPICS))
    world.on["B"].commit("locals", setting.prefix + "orders", {0: 0})


async def _is_lived(world: World, setting: Setting, seed: int, *, tells_digest: bool) -> bool:
    random.seed(seed)
    for alias, kafka in world.kafka.items():
        kafka.cluster.random.seed(f"{alias} {seed}")
    life = Life(world, setting, seed)
    try:
        await life.live()
    except BaseException:
        life.told.append(f"last request: {world.requests[-1]}")
        told = "\n".join(life.told)
        sys.stdout.write(f"{traceback.format_exc()}\n{told}\nseed {seed}; again: {_AGAIN.format(seed)}\n")
        return False
    finally:
        if tells_digest:
            sys.stdout.write(f"{seed} {world.digest()}\n")
    return True


def lived(
    setting: Setting, seeds: list[int], *, tells_digest: bool = False, in_process: bool = False
) -> list[int]:
    """Those of the seeds in whose lives something does not hold. Each life begins in a copy of the process in
    which the services have started. `in_process`: one seed, without a copy."""
    failed: list[int] = []

    async def lives() -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = IDENTITY if setting.has_same_names else DEFAULT
            if setting.is_translated:
                file += "twinlog.offsets = translated\n"
            async with World(Path(directory), file, node_count=setting.node_count) as world:
                await _begin(world, setting)
                gc.freeze()
                for seed in seeds:
                    sys.stdout.flush()
                    loop, child = asyncio.get_running_loop(), 0 if in_process else os.fork()
                    if child:
                        if os.waitpid(child, 0)[1]:  # noqa: ASYNC222 - nothing else happens
                            failed.append(seed)
                        continue
                    asyncio._set_running_loop(loop)  # noqa: SLF001 - it goes on in the copy
                    is_lived = await _is_lived(world, setting, seed, tells_digest=tells_digest)
                    if not in_process:
                        sys.stdout.flush()
                        os._exit(not is_lived)

    live(lives())
    return failed


def _lived_apart(setting: Setting, seeds: list[int], *, tells_digest: bool) -> list[int]:
    """As `lived`, in a copy of this process: what other settings leave in memory changes nothing."""
    sys.stdout.flush()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        failed = lived(setting, seeds, tells_digest=tells_digest)
        os.write(there, " ".join(map(str, failed)).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as told:
        failed = [int(seed) for seed in told.read().split()]
    return failed if os.waitpid(child, 0)[1] == 0 else seeds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--digests", action="store_true", help="tell what shows that lives are the same")
    asked = parser.parse_args()
    gc.disable()  # It takes a third of the time, at moments that differ.
    lived(setting_of(_FIRST), [_FIRST], in_process=True)  # Loads what each life needs.
    failed: list[int] = []
    seeds = sorted(range(asked.first, asked.first + asked.seeds), key=setting_of)
    for setting, alike in groupby(seeds, key=setting_of):
        failed += _lived_apart(setting, list(alike), tells_digest=asked.digests)
    seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    sys.stdout.write(
        f"{asked.seeds} lives, {seconds / asked.seeds:.2f} CPU seconds each, failed: {sorted(failed)}\n"
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
