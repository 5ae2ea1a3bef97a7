"""Reads both clusters and plans what a move would do now. Changes nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.errors import TIMEOUT
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.kafka.reasons import no_answer
from twinlog.model import ClusterAlias
from twinlog.moves.record import MoveKind, Moves
from twinlog.service.waiting import wait_or_stop
from twinlog.write_blocks import held_fences, is_holder
from twinlog_checkpoint.moves.planning.backlog import BacklogMeter
from twinlog_checkpoint.moves.planning.blockers import blockers_of
from twinlog_checkpoint.moves.planning.copy_states import CopyStates
from twinlog_checkpoint.moves.planning.group_places import GroupPlaces
from twinlog_checkpoint.moves.planning.last_move import shown_move
from twinlog_checkpoint.moves.planning.outcome import place_blockers
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.plan_warnings import ahead_told, foreign_told, named, plan_warnings
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.topic_backlog import (
    TopicBacklog,
    counting,
    estimated_seconds,
    total_backlog,
)
from twinlog_checkpoint.moves.write_block import WriteBlockScope, fence_scope
from twinlog_checkpoint.moves.write_grants import WriteGrants, write_grants


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What the last move of the flow in the other direction means for this move."""

    notes: Sequence[str] = ()
    """Warnings."""
    blockers: Sequence[str] = ()
    """Reasons why the move cannot run."""


NOTHING_DUE = Due()
ANSWER_SECONDS = 6.0
"""A cluster that does not answer for this long counts as down."""
MOST_LOOKS = 4
"""The most measurements of a backlog that is still being counted: a plan has to answer within a minute."""


@dataclass(slots=True, kw_only=True)
class MovePlanner:
    route: Route
    clock: Clock
    away: Callable[[ClusterAlias], str]
    """Why the last probe, which may be some seconds old, did not reach the cluster; empty if it did."""
    others: Collection[ClusterAlias]
    """All configured clusters."""
    stop: asyncio.Event
    copy_states: CopyStates
    rate_seconds: float = 1.0
    """The time between the two measurements from which the rate of the copy is computed."""
    places: GroupPlaces = field(init=False)
    _reasons: dict[ClusterAlias, str] = field(default_factory=dict)
    """Why a cluster did not answer when it was asked last; empty if it did."""

    def __post_init__(self) -> None:
        self.places = GroupPlaces(
            route=self.route,
            copy_states=self.copy_states,
            from_answers=self._from_answers,
            to_answers=self._to_answers,
        )

    async def look(
        self,
        options: MoveOptions,
        moves: Moves,
        *,
        without: Collection[str] = (),
        unchanged: Collection[str] = (),
        due: Due = NOTHING_DUE,
    ) -> AsyncGenerator[str | MovePlan, None]:
        """Yield messages about the progress, then the plan of the move as of now, `without` these groups. Of
        the groups `unchanged`, which a run leaves as they are, it shows the offsets that are already there.
        Raises KafkaError.

        A cluster that does not answer now counts as down, whatever the last probe found."""
        yield "asking both clusters"
        from_reachable = await self._from_answers()
        to_reachable = await self._to_answers()
        if from_reachable and to_reachable:
            await self.route.refresh()
        fences = moves.fenced(self.route.from_alias)
        scope = await self.fence_scope() if options.fence and from_reachable else WriteBlockScope()
        blockers = await blockers_of(
            self.route,
            options,
            scope,
            moves,
            no_answer=self._no_answer,
            from_reachable=from_reachable,
            to_reachable=to_reachable,
        )
        partitions: Sequence[MovePartition] = []
        backlog: Sequence[TopicBacklog] = []
        seconds: float | None = None
        only_here: Sequence[str] = ()
        ahead: Sequence[str] = ()
        foreign: Sequence[str] = ()
        granting = options.grant_write and self.route.kind is MoveKind.FAILOVER
        grants = WriteGrants()
        if granting and from_reachable and to_reachable:
            yield "comparing rights to write"
            grants = await self.write_grants(fences)
        looked = to_reachable and self.route.blocker(from_reachable=from_reachable) is None
        if looked:
            yield "reading and translating the groups' offsets"
            placed = await self.places.partitions(
                options, from_reachable=from_reachable, moves=moves, without=without
            )
            copying = self.route.home_flow
            foreign = foreign_told(placed.foreign, copying) if copying is not None else ()
            partitions = [
                entry
                for entry in placed.partitions
                if entry.group not in unchanged
                or entry.action in (MoveAction.ALREADY_THERE, MoveAction.KEEP_AHEAD)
            ]
            ahead = ahead_told(
                (entry for entry in partitions if entry.group not in unchanged),
                from_alias=self.route.from_alias,
                to_alias=self.route.to_alias,
            )
            only_here = sorted(await self.places.only_here(options, moves)) if from_reachable else ()
            yield f"offsets translated: {len(partitions)}; measuring what is not copied yet"
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
                blockers=[
                    *blockers,
                    *due.blockers,
                    *place_blockers(partitions, backlog, accepted=options.accept_loss),
                ],
                fenced_topics=sorted({*scope.topics, *(fence.resource_name for fence in fences)}),
                write_grants=grants.missing,
                not_granted=grants.left_out,
                only_here=only_here,
                foreign=foreign,
                last=shown_move(moves),
            ),
            [*ahead, *due.notes],
        )

    async def done(self, plan: MovePlan, partitions: Sequence[MovePartition]) -> MovePlan:
        """Return the plan as it was carried out, with the present backlog. Raises KafkaError."""
        backlog = await self._counted(self.meter(), plan.from_reachable)
        return self._with_warnings(
            replace(plan, partitions=partitions, backlog=backlog, estimated_seconds=None, last=None)
        )

    def meter(self) -> BacklogMeter:
        """A new meter, for one run or one plan."""
        return BacklogMeter(route=self.route, copy_states=self.copy_states)

    async def fence_scope(self) -> WriteBlockScope:
        """The topics that a fence would cover. Raises KafkaError."""
        home = self.route.home
        return fence_scope(
            {entry.here.topic for entry in await self.route.written()},
            here=self.route.from_alias,
            others=self.others,
            policy=self.route.policy,
            reverse=None if home is None or home.entry.is_stopped else home.flow,
        )

    async def write_grants(self, fences: Collection[AclBinding]) -> WriteGrants:
        """Return the ACLs that allow writers of the topics to write to their copies. `fences` are those of
        this move; those of other flows' moves do not count either. Raises KafkaError."""
        copies = {entry.here.topic: entry.there.topic for entry in await self.route.written()}
        present = await self.route.to_cluster.list_topics()
        rules = await self.route.from_cluster.describe_acls("TOPIC") or ()
        ours = {*fences, *held_fences(rules)}
        return write_grants(
            [each for each in rules if each not in ours and not is_holder(each)],
            await self.route.to_cluster.describe_acls("TOPIC") or (),
            {topic: copy for topic, copy in copies.items() if copy in present},
        )

    def _with_warnings(self, plan: MovePlan, notes: Collection[str] = ()) -> MovePlan:
        warnings = plan_warnings(
            plan.partitions,
            from_alias=plan.from_alias,
            to_alias=plan.to_alias,
            away="" if plan.from_reachable else self._no_answer(plan.from_alias),
            fenced=bool(plan.fenced_topics),
            unsupported=self.route.unsupported if plan.from_reachable else None,
            changed=self.route.changed(
                (each.from_partition, each.to_partition)
                for each in plan.partitions
                if each.to_partition is not None
            ),
        )
        if plan.only_here:
            had = f"not moved, because {plan.to_alias} never had them: --group moves them"
            warnings.append(f"{named(plan.only_here)}: {had}")
        warnings += plan.foreign
        warnings += [f"not granted on {plan.to_alias}: {each}" for each in plan.not_granted]
        warnings += notes
        if plan.last is not None and not plan.last.finished and plan.last.kind is not plan.kind:
            warnings.insert(
                0, f"{plan.last.kind} run {plan.last.run_id} was interrupted: this move replaces it"
            )
        return replace(plan, warnings=warnings)

    async def _to_answers(self) -> bool:
        return await self._answers(self.route.to_alias, self.route.to_cluster)

    async def _from_answers(self) -> bool:
        return await self._answers(self.route.from_alias, self.route.from_cluster)

    async def _answers(self, alias: ClusterAlias, cluster: KafkaCluster) -> bool:
        reason = self.away(alias)
        if not reason:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await cluster.cluster_id()
            except KafkaError as error:
                reason = error.reason
            except TimeoutError:
                reason = TIMEOUT.name
        self._reasons[alias] = reason
        return not reason

    def _no_answer(self, alias: ClusterAlias) -> str:
        return no_answer(alias, self._reasons.get(alias, ""))

    async def _counted(self, meter: BacklogMeter, from_reachable: bool) -> list[TopicBacklog]:
        """Measure the backlog; repeat it a few times while it is still being counted. Raises KafkaError."""
        if not from_reachable:
            return list(self.route.last_seen_backlog())
        for _ in range(MOST_LOOKS):
            backlog = await meter.measure()
            if not counting(backlog):
                break
        return backlog

    async def _backlog_and_rate(self, from_reachable: bool) -> tuple[list[TopicBacklog], float | None]:
        """If there is a backlog, measure it again to get the rate of the copy."""
        started = self.clock.monotonic()
        meter = self.meter()
        first = await self._counted(meter, from_reachable)
        if not total_backlog(first):
            return first, estimated_seconds(first, first, 1.0) if first else None
        await wait_or_stop(self.stop, self.rate_seconds)
        second = await self._counted(meter, from_reachable)
        elapsed = max(self.clock.monotonic() - started, 1e-3)
        return second, estimated_seconds(first, second, elapsed)


async def at_last(look: AsyncGenerator[str | MovePlan, None]) -> MovePlan:
    """Return the plan, which is the last value."""
    async with aclosing(look) as told:
        async for each in told:
            if isinstance(each, MovePlan):
                return each
    raise AssertionError("a look ends with a plan")
