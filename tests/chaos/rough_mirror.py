"""Mirrored topics with a rough history: kept and compacted, with transactions and aborts, copied exactly once
and at least once, by services that are killed (SIGKILL) at work, between logs that lose their tails."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import grpc

from chaos.cut_logs import lose_tails
from chaos.mirrored_truth import PARTITIONS, HistoryWriter, Truth, all_copied, read_truths
from twinlog.api.common.v1.types_pb2 import Flow as FlowMessage
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, ConfigChange, KafkaCluster, NewTopic, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually, retry_admin, unique_name
from twinlog.testing.java.mm2 import quick_mm2_properties

LONG_PATIENCE_SECONDS = 300.0
"""For a million records."""
COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
ANSWER_SECONDS = 30.0
MOST_AGAIN = 3000
"""Offsets that are copied a second time at once."""
AFTER_GROUPS = 1000
"""Records that are written between the last group's place and the moment a log is cut."""
COMPACTED_SHARE = 5
"""One record of so many goes to a compacted topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """One topic and its copy."""

    flow: Flow
    topic: str
    compacted: bool

    @property
    def remote(self) -> str:
        return f"{self.flow.source}.{self.topic}"


Truths = Mapping[Mirrored, Mapping[int, Truth]]
"""Both sides of every partition."""


def new_topics() -> Sequence[Mirrored]:
    """Two flows, with a kept and a compacted topic each; names that nobody else has."""
    found: list[Mirrored] = []
    for _ in range(2):
        flow = Flow(unique_name("east"), unique_name("west"))
        found += [
            Mirrored(flow=flow, topic=unique_name("kept"), compacted=False),
            Mirrored(flow=flow, topic=unique_name("compacted"), compacted=True),
        ]
    return found


def run_properties(mirrored: Sequence[Mirrored], source: BlockingCluster, target: BlockingCluster) -> str:
    """The properties file of a run that copies them: exactly once for the first flow, at least once for the
    second."""
    flows = sorted({entry.flow for entry in mirrored})
    extra = {
        "twinlog.epoch.seconds": "5",
        "twinlog.epoch.max.seconds": "0",
        "topics": "none",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    clients: dict[str, Mapping[str, str]] = {}
    for flow, exactly_once in zip(flows, ("enabled", "disabled"), strict=True):
        clients[flow.source] = source.client_properties()
        clients[flow.target] = target.client_properties()
        extra[f"{flow}.topics"] = ",".join(entry.topic for entry in mirrored if entry.flow == flow)
        extra[f"{flow.target}.exactly.once.source.support"] = exactly_once
    return quick_mm2_properties(clients, flows, extra)


@dataclass(slots=True, kw_only=True)
class RoughMirror:
    """Makes the history, while `run` copies it."""

    cluster: BlockingCluster
    """The source's."""
    target_cluster: BlockingCluster
    source: KafkaCluster
    target: KafkaCluster
    run: TwinlogRun
    mirrored: Sequence[Mirrored]
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    aborted: int = 0
    """Records of aborted transactions."""
    again: int = 0
    """Offsets that were copied a second time on purpose."""
    recreations: int = 0
    cut_offsets: Counter[str] = field(default_factory=Counter)
    """How many the logs of each side lost."""
    lossy: set[Mirrored] = field(default_factory=set)
    """One of their logs lost records: nothing of those can be EXACT, and no answer may be ahead."""
    waiting_groups: dict[str, tuple[Mirrored, Mapping[int, int]]] = field(default_factory=dict)
    """Groups that had read nearly all before a log of theirs lost records, and have not moved since: their
    offsets by partition."""

    async def make(self) -> None:
        new = [
            NewTopic(
                name=entry.topic,
                partition_count=PARTITIONS,
                replication_factor=1,
                configs=COMPACT if entry.compacted else {},
            )
            for entry in self.mirrored
        ]
        await retry_admin(lambda: self.source.create_topics(new))

    async def fill(
        self, records: int, *, kills: int, rewinds: int, recreations: int = 0, cuts: int = 0
    ) -> None:
        """Write in pieces, and kill a service after each of some of them: it is copying then. After some, but
        never the last, a stretch is copied again, a copy is deleted and created again, or a log loses its
        tail: by turns that of a copy and that of a source topic.

        No topic has both: where the copy loses its second stretch, groups continue behind it although the
        first one holds the same records (docs/translation.md).
        """
        kept = [entry for entry in self.mirrored if not entry.compacted]
        whole = [entry for entry in self.mirrored if entry.compacted or not (recreations or cuts)]
        writers = {
            entry.topic: HistoryWriter(cluster=self.cluster, topic=entry.topic, rng=self.dice, keys=200)
            for entry in self.mirrored
        }
        laps = max(kills, 2)
        for lap in range(laps):
            for entry in self.mirrored:
                share = 1 / COMPACTED_SHARE if entry.compacted else 1 - 1 / COMPACTED_SHARE
                count = int(records / 2 * share / laps)
                await writers[entry.topic].write(count, batch_records=max(20, records // 4000))
            if lap < min(rewinds, laps - 1):
                await self.copy_again(self.dice.choice(whole))
            if lap < min(recreations, laps - 1):
                await self.create_again(kept[0])
            elif lap < min(recreations + cuts, laps - 1):
                # In another lap: a copy that lost all of its records ends like its source after the next.
                entry = self.dice.choice(kept)
                await self.lose_tail(entry, writers[entry.topic], of_copy=(lap - recreations) % 2 == 0)
            if lap < kills:
                await self.kill(("source", "source", "checkpoint")[lap % 3])
        self.aborted = sum(writer.aborted for writer in writers.values())

    async def create_again(self, entry: Mirrored) -> None:
        """Delete a copy once it has records; the run creates it again and continues at its position."""
        name = entry.remote

        async def topic_id() -> str:
            described = (await self.target.describe_topics([name]))[name]
            return "" if isinstance(described, KafkaError) else described.topic_id

        await self.let_groups_wait(entry)
        former = await topic_id()
        await retry_admin(partial(self.target.delete_topics, [name]))

        async def is_there_again() -> bool:
            return await topic_id() not in ("", former)

        await eventually(is_there_again, LONG_PATIENCE_SECONDS)
        self.recreations += 1
        self.lossy.add(entry)

    async def lose_tail(self, entry: Mirrored, writer: HistoryWriter, *, of_copy: bool) -> None:
        """Cut the end off the logs of a copy, or of a source topic, once groups stand there, while it is
        copied."""
        await self.let_groups_wait(entry)
        await writer.write(AFTER_GROUPS)
        cluster = self.target_cluster if of_copy else self.cluster
        topic = entry.remote if of_copy else entry.topic
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        lost = await asyncio.to_thread(lose_tails, cluster, partitions, self.dice)
        self.cut_offsets["copy" if of_copy else "source"] += sum(lost.values())
        self.lossy.add(entry)

    async def let_groups_wait(self, entry: Mirrored) -> None:
        """A group at the end of what is copied, whose offsets on the target the service has written."""
        copied = partial(all_copied, self.source, entry.topic, self.target, entry.remote)
        await eventually(copied, LONG_PATIENCE_SECONDS)
        group = unique_name("waits")
        places = [TopicPartition(entry.topic, number) for number in range(PARTITIONS)]
        ends = await self.source.list_offsets(OffsetSpec.LATEST, places)
        held = {place: end for place, end in ends.items() if isinstance(end, int)}
        offsets = {place: CommittedOffset(next_offset=end) for place, end in held.items()}
        await retry_admin(partial(self.source.alter_group_offsets, group, offsets))

        async def is_on_target() -> bool:
            found = (await self.target.group_offsets([group]))[group]
            return not isinstance(found, KafkaError) and len(found) == PARTITIONS

        await eventually(is_on_target, LONG_PATIENCE_SECONDS)
        self.waiting_groups[group] = entry, {place.partition: end for place, end in held.items()}

    async def copy_again(self, entry: Mirrored) -> None:
        """Move a partition's position back, as operators do: the copy holds a stretch twice."""
        number, back = self.dice.randrange(PARTITIONS), self.dice.randint(1, MOST_AGAIN)
        self.again += await eventually(partial(self._moved_back, entry, number, back), LONG_PATIENCE_SECONDS)

    async def _moved_back(self, entry: Mirrored, number: int, back: int) -> int | None:
        """By how many offsets; None when it cannot be said."""
        flow = FlowMessage(source=entry.flow.source, target=entry.flow.target)
        async with grpc.aio.insecure_channel(self.run.endpoints["source"]) as channel:
            stub = SourceServiceStub(channel)
            listed = await stub.ListPartitions(
                pb2.ListPartitionsRequest(flow=flow, source_topic=entry.topic, page_size=PARTITIONS),
                timeout=ANSWER_SECONDS,
            )
            position = next((at.position for at in listed.partitions if at.source.partition == number), 0)
            if not position:
                return None
            scope = pb2.Scope(flow=flow, source_topic=entry.topic, partition=number)
            target = pb2.PositionTarget(offset=max(0, position - back))
            try:
                answer = await stub.SetPositions(
                    pb2.SetPositionsRequest(scope=scope, target=target, by="chaos"), timeout=ANSWER_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    return None  # no task has confirmed it: they are being started
                raise
        return sum(change.repeated_offsets for change in answer.changes) or None

    async def kill(self, service: str) -> None:
        await eventually(lambda: self.run.kill_service(service))
        self.kills[service] += 1

    async def truths(self) -> Truths:
        """Both sides of every topic, once all is copied and nothing changes them any more."""
        for entry in self.mirrored:
            copied = partial(all_copied, self.source, entry.topic, self.target, entry.remote)
            await eventually(copied, LONG_PATIENCE_SECONDS)
        truths: dict[Mirrored, Mapping[int, Truth]] = {}
        for entry in self.mirrored:
            if entry.compacted:
                await self._end_compaction(entry)
            truths[entry] = await self._truths_of(entry)
        return truths

    async def _truths_of(self, entry: Mirrored) -> Mapping[int, Truth]:
        return await read_truths(self.source, entry.topic, self.target, entry.remote)

    async def _end_compaction(self, entry: Mirrored) -> None:
        """Have both logs kept as they are now, and wait until cleaners that still run are done."""
        keep = [ConfigChange(name="cleanup.policy", value="delete")]
        for cluster, topic in ((self.source, entry.topic), (self.target, entry.remote)):
            await retry_admin(partial(cluster.alter_topic_configs, {topic: keep}))
        sizes: list[int] = []

        async def settled() -> bool:
            truths = await self._truths_of(entry)
            sizes.append(sum(len(t.source.names) + len(t.target.names) for t in truths.values()))
            return len(sizes) > 1 and sizes[-1] == sizes[-2]

        await eventually(settled)
