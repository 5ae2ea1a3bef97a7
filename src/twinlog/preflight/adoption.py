"""Decides whether Twinlog may take a flow over from MirrorMaker 2, and where each partition continues. Pure.

MirrorMaker 2 must not run: two processes that copy write every record twice. It counts as running when its
Connect group has members, or when topics that only it writes (heartbeats, positions) grew between two looks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.config import AutoOffsetReset, FlowConfig, OffsetsMode
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry
from twinlog.model import Flow, TopicPartition
from twinlog.policy.expected_offsets import (
    FILLER_BYTES_PER_OFFSET,
    MOST_AT_LEADER,
    MOST_MARKERS,
    ExpectedReason,
    OffsetsRule,
    UncopiedTopic,
    expected_offsets,
    fill_words,
    offsets_rule,
)
from twinlog.preflight.facts import CheckedFlow, Finding, TopicFacts, error, fine, warning


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


class StartsAt(StrEnum):
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
    start: StartsAt
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
        count = f"{members} {'member' if members == 1 else 'members'}"
        yield (
            f"MirrorMaker 2 runs: its group {facts.connect_group} has {count} on"
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
        topic, source, target = facts.positions.topic, facts.flow.source, facts.flow.target
        why = (
            f"MirrorMaker 2 has stored no position of {source} in {topic}: let it run for longer than its"
            " offset.flush.interval.ms (60 s), then stop it"
            if facts.positions.exists
            else f"{target} has no topic {topic}"
        )
        yield (
            f"there are copies on {target}; all would be copied again: {why}; if a Connect cluster ran the"
            f" connectors, write its offset.storage.topic as {facts.flow}.offsets.storage.topic"
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
            start=StartsAt.UNREADABLE,
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
        start=StartsAt.STORED,
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
            partition=partition, target_topic=target, start=StartsAt.GROUP_OR_TIME, position=None, lag=None
        )
    begins = {
        AutoOffsetReset.EARLIEST: (StartsAt.EARLIEST, log.start),
        AutoOffsetReset.LATEST: (StartsAt.LATEST, log.end),
    }
    start, position = begins.get(settings.auto_offset_reset, (StartsAt.NONE, None))
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


# Checks the offsets of new copies, and the cost of filling the offsets before them. Pure.
#
# Covers topics that are not on the target yet, or that another program created there. For all others this
# was decided when their copy began.

_KEY = "twinlog.offsets"


def check_offsets(flow: CheckedFlow, flows: Sequence[CheckedFlow] = ()) -> Iterator[Finding]:
    """Lines for the flow, and one for each new topic that cannot have its source's offsets, although it must
    or a key would allow it, or whose target topic already holds records. `flows` are all of the file: what
    one of them reads is never said to be deleted."""
    rule, about = offsets_rule(flow.config), str(flow.flow)
    new = [
        UncopiedTopic(
            name=topic.name, cleanup_policy=_cleanup_policy(topic.source_configs), log_starts=topic.log_starts
        )
        for topic in flow.topics
        if topic.unread is None
        and (isinstance(topic.target, KafkaError) or topic.target_ends is not None)
        and not _is_written(topic)
        and not topic.held
    ]
    yield from _written_targets(flow, rule, flows)
    found = expected_offsets(new, rule, exactly_once=flow.config.source.exactly_once)
    candidates = {
        name: each for name, each in found.items() if each.reason != ExpectedReason.OFFSETS_CONFIGURED
    }
    if not candidates:
        return
    if not flow.config.source.exactly_once:
        what = "copies have offsets of their own: exactly.once.source.support is disabled"
        if any(each.must for each in candidates.values()):
            yield error(about, _KEY, what, "remove exactly.once.source.support=disabled")
        else:
            yield fine(about, _KEY, what)
        return
    for name, each in candidates.items():
        if each.preserved or (each.reason == ExpectedReason.COMPACTED and not each.must):
            continue
        make = error if each.must else warning
        remedy = f"raise {each.key} before it is copied for the first time"
        if each.reason == ExpectedReason.COMPACTED:
            remedy = "name it in twinlog.offsets.translated.topics"
        yield make(about, _KEY, f"{name}: its copy has offsets of its own: {each.message}", remedy)
    preserved = [each for each in candidates.values() if each.preserved]
    compacted = sum(each.reason == ExpectedReason.COMPACTED and not each.must for each in candidates.values())
    if preserved:
        cost = _cost(len(preserved), sum(each.filled_offsets for each in preserved))
        yield fine(about, _KEY, cost + _holes(flow))
    if compacted:
        copies = f"{compacted} new compacted {'topic' if compacted == 1 else 'topics'}"
        yield fine(about, _KEY, f"{copies} will have offsets of their own")


def _is_written(topic: TopicFacts) -> bool:
    """Whether its target topic holds or held records before the flow has copied anything."""
    return any(topic.target_ends or ())


def _written_targets(flow: CheckedFlow, rule: OffsetsRule, flows: Sequence[CheckedFlow]) -> Iterator[Finding]:
    source, target, settings = flow.flow.source, flow.flow.target, flow.config.source
    if settings.start_group or settings.start_time_ms is not None:
        return  # Another replicator copied what is there.
    for topic in flow.topics:
        keeps = settings.exactly_once and rule.wanted(topic.name) is not OffsetsMode.TRANSLATED
        if not topic.held and not (keeps and _is_written(topic)):
            continue
        copy = topic.target_name
        readers = [
            each.flow for each in flows if each.flow.source == target and each.selector.decide(copy).selected
        ]
        remedy = (
            f"keep {copy} on {target}: {' and '.join(map(str, readers))} copies it; if offsets of its own are"
            f" wanted, name {topic.name} in twinlog.offsets.translated.topics"
            if readers
            else "give the copy another name (twinlog.topic.rename), or, only if nobody needs the records of"
            f" {copy} on {target}, delete it before its copy begins; later `twinlog foreign` shows them"
        )
        has = "has held records"
        if topic.held:
            places = ", ".join(str(number) for number in sorted(topic.held))
            word = "partition" if len(topic.held) == 1 else "partitions"
            has = (
                f"holds {sum(topic.held.values()):,} records already in {word} {places}, of which no position"
                " is stored"
            )
        both_ways = copy == topic.name and any(each.target == source for each in readers)
        compares = (keeps or both_ways) and not _is_compacted(topic)
        unless = "unless these are the source's at the same offsets, " if compares else ""
        yield warning(
            str(flow.flow),
            _KEY,
            f"{topic.name}: its target topic {copy} on {target} {has}: {unless}its copy has offsets of its"
            " own and is appended to them",
            remedy,
        )


def _holes(flow: CheckedFlow) -> str:
    """The longest gap that consumers do not see, as text."""
    if isinstance(flow.target_operations, KafkaError):
        return ""
    if "ALTER" in flow.target_operations:
        return f"; holes of up to {MOST_AT_LEADER} offsets are filled by markers at the leaders"
    return (
        f"; holes of up to {MOST_MARKERS} offsets are filled by transactions, and of up to {MOST_AT_LEADER}"
        f" by markers at the leaders where {flow.target_principal} has ALTER on the cluster"
        f" {flow.flow.target}"
    )


def fills_offsets(flow: CheckedFlow) -> bool:
    """Whether new copies shall have their source's offsets and do not begin at offset 0."""
    rule = offsets_rule(flow.config)
    return flow.config.source.exactly_once and any(
        any(topic.log_starts) and rule.wanted(topic.name) is not OffsetsMode.TRANSLATED
        for topic in flow.topics
    )


def _is_compacted(topic: TopicFacts) -> bool:
    """Whether either side is, as far as it is known: then its offsets are never compared."""
    return any("compact" in _cleanup_policy(each) for each in (topic.source_configs, topic.target_configs))


def _cleanup_policy(configs: Sequence[ConfigEntry] | KafkaError) -> str:
    known = () if isinstance(configs, KafkaError) else configs
    return next((entry.value or "" for entry in known if entry.name == "cleanup.policy"), "")


def _cost(topics: int, filled: int) -> str:
    copies = f"{topics} new {'topic' if topics == 1 else 'topics'} will have the source's offsets"
    if not filled:
        return copies
    size = fill_words(filled * FILLER_BYTES_PER_OFFSET)
    return (
        f"{copies}; filling {filled} offsets before the first records takes {size} on each replica of the"
        " target until Kafka deletes them"
    )
