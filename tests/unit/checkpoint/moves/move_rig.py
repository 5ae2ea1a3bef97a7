"""A mirror of one topic on two fake clusters, a service that translates it, and its moves."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

from twinlog.errors import KafkaError
from twinlog.model import Flow, TopicPartition
from twinlog.moves.record import MoveKind, Moves, Run
from twinlog.policy.transformed import TopicTransforms
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_checkpoint.api.moves_servicer import ServedFlow
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePlan
from twinlog_checkpoint.moves.running.run_record import MoveReport, StepEvent
from twinlog_checkpoint.moves.running.runner import MoveRunner
from twinlog_checkpoint.translation.history import OffsetPair
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A, CheckpointFlowRig, KnownTopics, ToldTopics, turns
from unit.checkpoint.mirrored_logs import ORIGIN, MirroredLogs

NO_WAIT = MoveOptions(wait_seconds=0, by="test")


@dataclass(slots=True, kw_only=True)
class MoveRig:
    """A mirror of one topic, a service that translates it, and its moves."""

    logs: MirroredLogs
    fakes: CheckpointFlowRig
    parts: FlowParts
    served: ServedFlow
    topics: ToldTopics
    synced_to: int = -1

    async def copy(self) -> None:
        """Mirror what is there, with its offset syncs in their topic."""
        before = self.synced_to
        self.logs.copy()
        pairs = self.logs.history.of(ORIGIN)
        assert pairs is not None
        pair = pairs.above(before)
        while pair is not None:
            await self.fakes.write_sync(ORIGIN.topic, pair.upstream, pair.downstream)
            pair = pairs.above(pair.upstream)
        newest = pairs.newest()
        assert newest is not None
        self.synced_to = newest.upstream
        await turns(lambda: self._has_read(newest))

    def back_to_front(self) -> ServedFlow:
        """The moves of the flow the other way, in the same process."""
        return self._both(B_TO_A)

    def both_ways(self) -> ServedFlow:
        """The moves of the flow in a process that has the flow back, too."""
        return self._both(A_TO_B)

    def _both(self, flow: Flow) -> ServedFlow:
        flows = {A_TO_B: self.parts, B_TO_A: self.fakes.reverse_parts()}
        served = assemble_moves(flows, self.fakes.around())[flow]
        for runner in (served.failover, served.failback):
            runner.drain_look_seconds = runner.planner.rate_seconds = 0
        return served

    async def has_synced(self, upstream: int) -> None:
        """Wait until the sync of this offset has been read."""

        def known() -> bool:
            pairs = self.parts.pairs(ORIGIN)
            newest = None if pairs is None else pairs.newest()
            return newest is not None and newest.upstream == upstream

        await turns(known)

    def _has_read(self, pair: OffsetPair) -> bool:
        known = self.parts.pairs(ORIGIN)
        return known is not None and known.at_or_below(pair.upstream) == pair

    @property
    def source_end(self) -> int:
        return self.logs.source.log(ORIGIN).end_offset


@asynccontextmanager
async def move_rig(
    *,
    seed: int = 1,
    authorizer: bool = True,
    known_topics: KnownTopics | None = None,
    transforms: Mapping[str, str] = MappingProxyType({}),
    translation_max_bytes: int = 1 << 30,
) -> AsyncIterator[MoveRig]:
    logs = MirroredLogs(seed=seed, source=FakeCluster("A", authorizer=authorizer))
    topics = ToldTopics()
    fakes = CheckpointFlowRig(
        source=logs.source,
        target=logs.target,
        translation_max_bytes=translation_max_bytes,
        known_topics=known_topics or topics,
        transforms=TopicTransforms(transforms, "A"),
    )
    async with fakes.running() as parts:
        served = assemble_moves({A_TO_B: parts}, fakes.around())[A_TO_B]
        for runner in (served.failover, served.failback):
            runner.drain_look_seconds = 0
            runner.planner.rate_seconds = 0
        made = MoveRig(logs=logs, fakes=fakes, parts=parts, served=served, topics=topics)
        logs.produce(300)
        await made.copy()
        yield made


async def run(runner: MoveRunner, options: MoveOptions = NO_WAIT) -> tuple[list[StepEvent], MoveReport]:
    events = [event async for event in runner.run(options)]
    report = events[-1]
    assert isinstance(report, MoveReport)
    return [event for event in events if isinstance(event, StepEvent)], report


def last_run(moves: Moves) -> Run:
    assert moves.run is not None
    return moves.run


def moved(moves: Moves, kind: MoveKind = MoveKind.FAILOVER) -> list[str]:
    """The groups that moves of this kind have finished, and that are still there."""
    return sorted(moves.finished(kind))


def actions(plan: MovePlan) -> dict[str, MoveAction]:
    return {entry.group: entry.action for entry in plan.partitions}


async def offset_of(cluster: FakeCluster, group: str, partition: TopicPartition) -> int | None:
    held = (await cluster.group_offsets([group]))[group]
    assert not isinstance(held, KafkaError)
    return held[partition].next_offset if partition in held else None
