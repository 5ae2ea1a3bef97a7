"""The committed offsets of the groups, and what a move does with each of them."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.ports import CommittedOffset, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.moves.record import Moves, went_on
from twinlog_checkpoint.groups.directory import FoundGroups, group_states
from twinlog_checkpoint.groups.progress import WRITABLE_STATES
from twinlog_checkpoint.moves.group_place import GroupPlace
from twinlog_checkpoint.moves.planning.decision import CopyStates, decide
from twinlog_checkpoint.moves.planning.only_here import RecordsOnlyHere
from twinlog_checkpoint.moves.planning.plan import ForeignRange, MoveOptions, MovePartition
from twinlog_checkpoint.moves.routes.route import Route
from twinlog_checkpoint.side_by_side import TURN_GROUPS, in_turns
from twinlog_checkpoint.translation.exact import LogSide
from twinlog_checkpoint.translation.log_sides import bounds_or_errors, log_bounds
from twinlog_checkpoint.translation.translation import (
    UNREADABLE,
    LogBounds,
    SourcePosition,
    Translation,
    Verdict,
)

T = TypeVar("T")

_NOT_REPLICATED = Translation(
    verdict=Verdict.NOT_REPLICATED, downstream_offset=None, message="no flow copies this topic"
)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """The offsets of the groups that a move is about."""

    wanted: list[GroupPlace]
    unread: Mapping[str, KafkaError] = field(default_factory=dict)
    """Groups whose offsets nobody tells now: `wanted` has where they stood last."""
    only_here: Sequence[str] = ()
    unknown: Sequence[str] = ()
    unlisted: Sequence[KafkaError] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    partitions: Sequence[MovePartition]
    """Sorted by group and partition."""
    foreign: Sequence[ForeignRange]
    """What other producers wrote into copies on the cluster that the groups leave."""
    only_here: Sequence[str] = ()
    """Groups that stay, because the other cluster never had them."""
    unknown: Sequence[str] = ()
    """Requested groups that the cluster does not have."""
    silent: Mapping[str, KafkaError] = field(default_factory=dict)
    """Groups whose offsets nobody tells or ever told, with the cause."""
    unlisted: Sequence[KafkaError] = ()
    """Why there may be more groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlaces:
    route: Route
    copy_states: CopyStates
    from_answers: Callable[[], Awaitable[bool]]
    """Whether the cluster that the groups leave answers now."""
    to_answers: Callable[[], Awaitable[bool]]
    """Whether the cluster that the groups move to answers now."""

    async def partitions(
        self,
        options: MoveOptions,
        *,
        from_reachable: bool,
        moves: Moves,
        without: Collection[str] = (),
    ) -> Placed:
        """Return every (group, partition) with the decision about it. Raises KafkaError."""
        if from_reachable:
            await self.route.refresh()
        asked = await self._wanted(options, moves) if from_reachable else await self._known(options)
        # A set, because `without` is a list and there are far more offsets than groups.
        done_with = frozenset(without)
        wanted = [entry for entry in asked.wanted if entry.group not in done_with]
        wanted.sort(key=lambda entry: (entry.group, entry.from_partition))
        left_out = done_with.union(entry.group for entry in wanted)
        await self._see_there(wanted, asked.unread, from_reachable=from_reachable)
        foreign: Sequence[ForeignRange] = ()
        if from_reachable:
            await self._see_ends_here(wanted)
            await self._see_former_moves(wanted, moves)
            foreign = await self._see_unread(wanted, moves)
        look = RecordsOnlyHere(route=self.route, copy_states=self.copy_states)
        partitions: list[MovePartition] = []
        async for entry in in_turns(wanted):
            await self._see_present(look, entry)
            entry.unread_before_start = entry.unread_before_start if from_reachable else None
            partitions.append(
                decide(entry, include_active=options.include_active, accept_loss=options.accept_loss)
            )
        return Placed(
            partitions=partitions,
            foreign=foreign,
            only_here=asked.only_here,
            unknown=asked.unknown,
            silent={group: why for group, why in asked.unread.items() if group not in left_out},
            unlisted=asked.unlisted,
        )

    async def _see_there(
        self, wanted: Sequence[GroupPlace], unread: Mapping[str, KafkaError], *, from_reachable: bool
    ) -> None:
        """The groups and logs on the other cluster, and who works on the one that they leave. Raises
        KafkaError."""
        # No coordinator that is away is waited for again. Members on the old cluster are asked for last:
        # nobody refuses a commit because of them.
        groups = {entry.group for entry in wanted}
        there = await group_states(self.route.to_cluster, groups)
        states_there = _answered(there)
        present = await self.route.to_cluster.group_offsets(states_there) if states_there else {}
        held = _answered(present)
        before: dict[str, str | KafkaError] = {**unread}
        if from_reachable:
            before |= await group_states(self.route.from_cluster, groups - unread.keys())
        states_before = _answered(before)
        unknown = _unknown(before, self.route.here) | _unknown({**there, **present}, self.route.there)
        logs = await bounds_or_errors(
            self.route.to_cluster,
            {entry.to_partition for entry in wanted if entry.to_partition is not None},
            OffsetSpec.LATEST,
        )
        async for entry in in_turns(wanted):
            entry.state_before = states_before.get(entry.group)
            entry.state_there = states_there.get(entry.group)
            if entry.to_partition is None:
                continue
            log, committed = logs.get(entry.to_partition), held.get(entry.group, {}).get(entry.to_partition)
            entry.present_offset = None if committed is None else committed.next_offset
            entry.log_there = log if isinstance(log, LogBounds) else None
            self._see_known(entry, log, unknown.get(entry.group))

    def _see_known(
        self, entry: GroupPlace, log: LogBounds | KafkaError | None, unknown: Translation | None
    ) -> None:
        """The last known place, where the log there or the group cannot be looked at now."""
        translation, offset = entry.translation, None
        if unknown is not None:
            translation, offset = unknown, translation.downstream_offset
        elif isinstance(log, KafkaError) and (
            translation.verdict in UNREADABLE or translation.downstream_offset is not None
        ):
            translation = replace(translation, verdict=self.route.there.unreadable, message=str(log))
        elif translation.verdict not in UNREADABLE:
            return
        if offset is None:
            offset = self.route.last_known(entry.group, entry.to_partition)
        entry.translation = replace(translation, downstream_offset=offset)

    async def _see_present(self, look: RecordsOnlyHere, entry: GroupPlace) -> None:
        """Whose the offset there is. A group that stands there behind its place, with no record in between,
        is at its place."""
        place, present, log = entry.translation.downstream_offset, entry.present_offset, entry.log_there
        there = entry.to_partition
        entry.wrote_present = self.route.wrote(entry.group, there, present, upstream=entry.from_offset)
        entry.wrote_further |= present is not None and self.route.wrote_further(
            entry.group, there, present, upstream=entry.from_offset
        )
        if there is None or log is None or place is None or present is None or present > log.end:
            return
        if await look.is_empty_there(there, place, present):
            entry.translation = replace(entry.translation, downstream_offset=present)

    async def _see_ends_here(self, wanted: Collection[GroupPlace]) -> None:
        """Raises KafkaError."""
        held = {entry.from_partition for entry in wanted}
        logs = await log_bounds(self.route.from_cluster, held, OffsetSpec.LATEST)
        async for entry in in_turns(wanted):
            log = logs.get(entry.from_partition)
            entry.end_here = None if log is None else log.end

    async def _see_unread(self, wanted: Collection[GroupPlace], moves: Moves) -> Sequence[ForeignRange]:
        """Count the records that the groups have not read and would skip; return those of other producers.
        Raises KafkaError."""
        only_here = RecordsOnlyHere(route=self.route, copy_states=self.copy_states)
        at_start = [entry async for entry in in_turns(wanted) if _is_at_start(entry)]
        logs = {entry.from_partition: entry.log_there for entry in at_start if entry.log_there}
        before_start = await only_here.before_start({entry.position for entry in at_start}, logs)
        written = await only_here.foreign({entry.from_partition.topic for entry in wanted})
        of_partition = {of: list(each) for of, each in groupby(written, key=lambda each: each.partition)}
        async for entry in in_turns(wanted):
            entry.unread_before_start = before_start.get(entry.position, 0)
            found = of_partition.get(entry.from_partition)
            if found and self._works_here(entry, moves):
                entry.unread_foreign = await only_here.unread(entry.from_offset, found)
        return written

    def _works_here(self, entry: GroupPlace, moves: Moves) -> bool:
        """Whether the group reads on the cluster that it leaves: a failover moved it there, or it has gone on
        there itself. Otherwise sync.group.offsets has put its offset there."""
        moved = moves.groups_on_target
        if moved is None or entry.group in moved:
            return True
        return not self.route.may_be_synced(entry.group, entry.from_partition, entry.from_offset)

    async def _see_former_moves(self, wanted: Collection[GroupPlace], moves: Moves) -> None:
        """What the moves that moved the groups last say of the present offset there, and of where the groups
        are now. Raises KafkaError.

        - Where one in the other direction found the groups that it left at the first record here, and that
          are still there: it may have skipped what only the other cluster has.
        - Where one left a group, on the cluster that it moves to now: what one of the same kind committed for
          groups that were put back since, or where one in the other direction found them. After the latter a
          lower place has to be certain, and the group has to be before the place where that move left it:
          otherwise nobody put it back, and only the way back is translated less exactly.
        """
        came, stayed = moves.moved_to(self.route.from_alias), list[GroupPlace]()
        asked: list[tuple[GroupPlace, SourcePosition]] = []
        for entry in wanted:
            home, there = moves.homes.get(entry.group), entry.to_partition
            if there is None or home is None:
                continue
            left, stood = home.left_at.get(entry.from_partition), home.stood_at.get(there)
            before: int | None = None
            if entry.group in came and left == entry.from_offset and stood is not None:
                stayed.append(entry)
            if home.where == self.route.from_alias:
                if (left is None or entry.from_offset < left) and entry.translation.is_certain:
                    before = stood
            elif (then := home.stood_at.get(entry.from_partition, 0)) > entry.from_offset:
                before = home.left_at.get(there)
                if before is None:
                    asked.append((entry, SourcePosition(partition=entry.from_partition, next_offset=then)))
            entry.wrote_further = before is not None and before == entry.present_offset
        answers = await self.route.ways.translate({position for _, position in asked}) if asked else {}
        for entry, position in asked:
            before = answers[position].downstream_offset
            entry.wrote_further = before is not None and before == entry.present_offset
        bounds = await self.route.here.bounds({entry.from_partition for entry in stayed})
        for entry in stayed:
            log = bounds.get(entry.from_partition)
            if isinstance(log, LogBounds) and entry.from_offset <= log.start and entry.to_partition:
                entry.came_from = came[entry.group].stood_at[entry.to_partition]

    async def _wanted(self, options: MoveOptions, moves: Moves) -> _Asked:
        """Return the groups' offsets as the cluster that they leave has them. Raises KafkaError."""
        found = await self.route.groups(moves)
        stay = FoundGroups(groups=())
        if not options.groups:
            stay = await self.route.only_here(found.groups, moves)
        wanted = set(options.groups) or set(found.groups) - set(stay.groups)
        # No coordinator that is away is waited for again.
        committed, unread = await self._committed(wanted.intersection(found.groups) - found.away.keys())
        unread |= {group: error for group, error in found.away.items() if group in wanted}
        known = await self.route.last_places(moves) if unread else ()
        # Groups share partitions, so ask the rules once for each partition.
        held = {partition for _, partition in committed}
        destinations = {
            partition: self.route.ways.destination(partition) async for partition in in_turns(held)
        }
        positions = {
            (group, partition): SourcePosition(partition=partition, next_offset=offset.next_offset)
            async for (group, partition), offset in in_turns(committed.items())
            if destinations[partition] is not None
        }
        answers = await self.route.ways.translate(set(positions.values()))
        places = [
            GroupPlace(
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
        unknown = sorted(set(options.groups) - set(found.groups))
        # A run for groups that are all known is not about others.
        problems = (found.problem, stay.problem) if unknown or not options.groups else ()
        return _Asked(
            wanted=[*places, *(place for place in known if place.group in unread)],
            unread=unread,
            only_here=sorted(stay.groups),
            unknown=unknown,
            unlisted=[each for each in problems if each is not None],
        )

    async def _committed(
        self, groups: Collection[str]
    ) -> tuple[dict[tuple[str, TopicPartition], CommittedOffset], dict[str, KafkaError]]:
        """Return the committed offsets of these groups on the cluster that they leave, and why those of other
        groups cannot be read. Raises KafkaError."""
        told = await self.route.offsets_of(groups) if groups else {}
        held = {
            (group, partition): offset
            async for group, offsets in in_turns(_answered(told).items(), most=TURN_GROUPS)
            for partition, offset in self.route.with_routes(offsets).items()
            if self.route.is_own(group, partition, offset.next_offset)
        }
        return held, {group: each for group, each in told.items() if isinstance(each, KafkaError)}

    async def finished_with(self, moves: Moves, options: MoveOptions) -> set[str]:
        """Return the groups that earlier runs have moved in this direction and none has moved back, without
        those that have members on the old cluster, have made progress there since, were put back there, or
        have lost their offsets on the other one, and those of which one of the clusters does not tell that.
        Progress is read from their offsets on the old one, or from their checkpoints while that cluster does
        not answer. Raises KafkaError."""
        homes = moves.finished(self.route.kind)
        stood = {group: home.stood_at for group, home in homes.items()}
        asked = stood.keys() & set(options.groups or stood)
        now: dict[str, dict[TopicPartition, int]] = {group: {} for group in asked}
        live = bool(asked) and await self.from_answers()
        if live and await self.to_answers():
            await self.route.refresh()
        standing, unread = await self._standing(asked, live=live)
        for group, partition, offset in standing:
            if not self.route.may_be_synced(group, partition, offset):
                now[group][partition] = offset
        done_with = {group for group, at in stood.items() if not went_on(at, now.get(group, {}), live=live)}
        done_with -= unread.keys()
        states = await group_states(self.route.from_cluster, done_with & asked) if live else {}
        done_with -= {group for group, state in states.items() if state not in WRITABLE_STATES}
        if not done_with or not await self.to_answers():
            return done_with  # Such a move is blocked.
        told = await self.route.to_cluster.group_offsets(done_with)
        # One whose loss was accepted has none there; once it is named, it may have a place.
        return {
            group
            for group, held in _answered(told).items()
            if held or not (homes[group].left_at or group in options.groups)
        }

    async def _standing(
        self, groups: Collection[str], *, live: bool
    ) -> tuple[list[tuple[str, TopicPartition, int]], dict[str, KafkaError]]:
        """Return the offsets of each group's partitions that can move, and why others cannot be read. Raises
        KafkaError."""
        if not live:
            known = await self.route.known_places() if groups else ()
            places = [each for each in known if each.group in groups]
            return [(each.group, each.from_partition, each.from_offset) for each in places], {}
        committed, unread = await self._committed(groups)
        standing = [
            (group, partition, offset.next_offset)
            for (group, partition), offset in committed.items()
            if self.route.ways.destination(partition) is not None
        ]
        return standing, unread

    async def _known(self, options: MoveOptions) -> _Asked:
        """Return the groups' offsets from their checkpoints. Raises KafkaError."""
        known = await self.route.known_places()
        return _Asked(wanted=[each for each in known if each.group in (options.groups or (each.group,))])


def _is_at_start(entry: GroupPlace) -> bool:
    offset, log = entry.translation.downstream_offset, entry.log_there
    return log is not None and (log.start == log.end if offset is None else offset <= log.start)


def _answered(answers: Mapping[str, T | KafkaError]) -> dict[str, T]:
    return {group: answer for group, answer in answers.items() if not isinstance(answer, KafkaError)}


def _unknown(answers: Mapping[str, T | KafkaError], side: LogSide) -> dict[str, Translation]:
    """The verdict on the groups that a cluster does not tell of: they may be at work there."""
    return {
        group: Translation(verdict=side.unreadable, downstream_offset=None, message=str(answer))
        for group, answer in answers.items()
        if isinstance(answer, KafkaError)
    }
