"""Reads both clusters and plans what a move would do now. Changes nothing."""

import asyncio
import shlex
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.deadline import short_patience
from twinlog.kafka.errors import TIMEOUT
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.moves.record import MoveKind, Moves
from twinlog.service.waiting import wait_or_stop
from twinlog.write_blocks import held_fences, is_holder
from twinlog_checkpoint.moves.planning.backlog import BacklogMeter
from twinlog_checkpoint.moves.planning.decision import CopyStates, shown_move
from twinlog_checkpoint.moves.planning.group_places import GroupPlaces, Placed
from twinlog_checkpoint.moves.planning.outcome import place_blockers, some, waiting
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions, MovePartition, MovePlan
from twinlog_checkpoint.moves.planning.plan_warnings import (
    ahead_told,
    entered_foreign_told,
    foreign_told,
    named,
    plan_warnings,
    unlisted_offsets_told,
)
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.moves.topic_backlog import TopicBacklog, counting, estimated_seconds, total_backlog
from twinlog_checkpoint.moves.write_block import (
    WriteBlockScope,
    WriteGrants,
    fence_scope,
    missing_fences,
    write_grants,
)
from twinlog_checkpoint.translation.translation import UNREADABLE

T = TypeVar("T")

# The reasons why a move cannot run now.


async def blockers_of(
    route: Route,
    options: MoveOptions,
    scope: WriteBlockScope,
    *,
    left: Outage,
    entered: Outage,
) -> list[str]:
    """Return each reason with its remedy; the outages are of the cluster that groups leave, and of the other
    one. Raises KafkaError."""
    blockers: list[str] = []
    to_reachable = not entered.reason
    if not to_reachable:
        blockers.append(entered.judged(route.to_alias, so=", and the groups would move there").words)
    if left.reason:
        return [*blockers, *await _when_away(route, options, left, to_reachable=to_reachable)]
    blocker = route.blocker(from_reachable=True)
    if blocker is not None:
        blockers.append(blocker)
    if options.grant_write:
        blockers += await _against_granting(route, to_reachable=to_reachable)
    if not options.fence:
        return blockers
    if await missing_fences(route.from_cluster, scope.topics) is None:
        blockers.append(f"{route.from_alias} has no authorizer, so ACLs cannot fence its writers")
    if scope.conflicts:
        blockers.append(
            f"flow {route.home_flow} writes to {some(scope.conflicts)} on {route.from_alias}"
            " under the same names, so a fence would deny its writes as well: fence by hand"
        )
    return blockers


def groups_told(placed: Placed, route: Route) -> tuple[list[str], list[str]]:
    """Return what the groups have against the move, whatever is accepted, and what a run that accepts losses
    goes on without."""
    silent = dict(placed.silent)
    empty = {group: silent.pop(group) for group in sorted(silent.keys() & set(route.without_offsets))}
    firm, unlisted = [], dict.fromkeys(map(str, placed.unlisted))
    accepted = [f"{route.from_alias} may have groups that were never seen: {each}" for each in unlisted]
    if empty:
        accepted.append(f"no offset, when last read, of {named([*empty])}: {next(iter(empty.values()))}")
    if silent:
        told = f"no offset is known of {named(sorted(silent))}: {silent[min(silent)]}"
        firm.append(f"{told}. Remove the cause, or move the others (--group)")
    if placed.unknown:
        firm.append(
            f"groups that do not exist on {route.from_alias}, or that the filter excludes:"
            f" {', '.join(placed.unknown)} (`twinlog explain group {shlex.quote(placed.unknown[0])}`)"
        )
    return firm, accepted


async def _against_granting(route: Route, *, to_reachable: bool) -> list[str]:
    if route.kind is MoveKind.FAILBACK:
        back = f"--grant-write is for a failover: on {route.to_alias} writers still have their rights"
        return [back]
    clusters = [(route.from_alias, route.from_cluster)]
    if to_reachable:
        clusters.append((route.to_alias, route.to_cluster))
    return [
        f"{alias} has no authorizer, so there are no rights to grant: omit --grant-write"
        for alias, cluster in clusters
        if await cluster.describe_acls("TOPIC") is None
    ]


async def _when_away(route: Route, options: MoveOptions, left: Outage, *, to_reachable: bool) -> list[str]:
    away = left.told(route.from_alias)
    if route.kind is MoveKind.FAILBACK:
        # The groups' progress and the record of moves are on this cluster only.
        so = ", so the groups' offsets are not known"
        by_hand = (
            f"Only if it is lost, start the groups on {route.to_alias} where they left it, and remove a fence"
            " there by hand (kafka-acls --remove)"
        )
        return [f"{left.judged(route.from_alias, so=so).words}. {by_hand}"]
    blocker = route.blocker(from_reachable=False)
    blockers = [] if blocker is None else [blocker]
    if not options.accept_loss:
        continues = f"--accept-loss continues with what {route.to_alias} has"
        blockers.append(f"{left.judged(route.from_alias).words}; {continues}")
    if options.fence:
        blockers.append(f"{away}, so its writers cannot be fenced")
    if options.grant_write:
        blockers.append(
            f"{away}, so it is not known who may write there: omit --grant-write,"
            f" and grant WRITE on {route.to_alias} with kafka-acls"
        )
    if options.groups and to_reachable and blocker is None:
        unknown = sorted(set(options.groups) - {place.group for place in await route.known_places()})
        if unknown:
            blockers.append(f"groups without a checkpoint on {route.to_alias}: {some(unknown)}")
    return blockers


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
    outage: Callable[[ClusterAlias], Outage]
    """The brokers of the cluster that did not answer the last probe, which may be some seconds old."""
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
        the groups `unchanged`, which a run leaves as they are, it shows the offsets that are already there,
        or that nobody can read now. Raises KafkaError.

        A cluster that does not answer now counts as down, whatever the last probe found."""
        yield "asking both clusters"
        from_reachable = await self._from_answers()
        to_reachable = await self._to_answers()
        unread = await self._unread() if from_reachable and to_reachable else []
        fences = moves.fenced(self.route.from_alias)
        scope = await self.fence_scope() if options.fence and from_reachable else WriteBlockScope()
        blockers = await blockers_of(
            self.route,
            options,
            scope,
            left=self._seen(self.route.from_alias),
            entered=self._seen(self.route.to_alias),
        )
        grants = WriteGrants()
        granting = options.grant_write and self.route.kind is MoveKind.FAILOVER
        if granting and from_reachable and to_reachable:
            yield "comparing rights to write"
            grants = await self.write_grants(fences)
        firm = [*unread, *blockers, *due.blockers]
        plan = MovePlan(
            kind=self.route.kind,
            flow=self.route.flow,
            from_alias=self.route.from_alias,
            to_alias=self.route.to_alias,
            from_reachable=from_reachable,
            looked=to_reachable and not unread and self.route.blocker(from_reachable=from_reachable) is None,
            fenced_topics=sorted({*scope.topics, *(fence.resource_name for fence in fences)}),
            write_grants=grants.missing,
            not_granted=grants.left_out,
            last=shown_move(moves),
        )
        of_groups: list[str] = []
        accepted: list[str] = []
        notes: list[str] = []
        if plan.looked:
            yield "reading and translating the groups' offsets"
            placed = await self.asked(
                self.places.partitions(options, from_reachable=from_reachable, moves=moves, without=without)
            )
            of_groups, accepted = groups_told(placed, self.route)
            notes = await self._notes(placed, moves, options.groups if from_reachable else None)
            plan = replace(
                plan,
                partitions=[
                    entry
                    for entry in placed.partitions
                    if entry.group not in unchanged
                    or entry.action in (MoveAction.ALREADY_THERE, MoveAction.KEEP_AHEAD)
                    or entry.translation.verdict in UNREADABLE
                ],
                only_here=placed.only_here,
                foreign=foreign_told(placed.foreign, home) if (home := self.route.home_flow) else (),
            )
            yield f"offsets translated: {len(plan.partitions)}; measuring what is not copied yet"
            backlog, seconds = await self.asked(self._backlog_and_rate(from_reachable))
            plan = replace(plan, backlog=backlog, estimated_seconds=seconds)
        moving = [entry for entry in plan.partitions if entry.group not in unchanged]
        late = waiting(moving, plan.backlog)
        # Accepted losses do not block: a run moves the other offsets.
        allowed, losses = ([*accepted, *notes], []) if options.accept_loss else (notes, accepted)
        waits = bool(late or of_groups or losses or unread or due.blockers)
        judged = [each.judged(alias, waits=waits) for alias, each in self._silent().items()]
        stops = [each.words for each in judged if each.blocks and not options.accept_loss]
        how = "--accept-loss --group" if of_groups else "--accept-loss"
        offer = "" if firm else f", or move what can be moved without it ({how})"
        of_places = place_blockers(moving, plan.backlog, accepted=options.accept_loss)
        silent = [f"{each}{offer}" for each in stops]
        stuck = [] if options.accept_loss else late
        yield self._with_warnings(
            replace(plan, blockers=[*silent, *firm, *of_groups, *losses, *of_places, *stuck]),
            [
                *ahead_told(moving, from_alias=plan.from_alias, to_alias=plan.to_alias),
                *allowed,
                *(each.words for each in judged if each.words not in stops),
                *(late if options.accept_loss else ()),
                *due.notes,
            ],
        )

    async def _notes(self, placed: Placed, moves: Moves, groups: Collection[str] | None) -> list[str]:
        """`groups`: those that are asked for, all if there are none; None while the cluster that they leave
        does not answer. Raises KafkaError."""
        route, came = self.route, moves.moved_to(self.route.from_alias)
        quiet = placed.silent.keys() | {
            each.group for each in placed.partitions if each.translation.verdict in UNREADABLE
        }
        told = () if groups is None else groups or came
        homes = {each: home for each, home in came.items() if each in told and each not in quiet}
        notes = unlisted_offsets_told(
            placed.partitions, homes, from_alias=route.from_alias, to_alias=route.to_alias
        )
        if (away := route.away) is not None:
            copies = (await self.copy_states.of(away.flow)).partitions
            notes += entered_foreign_told(placed.partitions, copies, to_alias=route.to_alias)
        return notes

    async def asked(self, questions: Coroutine[Any, Any, T]) -> T:
        """The answers of those brokers that answer: the others are known, and not waited for as usual."""
        with short_patience(bool(self._silent())):
            return await questions

    async def done(
        self,
        plan: MovePlan,
        partitions: Sequence[MovePartition],
        finals: Mapping[TopicPartition, int | None] | None,
    ) -> MovePlan:
        """Return the plan as it was carried out, with what is left of the records before the `finals`: what
        was written later belongs to no move. Raises KafkaError."""
        backlog = await self._counted(self.meter(), plan.from_reachable, finals)
        return self._with_warnings(
            replace(plan, partitions=partitions, backlog=backlog, estimated_seconds=None, last=None)
        )

    def meter(self) -> BacklogMeter:
        """A new meter, for one run or one plan."""
        return BacklogMeter(route=self.route, copy_states=self.copy_states, brokers_away=bool(self._silent()))

    def _silent(self) -> dict[ClusterAlias, Outage]:
        """The clusters of which some brokers do not answer while others do."""
        found = {alias: self._seen(alias) for alias in (self.route.from_alias, self.route.to_alias)}
        return {alias: each for alias, each in found.items() if each and not each.reason}

    def _seen(self, alias: ClusterAlias) -> Outage:
        """As of the last question, which is newer than the last probe."""
        return replace(self.outage(alias), reason=self._reasons.get(alias, ""))

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
            away="" if plan.from_reachable else self._seen(plan.from_alias).told(plan.from_alias),
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

    async def _unread(self) -> list[str]:
        """Why it is not known what other processes have written for the flow in the other direction."""
        try:
            await self.route.refresh()
        except KafkaError as error:
            return [f"which offsets the flow in the other direction has committed is not known: {error}"]
        return []

    async def _to_answers(self) -> bool:
        return await self._answers(self.route.to_alias, self.route.to_cluster)

    async def _from_answers(self) -> bool:
        return await self._answers(self.route.from_alias, self.route.from_cluster)

    async def _answers(self, alias: ClusterAlias, cluster: KafkaCluster) -> bool:
        reason = self.outage(alias).reason
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

    async def _counted(
        self,
        meter: BacklogMeter,
        from_reachable: bool,
        until: Mapping[TopicPartition, int | None] | None = None,
    ) -> list[TopicBacklog]:
        """Measure the backlog; repeat it a few times while it is still being counted. Raises KafkaError."""
        if not from_reachable:
            return list(self.route.last_seen_backlog())
        for _ in range(MOST_LOOKS):
            backlog = await meter.measure(until)
            if not counting(backlog):
                break
        return backlog

    async def _backlog_and_rate(self, from_reachable: bool) -> tuple[list[TopicBacklog], float | None]:
        """If there is a backlog, measure it again to get the rate of the copy."""
        started = self.clock.monotonic()
        meter = self.meter()
        first = await self._counted(meter, from_reachable)
        # Of records that wait for brokers nobody can tell when they are copied.
        if not total_backlog(first) or any(entry.is_stuck for entry in first):
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
