"""Mirror topics with a rough history, translate random offsets, and compare the records on both sides: none
skipped, none read again.

    python tests/chaos/translation_chaos.py --seed 7 --records 1000000 --offsets 1000

Two flows, exactly once on and off, with a kept and a compacted topic each; plain, transactional and aborted
records; the source and the checkpoint service are killed (SIGKILL) while they work. Asked are
TranslateOffsets and the checkpoints that the service writes for groups, before and after it is killed again.
The seed chooses everything but the moments. Exit code 0 only if every answer is the very same record.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.mirrored_truth import PARTITIONS, HistoryWriter, Truth, all_copied, read_truths
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow as FlowMessage
from twinlog.api.common.v1.types_pb2 import TopicPartition as PartitionMessage
from twinlog.client import MirrorClient
from twinlog.clock import SystemClock
from twinlog.errors import StateError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import CommittedOffset, ConfigChange, KafkaCluster, NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.mm2 import quick_mm2_properties
from twinlog.local.spec import ClusterSpec
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import carried_out, eventually, start_clusters, stop_clusters, unique_name
from twinlog.testing.twinlog_run import TwinlogRun

GOOD = (pb2.VERDICT_EXACT, pb2.VERDICT_UP_TO_DATE)
COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
COMPACTED_SHARE = 5
"""One record of so many goes to a compacted topic."""
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """One topic and its copy."""

    flow: Flow
    topic: str
    compacted: bool

    @property
    def remote(self) -> str:
        return f"{self.flow.source}.{self.topic}"


Place = tuple[Mirrored, int, int]
"""A topic, a partition, an offset of it."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    seed: int
    records: int = 0
    """Visible ones of the source topics."""
    copies: int = 0
    duplicates: int = 0
    aborted: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    offsets: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    group_offsets: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    changed_by_restart: int = 0
    seconds: float = 0.0

    @property
    def exact(self) -> bool:
        """Every offset was answered, by the very record, and again so after a restart."""
        good = {pb2.Verdict.Name(verdict) for verdict in GOOD}
        return not self.faults and not self.changed_by_restart and self.verdicts.keys() <= good

    def on_fault(self, fault: str, example: str) -> None:
        self.faults[fault] += 1
        if len(self.examples) < 5:
            self.examples.append(f"{fault}: {example}")

    def as_json(self) -> str:
        names = (name for name in self.__slots__ if name != "examples")
        return json.dumps({**{name: getattr(self, name) for name in names}, "examples": self.examples})


@dataclass(slots=True, kw_only=True)
class TranslationChaos:
    """On clusters of the caller's; what it makes has names of its own."""

    source: BlockingCluster
    target: BlockingCluster
    directory: Path
    seed: int
    records: int
    offsets: int
    kills: int
    groups: int
    outcome: Outcome = field(init=False)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.outcome = Outcome(seed=self.seed)
        self.dice = random.Random(self.seed)

    async def run(self) -> Outcome:
        clock = SystemClock()
        started = clock.monotonic()
        mirrored = _topics()
        async with (
            open_cluster("source", self.source.client_properties()) as source,
            open_cluster("target", self.target.client_properties()) as target,
            TwinlogRun(self._properties(mirrored), self.directory) as run,
        ):
            await self._make(source, mirrored)
            await self._fill(run, mirrored)
            for entry in mirrored:
                copied = partial(all_copied, source, entry.topic, target, entry.remote)
                await eventually(copied, PATIENCE_SECONDS)
            truths = await self._truths(source, target, mirrored)
            await self._ask(run, truths)
            await self._follow_groups(run, source, truths)
        self.outcome.seconds = round(clock.monotonic() - started, 1)
        return self.outcome

    def _properties(self, mirrored: Sequence[Mirrored]) -> str:
        extra = {"twinlog.epoch.seconds": "5", "topics": "none"}
        clients: dict[str, Mapping[str, str]] = {}
        for number, flow in enumerate(sorted({entry.flow for entry in mirrored})):
            clients[flow.source] = self.source.client_properties()
            clients[flow.target] = self.target.client_properties()
            extra[f"{flow}.topics"] = ",".join(entry.topic for entry in mirrored if entry.flow == flow)
            extra[f"{flow.target}.exactly.once.source.support"] = ("enabled", "disabled")[number]
        return quick_mm2_properties(clients, sorted({entry.flow for entry in mirrored}), extra)

    async def _make(self, source: KafkaCluster, mirrored: Sequence[Mirrored]) -> None:
        made = await source.create_topics(
            [
                NewTopic(
                    name=entry.topic,
                    partition_count=PARTITIONS,
                    replication_factor=1,
                    configs=COMPACT if entry.compacted else {},
                )
                for entry in mirrored
            ]
        )
        assert not any(made.values()), made

    async def _fill(self, run: TwinlogRun, mirrored: Sequence[Mirrored]) -> None:
        """Write in pieces, and kill a service after each of some of them: it is copying then."""
        writers = {
            entry.topic: HistoryWriter(cluster=self.source, topic=entry.topic, rng=self.dice, keys=200)
            for entry in mirrored
        }
        laps = max(self.kills, 2)
        for lap in range(laps):
            for entry in mirrored:
                share = 1 / COMPACTED_SHARE if entry.compacted else 1 - 1 / COMPACTED_SHARE
                count = int(self.records / 2 * share / laps)
                await writers[entry.topic].write(count, batch_records=max(20, self.records // 4000))
            if lap < self.kills:
                await self._kill(run, ("source", "source", "checkpoint")[lap % 3])
        self.outcome.aborted = sum(writer.aborted for writer in writers.values())

    async def _kill(self, run: TwinlogRun, service: str) -> None:
        def killed() -> bool:
            try:
                run.kill_service(service)
            except StateError:
                return False
            return True

        await eventually(killed)
        self.outcome.kills[service] += 1

    async def _truths(
        self, source: KafkaCluster, target: KafkaCluster, mirrored: Sequence[Mirrored]
    ) -> Mapping[Mirrored, Mapping[int, Truth]]:
        """Both sides of every topic, once nothing changes them any more."""
        truths: dict[Mirrored, Mapping[int, Truth]] = {}
        for entry in mirrored:
            if entry.compacted:
                await self._end_compaction(source, target, entry)
            truths[entry] = await read_truths(source, entry.topic, target, entry.remote)
            for truth in truths[entry].values():
                self.outcome.records += len(truth.source.names)
                self.outcome.copies += len(truth.target.names)
                self.outcome.duplicates += truth.duplicates
        return truths

    async def _end_compaction(self, source: KafkaCluster, target: KafkaCluster, entry: Mirrored) -> None:
        """Have both logs kept as they are now, and wait until cleaners that still run are done."""
        keep = [ConfigChange(name="cleanup.policy", value="delete")]
        for cluster, topic in ((source, entry.topic), (target, entry.remote)):
            await carried_out(partial(cluster.alter_topic_configs, {topic: keep}))
        sizes: list[int] = []

        async def settled() -> bool:
            truths = await read_truths(source, entry.topic, target, entry.remote)
            sizes.append(sum(len(t.source.names) + len(t.target.names) for t in truths.values()))
            return len(sizes) > 1 and sizes[-1] == sizes[-2]

        await eventually(settled)

    async def _ask(self, run: TwinlogRun, truths: Mapping[Mirrored, Mapping[int, Truth]]) -> None:
        """TranslateOffsets for random offsets, then the same again after a kill."""
        asked = self._random_places(truths, self.offsets)
        before = await self._translate(run, asked)
        for place, answer in before.items():
            entry, number, offset = place
            self.outcome.verdicts[pb2.Verdict.Name(answer.verdict)] += 1
            fault = truths[entry][number].fault(offset, answer.translated_offset)
            if fault is not None:
                self.outcome.on_fault(fault, f"{entry.topic}-{number}: {offset} -> {answer}")
        self.outcome.offsets = len(before)
        await self._kill(run, "checkpoint")
        after = await self._translate(run, asked)
        self.outcome.changed_by_restart = sum(
            after[place].translated_offset != answer.translated_offset for place, answer in before.items()
        )

    def _random_places(self, truths: Mapping[Mirrored, Mapping[int, Truth]], count: int) -> Sequence[Place]:
        entries = sorted(truths, key=lambda entry: entry.topic)
        places: set[Place] = {(entry, number, 0) for entry in entries for number in range(PARTITIONS)}
        while len(places) < count:
            entry, number = self.dice.choice(entries), self.dice.randrange(PARTITIONS)
            end = truths[entry][number].source.offsets[-1] + 1
            places.add((entry, number, self.dice.randint(0, end)))
        return sorted(places, key=lambda place: (place[0].topic, *place[1:]))

    async def _translate(
        self, run: TwinlogRun, places: Sequence[Place]
    ) -> Mapping[Place, pb2.OffsetTranslation]:
        answers: dict[Place, pb2.OffsetTranslation] = {}
        for flow in sorted({entry.flow for entry, _, _ in places}):
            mine = [place for place in places if place[0].flow == flow]
            request = pb2.TranslateOffsetsRequest(
                flow=FlowMessage(source=flow.source, target=flow.target),
                queries=[
                    pb2.OffsetQuery(
                        partition=PartitionMessage(topic=entry.topic, partition=number), offset=offset
                    )
                    for entry, number, offset in mine
                ],
            )

            async def answered(
                request: pb2.TranslateOffsetsRequest = request,
            ) -> Sequence[pb2.OffsetTranslation]:
                """None while the service comes back."""
                async with grpc.aio.insecure_channel(run.endpoints["checkpoint"]) as channel:
                    try:
                        return (
                            await CheckpointServiceStub(channel).TranslateOffsets(request, timeout=120)
                        ).translations
                    except grpc.aio.AioRpcError as error:
                        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
                            return ()
                        raise

            answers.update(zip(mine, await eventually(answered), strict=True))
        return answers

    async def _follow_groups(
        self, run: TwinlogRun, source: KafkaCluster, truths: Mapping[Mirrored, Mapping[int, Truth]]
    ) -> None:
        """Groups at random offsets: the service is killed while it writes their checkpoints."""
        prefix = unique_name("group")
        places = self._random_places(truths, self.groups * len(truths) * PARTITIONS)
        committed: dict[str, dict[TopicPartition, Place]] = {}
        for place in self.dice.sample(places, len(places)):
            entry, number, _ = place
            partition = TopicPartition(entry.topic, number)
            group = next(
                (name for name, held in committed.items() if partition not in held),
                f"{prefix}-{len(committed)}",
            )
            committed.setdefault(group, {})[partition] = place
        for index, (group, held) in enumerate(sorted(committed.items())):
            await source.alter_group_offsets(
                group, {partition: CommittedOffset(next_offset=place[2]) for partition, place in held.items()}
            )
            if index == len(committed) // 2:
                await self._kill(run, "checkpoint")
        expected = await self._translate(run, places)
        wanted = {
            (group, TopicPartition(place[0].remote, place[1])): (place, expected[place].translated_offset)
            for group, held in committed.items()
            for place in held.values()
        }

        async def written() -> Mapping[tuple[str, TopicPartition], int] | None:
            found = await self._checkpoints(sorted({entry.flow.source for entry in truths}), f"{prefix}-.*")
            return found if found.keys() >= wanted.keys() else None

        found = await eventually(written, PATIENCE_SECONDS)
        self.outcome.group_offsets = len(wanted)
        for key, ((entry, number, offset), _) in wanted.items():
            fault = truths[entry][number].fault(offset, found[key])
            if fault is not None:
                self.outcome.on_fault(fault, f"{key[0]} on {entry.topic}-{number}: {offset} -> {found[key]}")

    async def _checkpoints(
        self, aliases: Sequence[str], pattern: str
    ) -> Mapping[tuple[str, TopicPartition], int]:
        """What an application on the target reads of them."""
        found: dict[tuple[str, TopicPartition], int] = {}
        async with MirrorClient(self.target.client_properties()) as client:
            for alias in aliases:
                offsets = await client.remote_consumer_offsets_matching(pattern, alias, timeout_seconds=30)
                for group, held in offsets.items():
                    found |= {(group, partition): at.next_offset for partition, at in held.items()}
        return found


def _topics() -> Sequence[Mirrored]:
    found: list[Mirrored] = []
    for _ in range(2):
        flow = Flow(unique_name("east"), unique_name("west"))
        found += [
            Mirrored(flow=flow, topic=unique_name("kept"), compacted=False),
            Mirrored(flow=flow, topic=unique_name("compacted"), compacted=True),
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Translate random offsets of a mirror with a rough history.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--offsets", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--groups", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinlog-chaos-") as directory:
        clusters = start_clusters(ClusterSpec(name="A"), ClusterSpec(name="B"))
        try:
            chaos = TranslationChaos(
                source=clusters[0],
                target=clusters[1],
                directory=Path(directory),
                seed=options.seed,
                records=options.records,
                offsets=options.offsets,
                kills=options.kills,
                groups=options.groups,
            )
            outcome = asyncio.run(chaos.run())
        finally:
            stop_clusters(clusters)
    sys.stdout.write(outcome.as_json() + "\n")
    return 0 if outcome.exact else 1


if __name__ == "__main__":
    sys.exit(main())
