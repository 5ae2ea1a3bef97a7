"""Which groups of the source are translated, and their committed offsets."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.filters import NameFilter
from twinlog.kafka.ports import CommittedOffset, GroupAdmin, KafkaCluster
from twinlog.model import Flow, TopicPartition
from twinlog.selection import TopicSelector
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, is_gone
from twinlog.wire import TopicIds
from twinlog_checkpoint.groups.progress import GroupProgress
from twinlog_checkpoint.side_by_side import in_turns
from twinlog_checkpoint.translation.log_sides import log_ends
from twinlog_checkpoint.translation.translation import SourcePosition, Translation, Verdict

TRANSLATABLE_TYPES = frozenset({"classic", "consumer", "streams"})
"""Streams groups (KIP-1071) commit offsets like consumer groups. Share groups have no committed offset per
partition."""

MOST_UNLISTED: Final = 10_000
"""The most groups that are looked for after they have left the list."""

GroupOffsets = Mapping[TopicPartition, CommittedOffset]
OffsetsOf = Callable[[Collection[str]], Awaitable[Mapping[str, GroupOffsets | KafkaError]]]
"""Returns what groups have committed, or why nobody tells. Raises KafkaError."""


_log = structlog.stdlib.get_logger(__name__)


class Told(NamedTuple):
    """What was last told of a group."""

    kind: str
    """Its type, by the last list that had it."""
    is_listed: bool = True
    """Whether the last list had it. Otherwise it is gone, or its broker is away."""
    has_offsets: bool | None = None
    """By its coordinator; None = that has never told."""


def after_list(
    told: Mapping[str, Told], listed: Mapping[str, str], takes: Callable[[str], bool]
) -> dict[str, Told]:
    """The table after a list of groups and types: it keeps those that rules have ever taken."""
    here = {
        group: told.get(group, Told(kind))._replace(kind=kind, is_listed=True)
        for group, kind in listed.items()
        if group in told or takes(group)
    }
    left = [group for group in told if group not in here][-MOST_UNLISTED:]
    return {group: told[group]._replace(is_listed=False) for group in left} | here


@dataclass(slots=True, kw_only=True)
class GroupDirectory:
    """The groups that pass the filter, listed at an interval (refresh.groups.*)."""

    admin: GroupAdmin
    group_filter: NameFilter
    refresh_enabled: bool
    refresh_interval_seconds: float
    clock: Clock
    listed_at_ms: int | None = None
    """When the groups were last listed, by the wall clock; None = never."""
    is_listed: bool = False
    """Whether they were listed by the rules in force, and no new list is due for another reason."""
    told: dict[str, Told] = field(default_factory=dict)
    """Those that left the list come first, the latest of them last."""
    problem: KafkaError | None = None
    """Why a pass could not list them when that was last due; None when it could."""
    _due_at: float = 0.0
    """When a pass lists them again, in monotonic seconds."""

    @property
    def groups(self) -> frozenset[str]:
        """Those of the last list that can be translated."""
        return frozenset(group for group in self._taken() if self.told[group].is_listed)

    @property
    def unsupported(self) -> Mapping[str, str]:
        """Those of the last list that cannot be translated, with their type."""
        others = sorted(self._taken(translatable=False))
        return {group: self.told[group].kind for group in others if self.told[group].is_listed}

    @property
    def without_offsets(self) -> frozenset[str]:
        """Groups that had committed no offset when their coordinator last told."""
        return frozenset(group for group, each in self.told.items() if each.has_offsets is False)

    def _taken(self, *, translatable: bool = True) -> set[str]:
        """Those that the rules take, listed or not."""
        return {
            group
            for group, each in self.told.items()
            if (each.kind in TRANSLATABLE_TYPES) is translatable and self.group_filter.takes(group)
        }

    async def refresh_if_due(self) -> frozenset[str]:
        """Return the groups. Lists them on the first call, then at each interval; a broker that stays silent
        keeps no known one from being read. Raises KafkaError before the first list."""
        if (now := self.clock.monotonic()) >= self._due_at:
            try:
                await self._list()
            except KafkaError as error:
                if self.listed_at_ms is None:
                    raise
                self.problem = error
                self._due_at = now + self.refresh_interval_seconds / 10
                _log.warning("groups_not_listed", reason=error.reason, message=str(error))
        return self.groups

    async def _list(self) -> frozenset[str]:
        now, listed = self.clock.monotonic(), await self.admin.list_groups()
        self.told = after_list(self.told, listed, self.group_filter.takes)
        self.is_listed, self.listed_at_ms, self.problem = True, self.clock.now_ms(), None
        self._due_at = now + (self.refresh_interval_seconds if self.refresh_enabled else inf)
        return self.groups

    @property
    def next_listing_ms(self) -> int | None:
        """From when on they are listed again; None = not known, or never."""
        if self.listed_at_ms is None or not self.refresh_enabled:
            return None
        return self.listed_at_ms + int(self.refresh_interval_seconds * 1000)

    def list_again(self) -> None:
        """The next call lists the groups, whatever the interval."""
        self.is_listed, self._due_at = False, 0.0

    def follow(self, group_filter: NameFilter, *, refresh_enabled: bool, interval_seconds: float) -> None:
        """Apply changed rules; the next call lists the groups again."""
        self.group_filter = group_filter
        self.refresh_enabled = refresh_enabled
        self.refresh_interval_seconds = interval_seconds
        self.list_again()

    async def present(self, known: Collection[str], *, moved: Collection[str] = ()) -> "FoundGroups":
        """List the groups now, whatever the interval. `known`, `moved`: as for `found_groups`."""
        known = {*filter(self.group_filter.takes, known), *self._taken()}
        return await found_groups(self.offsets_of, self._list, known, moved=moved)

    async def offsets(self) -> Mapping[str, GroupOffsets | KafkaError]:
        """Return the committed offsets of the listed groups, or why they cannot be read. After each list also
        those are asked for that have left it: what is gone counts for no plan. Raises KafkaError."""
        before, groups = self.told, await self.refresh_if_due()
        told = {} if self.told is before else self.told
        left = {group for group, each in told.items() if not each.is_listed}
        answers = await self.offsets_of(groups | left)
        return {group: answers[group] for group in groups}

    async def offsets_of(self, groups: Collection[str]) -> Mapping[str, GroupOffsets | KafkaError]:
        """As `offsets`, of any groups."""
        answers = await self.admin.group_offsets(groups) if groups else {}
        for group, held in answers.items():
            if group not in self.told or isinstance(held, KafkaError):
                continue
            self.told[group] = self.told[group]._replace(has_offsets=bool(held))
            if not held and not self.told[group].is_listed:
                del self.told[group]  # It is gone.
        return answers


# The input of a pass: every committed offset of every group.


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One committed offset of one group."""

    group: str
    committed: CommittedOffset
    position: SourcePosition
    log: TopicPartition
    """Where the offset is of: for a route, the topic whose records take it."""

    @property
    def source(self) -> TopicPartition:
        return self.position.partition


Routes = Mapping[str, Sequence[str]]
"""The routes that records take, by their topic."""


def placed(
    held: GroupOffsets, routes: Routes
) -> Iterator[tuple[TopicPartition, TopicPartition, CommittedOffset]]:
    """Each offset of a group with what it has places in, the copy of its topic and each route of that, and
    with its log. A topic of the source that has the name of a route is not copied: its offsets say nothing of
    the records that take the route."""
    names = {name for each in routes.values() for name in each}
    for log in sorted(held):
        for topic in () if log.topic in names else (log.topic, *routes.get(log.topic, ())):
            partition = log if topic == log.topic else TopicPartition(topic, log.partition)
            yield partition, log, held[log]


def candidates_of(
    offsets: Mapping[str, GroupOffsets], routes: Routes = MappingProxyType({})
) -> Iterable[Candidate]:
    for group in sorted(offsets):
        for partition, log, committed in placed(offsets[group], routes):
            position = SourcePosition(partition=partition, next_offset=committed.next_offset)
            yield Candidate(group=group, committed=committed, position=position, log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRows:
    flow: Flow
    source: KafkaCluster
    target: KafkaCluster
    target_of: Callable[[TopicPartition], TopicPartition]
    """Return the copy of a partition."""
    clock: Clock

    async def of(
        self, candidates: Sequence[Candidate], translations: Mapping[SourcePosition, Translation]
    ) -> list[GroupProgress]:
        """Add each group's committed offset on the target and the lags on both clusters."""
        groups = {candidate.group for candidate in candidates}
        on_target = await self.target.group_offsets(groups) if groups else {}
        source_ends = await log_ends(self.source, {candidate.log for candidate in candidates})
        target_ends = await log_ends(
            self.target,
            {
                self.target_of(candidate.source)
                for candidate in candidates
                if translations[candidate.position].downstream_offset is not None
            },
        )
        now_ms = self.clock.now_ms()
        rows: list[GroupProgress] = []
        async for candidate in in_turns(candidates):
            translation = translations[candidate.position]
            end = source_ends.get(candidate.log)
            if end is not None and candidate.committed.next_offset > end:
                message = f"the offset is past the end {end} of its log: {translation.message}"
                translation = replace(translation, message=message)
            target, there = self.target_of(candidate.source), on_target.get(candidate.group)
            has_place = translation.downstream_offset is not None
            if has_place and isinstance(there, KafkaError) and there.retriable:
                # As a plan has it: whether the group works there is not known either.
                translation = replace(translation, verdict=Verdict.TARGET_UNREADABLE, message=str(there))
            rows.append(
                GroupProgress(
                    flow=self.flow,
                    group=candidate.group,
                    source=candidate.source,
                    target=target,
                    upstream_offset=candidate.committed.next_offset,
                    translation=translation,
                    as_of_ms=now_ms,
                    offset_on_target=_committed(there, target),
                    source_lag=_lag(end, candidate.committed.next_offset),
                    target_lag=_lag(target_ends.get(target), translation.downstream_offset),
                )
            )
        return rows


def _committed(held: GroupOffsets | KafkaError | None, partition: TopicPartition) -> int | None:
    if held is None or isinstance(held, KafkaError):
        return None
    committed = held.get(partition)
    return None if committed is None else committed.next_offset


def _lag(end: int | None, next_offset: int | None) -> int | None:
    return None if end is None or next_offset is None else max(0, end - next_offset)


# Which topics of a flow get checkpoints, and why others do not.

_FIRST_GENERATION = 1


class CopyIdentity(Enum):
    """Whether a topic and its copy are the same two topics that the flow has been copying."""

    UNKNOWN = "UNKNOWN"
    """configsync does not report it, or has not noticed yet that one of them was created again."""
    CURRENT = "CURRENT"
    """They are the same; the source topic was created again at some time."""
    ORIGINAL = "ORIGINAL"
    """They are the same, and every recorded offset of the source topic belongs to this log."""


class KnownTopics(Protocol):
    """What configsync knows of a flow's topics. Implemented by `twinlog.service.feeds.registry.Decisions`."""

    def settled(self, flow: Flow) -> bool: ...

    def topics(self, flow: Flow) -> Mapping[str, object]:
        """By source topic."""
        ...

    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """The topics to which records are routed one by one, by the names that they have on the source."""
        ...

    def ever_routed(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """As `routes`, with those that no record takes any more."""
        ...


class TopicChoice:
    """configsync's registry decides once it is known; until then the topic filter decides, by the rules that
    apply now.

    The filter alone is MM2's rule: internal topics and cycles have no offset syncs anyway. The flow
    does not select copies of the target's own topics, but their groups can move back, so the filter decides
    about them.
    """

    def __init__(self, selector: Callable[[], TopicSelector], known: KnownTopics) -> None:
        """`selector` is asked each time, because rules change while the flow runs."""
        self._selector_now = selector
        self._known = known

    @property
    def _selector(self) -> TopicSelector:
        return self._selector_now()

    def refusal(self, topic: str) -> str | None:
        """Why the topic gets no checkpoints; None when it does."""
        flow = self._selector.flow
        if topic in self._known.routes(flow):
            return None
        filtered = self._selector.topic_filter.judge(topic).included
        if not self._known.settled(flow) or self._comes_from_target(topic):
            return None if filtered else self._selector.decide(topic).rule
        if topic in self._known.topics(flow):
            return None
        decision = self._selector.decide(topic)
        return (
            f"it is not among the topics that configsync has for {flow}"
            if decision.selected
            else decision.rule
        )

    def why_never_copied(self, topic: str) -> str | None:
        """The rule that excludes a checkpointed topic from being copied (internal, a cycle); None when there
        is none."""
        decision = self._selector.decide(topic)
        return None if decision.selected or self.is_route(topic) else decision.rule

    def is_route(self, name: str) -> bool:
        """Whether records of a topic go to the copy that a topic of this name would have."""
        return name in self._known.routes(self._selector.flow)

    def routes(self) -> Routes:
        known = self._known.routes(self._selector.flow)
        return _by_topic({name: route for name, route in known.items() if not is_gone(route)})

    def ever_routed(self) -> Routes:
        """As `routes`, with those that no record takes any more."""
        return _by_topic(self._known.ever_routed(self._selector.flow))

    def topic_ids(self, topic: str) -> TopicIds | None:
        """Of a source topic and its copy, as configsync saw them last; None = it does not know the topic."""
        known = self._known.topics(self._selector.flow).get(topic)
        if not isinstance(known, ReplicatedTopic):
            return None
        return TopicIds(known.source_topic_id, known.target_topic_id)

    def identity(self, topic: str, *, source_id: str, target_id: str) -> CopyIdentity:
        """Compare a topic and its copy with these ids; "" (brokers without ids) proves nothing."""
        known = self._known.topics(self._selector.flow).get(topic)
        if not isinstance(known, ReplicatedTopic) or not source_id or not target_id:
            return CopyIdentity.UNKNOWN
        if (known.source_topic_id, known.target_topic_id) != (source_id, target_id):
            return CopyIdentity.UNKNOWN
        return CopyIdentity.ORIGINAL if known.generation == _FIRST_GENERATION else CopyIdentity.CURRENT

    def _comes_from_target(self, topic: str) -> bool:
        return self._selector.policy.topic_source(topic) == self._selector.flow.target


def _by_topic(known: Mapping[str, ReplicatedTopic]) -> Routes:
    found: dict[str, list[str]] = {}
    for name, route in known.items():
        found.setdefault(route.routed_from, []).append(name)
    return found


async def group_states(admin: GroupAdmin, groups: Collection[str]) -> dict[str, str | KafkaError]:
    """Return the state of each group, or why it cannot be read. Raises KafkaError."""
    described = await admin.describe_groups(groups) if groups else {}
    return {
        group: answer if isinstance(answer, KafkaError) else answer.state
        for group, answer in described.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroups:
    """The groups of a cluster, with those of which nobody tells whether they are still there."""

    groups: Collection[str]
    away: Mapping[str, KafkaError] = field(default_factory=dict)
    """Those among them of which nobody tells, with the cause."""
    problem: KafkaError | None = None
    """Why there may be more."""


async def found_groups(
    offsets_of: OffsetsOf,
    listed: Callable[[], Awaitable[Collection[str]]],
    known: Collection[str],
    *,
    moved: Collection[str] = (),
) -> FoundGroups:
    """Brokers list the groups that they coordinate: those of a broker that is away are missing, or no list is
    whole. So `known`, those that were seen before, are looked for one by one. Those that the cluster does not
    show, because the rights were taken away, count only if a run has `moved` them: it has left a fence."""
    try:
        present = set(await listed())
        missing = set(known) - present
        told = await offsets_of(missing) if missing else {}
    except KafkaError as error:
        return FoundGroups(groups=set(known), problem=error)
    away = {
        group: held
        for group, held in told.items()
        if isinstance(held, KafkaError) and (held.retriable or group in moved)
    }
    # The coordinator of one with offsets has changed meanwhile: the former listed it no more.
    moving = {group for group, held in told.items() if held and not isinstance(held, KafkaError)}
    return FoundGroups(groups=present | moving | away.keys(), away=away)
