"""Looks at both clusters and says what a move would do now. Changes nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import AclBinding, CommittedOffset, KafkaCluster
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.service.runtime import wait_or_stop
from twinlog_checkpoint.groups.reads import group_states, readable_offsets
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState
from twinlog_checkpoint.moves.backlog import BacklogMeter
from twinlog_checkpoint.moves.blockers import blockers_of
from twinlog_checkpoint.moves.copy_states import CopyStates
from twinlog_checkpoint.moves.decision import GroupPlace, decide
from twinlog_checkpoint.moves.plan import LastMove, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.plan_warnings import plan_warnings
from twinlog_checkpoint.moves.route import Route
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, counting, estimated_seconds, total_backlog
from twinlog_checkpoint.moves.write_block import WriteBlockScope, fence_scope
from twinlog_checkpoint.moves.write_grants import WriteGrants, write_grants
from twinlog_checkpoint.side_by_side import TURN_GROUPS, in_turns
from twinlog_checkpoint.translation.log_ranges import log_ranges
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What the record of the flow the other way says of a move."""

    notes: Sequence[str] = ()
    """Warnings."""
    obstacles: Sequence[str] = ()
    """Blockers."""


NOTHING_DUE = Due()
ANSWER_SECONDS = 6.0
"""A cluster that says nothing for so long is away."""
MOST_LOOKS = 4
"""At a backlog that is not counted yet: a plan is an answer within a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A group's place before it is decided what to do with it."""

    group: str
    from_partition: TopicPartition
    to_partition: TopicPartition | None
    from_offset: int
    translation: Translation
    metadata: str


@dataclass(slots=True, kw_only=True)
class MovePlanner:
    route: Route
    clock: Clock
    reachable: Callable[[ClusterAlias], bool]
    """By the last probe, which may be some seconds old."""
    others: Collection[ClusterAlias]
    """Every cluster there is."""
    stop: asyncio.Event
    copy_states: CopyStates
    """Of the flow that copies what is written where the groups come from."""
    rate_seconds: float = 1.0
    """Between the two looks that give the rate of the copy."""

    async def plan(
        self,
        options: MoveOptions,
        *,
        without: Collection[str] = (),
        last: MoveRecord | None = None,
        due: Due = NOTHING_DUE,
    ) -> MovePlan:
        """The move as of now; `without` names groups that are done with. Raises KafkaError.

        A cluster that does not answer now counts as away, whatever the last probe said.
        """
        return await at_last(self.look(options, without=without, last=last, due=due))

    async def look(
        self,
        options: MoveOptions,
        *,
        without: Collection[str] = (),
        last: MoveRecord | None = None,
        due: Due = NOTHING_DUE,
    ) -> AsyncGenerator[str | MovePlan, None]:
        """As `plan`, which comes last; before it what is looked at, in words."""
        yield "asking both clusters"
        from_reachable = await self._answers(self.route.from_alias, self.route.from_cluster)
        to_reachable = await self._answers(self.route.to_alias, self.route.to_cluster)
        fences = fences_where_left(last, self.route.kind)
        scope = await self.fence_scope() if options.fence and from_reachable else WriteBlockScope()
        blockers = await blockers_of(
            self.route, options, scope, from_reachable=from_reachable, to_reachable=to_reachable
        )
        partitions: Sequence[MovePartition] = []
        backlog: Sequence[TopicBacklog] = []
        seconds: float | None = None
        granting = options.grant_write and self.route.kind is MoveKind.FAILOVER
        grants = WriteGrants()
        if granting and from_reachable and to_reachable:
            yield "comparing who may write"
            grants = await self.write_grants(fences)
        looked = to_reachable and self.route.obstacle(from_reachable=from_reachable) is None
        if looked:
            yield "reading where the groups stand, and translating it"
            partitions = await self.partitions(options, from_reachable=from_reachable, without=without)
            yield f"offsets translated: {len(partitions)}; looking at what is not copied"
            backlog, seconds = await self._backlog_and_rate(from_reachable)
        yield self._with_warnings(
            MovePlan(
                kind=self.route.kind,
                flow=self.route.flow,
                from_alias=self.route.from_alias,
                to_alias=self.route.to_alias,
                from_reachable=from_reachable,
                looked=looked,
                partitions=partitions,
                backlog=backlog,
                estimated_seconds=seconds,
                warnings=(),
                blockers=[*blockers, *due.obstacles],
                fenced_topics=sorted({*scope.topics, *(fence.resource_name for fence in fences)}),
                write_grants=grants.missing,
                not_granted=grants.left_out,
                last=None if last is None else shown_move(last),
            ),
            due.notes,
        )

    async def done(self, plan: MovePlan, partitions: Sequence[MovePartition]) -> MovePlan:
        """The plan as it was carried out, with what is left to copy now. Raises KafkaError."""
        backlog = await self._counted(self.meter(), plan.from_reachable)
        return self._with_warnings(
            replace(plan, partitions=partitions, backlog=backlog, estimated_seconds=None, last=None)
        )

    def meter(self) -> BacklogMeter:
        """A fresh one, for one run or one plan."""
        return BacklogMeter(route=self.route, copy_states=self.copy_states)

    async def fence_scope(self) -> WriteBlockScope:
        """Which topics a fence would be about. Raises KafkaError."""
        return fence_scope(
            {entry.here.topic for entry in await self.route.written()},
            here=self.route.from_alias,
            others=self.others,
            policy=self.route.policy,
            reverse=self.route.reverse_flow,
        )

    async def write_grants(self, fences: Collection[AclBinding]) -> WriteGrants:
        """What lets writers of the topics that are left write their copies; `fences`: those of this move.
        Raises KafkaError."""
        copies = {entry.here.topic: entry.there.topic for entry in await self.route.written()}
        present = await self.route.to_cluster.list_topics()
        rules = await self.route.from_cluster.describe_acls("TOPIC") or ()
        return write_grants(
            [each for each in rules if each not in fences],
            await self.route.to_cluster.describe_acls("TOPIC") or (),
            {topic: copy for topic, copy in copies.items() if copy in present},
        )

    def _with_warnings(self, plan: MovePlan, notes: Collection[str] = ()) -> MovePlan:
        warnings = plan_warnings(
            plan.partitions,
            plan.backlog,
            from_alias=plan.from_alias,
            from_reachable=plan.from_reachable,
            fenced=bool(plan.fenced_topics),
            unsupported=self.route.unsupported if plan.from_reachable else None,
        )
        warnings += [f"not granted on {plan.to_alias}: {each}" for each in plan.not_granted]
        warnings += notes
        if plan.last is not None and not plan.last.finished and plan.last.kind is not plan.kind:
            warnings.insert(
                0, f"the {plan.last.kind} of run {plan.last.run_id} was cut: this takes its place"
            )
        return replace(plan, warnings=warnings)

    async def _answers(self, alias: ClusterAlias, cluster: KafkaCluster) -> bool:
        if not self.reachable(alias):
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await cluster.cluster_id()
        except (KafkaError, TimeoutError):
            return False
        return True

    async def partitions(
        self, options: MoveOptions, *, from_reachable: bool, without: Collection[str] = ()
    ) -> list[MovePartition]:
        """Every (group, partition) with what is done with it, sorted. Raises KafkaError."""
        wanted = await self._wanted(options) if from_reachable else self._known(options)
        done_with = frozenset(without)  # it comes as a list, and there are far more offsets than groups
        wanted = [entry for entry in wanted if entry.group not in done_with]
        groups = {entry.group for entry in wanted}
        before = await group_states(self.route.from_cluster, groups) if from_reachable else {}
        there = await group_states(self.route.to_cluster, groups)
        present = await readable_offsets(self.route.to_cluster, groups)
        ranges = await log_ranges(
            self.route.to_cluster, {entry.to_partition for entry in wanted if entry.to_partition is not None}
        )
        return [
            decide(
                GroupPlace(
                    group=entry.group,
                    from_partition=entry.from_partition,
                    to_partition=entry.to_partition,
                    from_offset=entry.from_offset,
                    translation=entry.translation,
                    state_before=before.get(entry.group),
                    state_there=there.get(entry.group),
                    present_offset=_present(present[entry.group], entry.to_partition),
                    log_there=None if entry.to_partition is None else ranges.get(entry.to_partition),
                    metadata=entry.metadata,
                    wrote_present=self.route.wrote(
                        entry.group,
                        entry.to_partition,
                        _present(present[entry.group], entry.to_partition),
                        upstream=entry.from_offset,
                    ),
                ),
                include_active=options.include_active,
            )
            async for entry in in_turns(sorted(wanted, key=lambda entry: (entry.group, entry.from_partition)))
        ]

    async def _counted(self, meter: BacklogMeter, from_reachable: bool) -> list[TopicBacklog]:
        """What is written here and not there, counted to the end if a few looks suffice. Raises
        KafkaError."""
        if not from_reachable:
            return list(self.route.last_seen_backlog())
        for _ in range(MOST_LOOKS):
            backlog = await meter.measure()
            if not counting(backlog):
                break
        return backlog

    async def _backlog_and_rate(self, from_reachable: bool) -> tuple[list[TopicBacklog], float | None]:
        """A second look gives the rate of the copy, when there is something left to copy."""
        started = self.clock.monotonic()
        meter = self.meter()
        first = await self._counted(meter, from_reachable)
        if not total_backlog(first):
            return first, estimated_seconds(first, first, 1.0) if first else None
        await wait_or_stop(self.stop, self.rate_seconds)
        second = await self._counted(meter, from_reachable)
        elapsed = max(self.clock.monotonic() - started, 1e-3)
        return second, estimated_seconds(first, second, elapsed)

    async def _wanted(self, options: MoveOptions) -> list[_Wanted]:
        """The groups' places as their own cluster has them."""
        groups = [group for group in await self.route.groups() if group in (options.groups or (group,))]
        committed = await self._committed(groups)
        # Groups share partitions: the rules are asked once about each.
        held = {partition for _, partition in committed}
        destinations = {partition: self.route.destination(partition) async for partition in in_turns(held)}
        positions = {
            (group, partition): SourcePosition(partition=partition, next_offset=offset.next_offset)
            async for (group, partition), offset in in_turns(committed.items())
            if destinations[partition] is not None
        }
        answers = await self.route.translate(set(positions.values()))
        return [
            _Wanted(
                group=group,
                from_partition=partition,
                to_partition=destinations[partition],
                from_offset=offset.next_offset,
                translation=answers[positions[group, partition]]
                if (group, partition) in positions
                else _NOT_REPLICATED,
                metadata=offset.metadata,
            )
            async for (group, partition), offset in in_turns(committed.items())
        ]

    async def _committed(self, groups: Collection[str]) -> dict[tuple[str, TopicPartition], CommittedOffset]:
        """Where these groups stand where they come from. Raises KafkaError, also for one of them: none must
        stay behind unnoticed."""
        held = await readable_offsets(self.route.from_cluster, groups)
        return {
            (group, partition): offset
            async for group, offsets in in_turns(held.items(), most=TURN_GROUPS)
            for partition, offset in offsets.items()
            if self.route.is_own(group, partition, offset.next_offset)
        }

    async def finished_with(self, last: MoveRecord, options: MoveOptions) -> set[str]:
        """The groups that runs before have finished with, without those asked for that went on where they
        came from: by each of their offsets there, or by their checkpoints while that cluster is away. Raises
        KafkaError."""
        asked = last.stood_at.keys() & set(options.groups or last.stood_at)
        now: dict[str, dict[TopicPartition, int]] = {group: {} for group in asked}
        for group, partition, offset in await self._standing(asked):
            now[group][partition] = offset
        return {group for group in last.stood_at if not last.went_on(group, now.get(group, {}))}

    async def _standing(self, groups: Collection[str]) -> list[tuple[str, TopicPartition, int]]:
        """The offset of each of their partitions that can move. Raises KafkaError."""
        if not groups:
            return []
        if not await self._answers(self.route.from_alias, self.route.from_cluster):
            return [
                (place.group, place.from_partition, place.from_offset)
                for place in self.route.known_places()
                if place.group in groups
            ]
        committed = await self._committed(groups)
        return [
            (group, partition, offset.next_offset)
            for (group, partition), offset in committed.items()
            if self.route.destination(partition) is not None
        ]

    def _known(self, options: MoveOptions) -> list[_Wanted]:
        """The groups' places as their checkpoints have them."""
        return [
            _Wanted(
                group=place.group,
                from_partition=place.from_partition,
                to_partition=place.to_partition,
                from_offset=place.from_offset,
                translation=place.translation,
                metadata=place.metadata,
            )
            for place in self.route.known_places()
            if place.group in (options.groups or (place.group,))
        ]


_NOT_REPLICATED = Translation(
    verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message="no flow copies this topic"
)


async def at_last(look: AsyncGenerator[str | MovePlan, None]) -> MovePlan:
    """The plan that a look ends with."""
    async with aclosing(look) as told:
        async for each in told:
            if isinstance(each, MovePlan):
                return each
    raise AssertionError("a look ends with a plan")


def fences_where_left(last: MoveRecord | None, kind: MoveKind) -> Collection[AclBinding]:
    """The fences that are up on the cluster that a move of this kind leaves."""
    if last is None:
        return ()
    return last.fences if last.kind is kind else last.former_fences


def shown_move(last: MoveRecord) -> LastMove:
    """As plans and answers show it."""
    left = {fence.resource_name for fence in last.fences}
    entered = {fence.resource_name for fence in last.former_fences}
    return LastMove(
        run_id=last.run_id,
        kind=last.kind,
        finished=last.state is MoveState.DONE,
        steps=tuple(last.done),
        by=last.by,
        started_ms=last.started_ms,
        aborted=last.aborted,
        left_behind=last.left_behind,
        fenced_topics=sorted(left | entered),
        fenced_where_left=sorted(left),
        fenced_where_entered=sorted(entered),
    )


def _present(held: Mapping[TopicPartition, CommittedOffset], partition: TopicPartition | None) -> int | None:
    if partition is None or partition not in held:
        return None
    return held[partition].next_offset
