"""Decides whether Twinlog may take a flow over from MirrorMaker 2, and where each partition continues. Pure.

MirrorMaker 2 must not run: two processes that copy write every record twice. It counts as running when its
Connect group has members, or when topics that only it writes (heartbeats, positions) grew between two looks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.config import AutoOffsetReset, FlowConfig
from twinlog.model import Flow, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log's first and next offset."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPositions:
    """The contents of the target's positions topic."""

    topic: str
    exists: bool = False
    by_connector: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Next offset to copy, by connector name; only of the flow's source."""
    unreadable: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Records of the flow's connector that are not valid positions, each with the reason."""
    newest_ms: int | None = None
    """Time of the newest position, by its writer's clock."""
    twinlog_was_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What one look shows about writers of the flow."""

    connect_members: int = 0
    twinlog_members: int = 0
    positions_written: int = 0
    """Records of the flow's connector read from the positions topic so far."""
    newest_heartbeat_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionFacts:
    config: FlowConfig
    connect_group: str
    """The group of MirrorMaker 2's workers: it has members only while they run. Empty = not known, also on a
    Connect cluster that has other connectors."""
    before: Signs
    after: Signs
    positions: StoredPositions
    source_logs: Mapping[TopicPartition, Log]
    """The logs of all selected partitions."""
    target_topics: frozenset[str]
    remote: Mapping[str, str]
    """Source topic -> its name on the target."""
    missing_topics: tuple[str, ...] = ()
    """Twinlog's own topics, which it will create."""

    @property
    def flow(self) -> Flow:
        return self.config.flow


class Start(StrEnum):
    """Where a partition continues."""

    STORED = "stored"
    """Where MirrorMaker 2 (or Twinlog) stopped."""
    GROUP_OR_TIME = "start key"
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Not decided: the partition waits for an operator."""
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    partition: TopicPartition
    target_topic: str
    start: Start
    position: int | None
    """The next source offset to copy; None = decided at the start."""
    lag: int | None
    lost: int = 0
    """Records that the source deleted before they were copied."""
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    flow: Flow
    refusals: tuple[str, ...]
    """Why the take-over is refused, each with the remedy; empty = it may begin."""
    continuations: tuple[Continuation, ...]
    changes: tuple[str, ...]
    """Differences after the take-over."""
    left_behind: tuple[TopicPartition, ...]
    """Topics with a position that the file does not select."""


def judge_adoption(facts: AdoptionFacts) -> Adoption:
    stored = facts.positions.by_connector.get(facts.config.source.connector_name, {})
    return Adoption(
        flow=facts.flow,
        refusals=tuple(_refusals(facts, stored)),
        continuations=tuple(
            _continuation(facts, partition, log, stored)
            for partition, log in sorted(facts.source_logs.items())
        ),
        changes=tuple(_changes(facts)),
        left_behind=tuple(sorted(stored.keys() - facts.source_logs.keys())),
    )


def _refusals(facts: AdoptionFacts, stored: Mapping[TopicPartition, int]) -> Iterator[str]:
    before, after, name = facts.before, facts.after, facts.config.source.connector_name
    by_twinlog = max(before.twinlog_members, after.twinlog_members) > 0
    if by_twinlog:
        yield f"Twinlog already runs {facts.flow}"
        return
    members = max(before.connect_members, after.connect_members)
    if members:
        yield (
            f"MirrorMaker 2 runs: its group {facts.connect_group} has {members} members on"
            f" {facts.flow.target}: stop every node and wait until it is empty"
        )
    if after.newest_heartbeat_ms != before.newest_heartbeat_ms and after.newest_heartbeat_ms is not None:
        yield f"MirrorMaker 2 runs: it writes heartbeats of {facts.flow}: stop its connectors"
    if after.positions_written > before.positions_written:
        yield f"MirrorMaker 2 runs: it writes positions to {facts.positions.topic}: stop its connectors"
    if not stored and facts.positions.by_connector:
        others = ", ".join(sorted(facts.positions.by_connector))
        yield (
            f"{facts.positions.topic} has positions of {facts.flow.source} under {others}, none under {name}:"
            f" all would be copied again; write {facts.flow}.name={min(facts.positions.by_connector)}"
        )
    elif not stored and _has_copies(facts) and not facts.positions.twinlog_was_here:
        yield (
            f"{facts.positions.topic} has no positions of {facts.flow.source}, but there are copies on"
            f" {facts.flow.target}: all would be copied again; if a Connect cluster ran the connectors, write"
            f" its offset.storage.topic as {facts.flow}.offsets.storage.topic"
        )


def _has_copies(facts: AdoptionFacts) -> bool:
    return any(name in facts.target_topics for name in facts.remote.values())


def _continuation(
    facts: AdoptionFacts, partition: TopicPartition, log: Log, stored: Mapping[TopicPartition, int]
) -> Continuation:
    target = facts.remote[partition.topic]
    position = stored.get(partition)
    if partition in facts.positions.unreadable:
        where = f"--topic {partition.topic} --partition {partition.partition} --to earliest --dry-run"
        why = (
            f"its record is damaged: {facts.positions.unreadable[partition]};"
            f" `twinlog positions set '{facts.flow}' {where}` once the service runs"
        )
        return Continuation(
            partition=partition,
            target_topic=target,
            start=Start.UNREADABLE,
            position=None,
            lag=None,
            remark=why,
        )
    if position is None:
        return _new(facts, partition, log, target)
    remark = ""
    if position > log.end:
        remark = "the source's log ends before this position: the topic was recreated, or lost its tail"
    elif position < log.start:
        remark = "the source has deleted records that were not copied: they become a gap"
    elif target not in facts.target_topics:
        remark = "the target has no copy: it is created, and begins at this position"
    return Continuation(
        partition=partition,
        target_topic=target,
        start=Start.STORED,
        position=position,
        lag=max(0, log.end - max(position, log.start)),
        lost=max(0, log.start - position),
        remark=remark,
    )


def _new(facts: AdoptionFacts, partition: TopicPartition, log: Log, target: str) -> Continuation:
    settings = facts.config.source
    by_duration = settings.auto_offset_reset is AutoOffsetReset.BY_DURATION
    if settings.start_group or settings.start_time_ms is not None or by_duration:
        return Continuation(
            partition=partition, target_topic=target, start=Start.GROUP_OR_TIME, position=None, lag=None
        )
    begins = {
        AutoOffsetReset.EARLIEST: (Start.EARLIEST, log.start),
        AutoOffsetReset.LATEST: (Start.LATEST, log.end),
    }
    start, position = begins.get(settings.auto_offset_reset, (Start.NONE, None))
    there = target in facts.target_topics and log.end > log.start
    return Continuation(
        partition=partition,
        target_topic=target,
        start=start,
        position=position,
        lag=None if position is None else log.end - position,
        remark="no position is stored, although the target has a copy" if there else "",
    )


def _changes(facts: AdoptionFacts) -> Iterator[str]:
    source, configsync = facts.config.source, facts.config.configsync
    if source.exactly_once:
        yield "records and positions are committed in one transaction, so each record is copied exactly once"
    if source.read_committed:
        yield "records of aborted transactions are not copied"
    yield (
        f"Twinlog looks for new topics every {configsync.refresh_topics_interval_seconds:g} s"
        if configsync.refresh_topics_enabled
        else "Twinlog does not look for new topics"
    )
    if facts.positions.by_connector:
        yield "MirrorMaker 2's Connect group, config topic and status topic are not used"
    if facts.missing_topics:
        yield f"Twinlog creates its own topics: {', '.join(facts.missing_topics)}"
    if facts.positions.by_connector:
        yield f"MirrorMaker 2 can continue whenever Twinlog is stopped: it reads {facts.positions.topic}"
    else:
        yield "every position is Twinlog's own: nothing of MirrorMaker 2 was found to take over"
