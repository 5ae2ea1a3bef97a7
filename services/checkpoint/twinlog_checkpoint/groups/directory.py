"""Which groups of the source are translated, and their committed offsets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.filters import GroupFilter
from twinlog.kafka.ports import CommittedOffset, GroupAdmin, KafkaCluster
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.groups.progress import GroupProgress
from twinlog_checkpoint.side_by_side import in_turns
from twinlog_checkpoint.translation.log_sides import log_ends
from twinlog_checkpoint.translation.translation import (
    SourcePosition,
    Translation,
)

TRANSLATABLE_TYPES = frozenset({"classic", "consumer", "streams"})
"""Streams groups (KIP-1071) commit offsets like consumer groups. Share groups have no committed offset per
partition."""

GroupOffsets = Mapping[TopicPartition, CommittedOffset]


@dataclass(slots=True, kw_only=True)
class GroupDirectory:
    """The groups that pass the filter, listed at an interval (refresh.groups.*)."""

    admin: GroupAdmin
    group_filter: GroupFilter
    refresh_enabled: bool
    refresh_interval_seconds: float
    clock: Clock
    groups: frozenset[str] = frozenset()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    """Groups that pass the filter and cannot be translated, with their type."""
    listed_at_ms: int | None = None
    """When the groups were last listed, by the wall clock; None = never."""
    _listed_at: float | None = None

    async def refresh_if_due(self) -> frozenset[str]:
        """Return the groups. Lists them on the first call, then at each interval. Raises KafkaError."""
        now = self.clock.monotonic()
        first = self._listed_at is None
        due = self._listed_at is not None and now - self._listed_at >= self.refresh_interval_seconds
        if first or (due and self.refresh_enabled):
            listed = await self.admin.list_groups()
            taken = {
                group: kind
                for group, kind in listed.items()
                if self.group_filter.should_replicate_group(group)
            }
            self.groups = frozenset(group for group, kind in taken.items() if kind in TRANSLATABLE_TYPES)
            self.unsupported = {
                group: kind for group, kind in sorted(taken.items()) if kind not in TRANSLATABLE_TYPES
            }
            self._listed_at, self.listed_at_ms = now, self.clock.now_ms()
        return self.groups

    @property
    def next_listing_ms(self) -> int | None:
        """When they are listed again, and new ones found; None = not known, or never."""
        if self.listed_at_ms is None or not self.refresh_enabled:
            return None
        return self.listed_at_ms + int(self.refresh_interval_seconds * 1000)

    def list_again(self) -> None:
        """The next call lists the groups, whatever the interval."""
        self._listed_at = None

    def follow(self, group_filter: GroupFilter, *, refresh_enabled: bool, interval_seconds: float) -> None:
        """Apply changed rules; the next call lists the groups again."""
        self.group_filter = group_filter
        self.refresh_enabled = refresh_enabled
        self.refresh_interval_seconds = interval_seconds
        self.list_again()

    async def present(self) -> frozenset[str]:
        """List the groups now, whatever the interval. Raises KafkaError."""
        self.list_again()
        return await self.refresh_if_due()

    async def offsets(self) -> Mapping[str, GroupOffsets | KafkaError]:
        """Return the committed offsets of the listed groups, or why they cannot be read. Raises
        KafkaError."""
        groups = await self.refresh_if_due()
        return await self.admin.group_offsets(groups) if groups else {}


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


def candidates_of(
    offsets: Mapping[str, GroupOffsets], routes: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterable[Candidate]:
    """An offset has a place in the copy of its topic, and in each of the `routes` of that topic."""
    for group in sorted(offsets):
        for log in sorted(offsets[group]):
            committed = offsets[group][log]
            for topic in (log.topic, *routes.get(log.topic, ())):
                partition = log if topic == log.topic else TopicPartition(topic, log.partition)
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
            target = self.target_of(candidate.source)
            rows.append(
                GroupProgress(
                    flow=self.flow,
                    group=candidate.group,
                    source=candidate.source,
                    target=target,
                    upstream_offset=candidate.committed.next_offset,
                    translation=translation,
                    as_of_ms=now_ms,
                    offset_on_target=_committed(on_target.get(candidate.group), target),
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
