"""The registry's state machine: what was known + what was observed + what was tried → what is known now.
Pure.

Invariants

A. `generation` never falls; it increases by one exactly when a source topic returns with another topic id.

B. `target_partition_count` is what the target confirmed, so the copy never uses a partition that does not
exist.

C. A topic that is only not visible now (time-out, no rights) keeps what is known of it. Only the source's
answer that the topic does not exist makes it DELETED_AT_SOURCE.

D. A topic that no rule selects any more, or that is gone from both sides, stays with `selected=False` because
of its generation; the latter, which alone has `deleted_at_ms` then, for FORGET_AFTER_MS. New topics begin
above the generations that were forgotten, so A holds for names that return.

E. When the source as a whole is lost, every known topic that is not seen on it is kept: its copy is never
deleted, until the topic is back. That also holds for one that cannot be read at that moment, or that no rule
selects then.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from twinlog.batches import largest_batch_bytes
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry, TopicDescription
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicLimits, TopicState
from twinlog_configsync.model.actions import Skip
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.observation import Configs, Observation, TopicPair, is_absent
from twinlog_configsync.model.reasons import SyncReason

FORGET_AFTER_MS = 30 * 24 * 3_600_000
"""Otherwise systems that create topics by the hour would fill the registry, and every pass, with old
names."""

Entries = Mapping[str, ReplicatedTopic]
Blocker = KafkaError | Skip
"""Why an action was not carried out: the target refused it, or the plan left it out."""


def fold(
    previous: Entries,
    observation: Observation,
    blockers: Mapping[str, Blocker],
    *,
    created_after_start: Callable[[str], bool],
    now_ms: int,
    loss: Hold | None = None,
    forgotten_generation: int = 0,
) -> dict[str, ReplicatedTopic]:
    """The entries after one refresh, by source topic, without those that are to be forgotten.

    `observation` was made after the actions; `blockers` are what blocked them, by source topic; `loss` tells
    whether the source as a whole was lost; `created_after_start` tells whether an unknown topic appeared
    after the flow's selection was complete; `forgotten_generation` is the highest forgotten generation.
    """
    entries: dict[str, ReplicatedTopic] = {}
    for name, known in previous.items():
        if name not in observation.pairs:
            entries[name] = replace(known, selected=False, deleted_at_ms=None, kept=_kept(known, loss))
    for name, pair in observation.pairs.items():
        entry = _fold_one(
            previous.get(name),
            pair,
            blockers.get(name),
            created_after_start=created_after_start(name),
            now_ms=now_ms,
            loss=loss,
            forgotten_generation=forgotten_generation,
        )
        if entry is not None and not _is_over(entry, pair, now_ms):
            entries[name] = entry
    return dict(sorted(entries.items()))


def _fold_one(
    known: ReplicatedTopic | None,
    pair: TopicPair,
    blocker: Blocker | None,
    *,
    created_after_start: bool,
    now_ms: int,
    loss: Hold | None,
    forgotten_generation: int,
) -> ReplicatedTopic | None:
    """None when the topic does not exist and was never seen.

    An entry without partitions is of a name that a rule has, and about which the source has told nothing so
    far. It is not DELETED_AT_SOURCE, because then a topic of the target's own that has this name could be
    deleted as its copy.
    """
    if is_absent(pair.source) and (known is None or not known.partition_count):
        return None
    entry = known or ReplicatedTopic(
        source_topic=pair.source_topic,
        target_topic=pair.target_topic,
        partition_count=0,
        generation=forgotten_generation + 1,
        created_after_start=created_after_start,
    )
    entry = replace(
        entry,
        target_topic=pair.target_topic,
        selected=not pair.stays_away(known),
        routed_from=pair.routed_from,
    )
    if not isinstance(pair.target, KafkaError):
        entry = _with_target(entry, pair.target, pair.target_configs)
    elif is_absent(pair.target):
        # Of a route it is kept: the topic was there, and is gone.
        topic_id = entry.target_topic_id if entry.routed_from else ""
        entry = replace(entry, target_partition_count=0, target_topic_id=topic_id, limits=TopicLimits())
    if isinstance(pair.source, KafkaError):
        if known is not None and is_absent(pair.source):
            # Only the topic that Twinlog created is its copy, not another one with its name.
            entry = replace(entry, target_topic_id=known.target_topic_id)
        return _without_source(entry, pair.source, now_ms=now_ms, loss=loss)
    entry = _with_source(entry, pair.source, pair.source_configs)
    return _with_state(entry, pair, blocker)


def _is_over(entry: ReplicatedTopic, pair: TopicPair, now_ms: int) -> bool:
    """Whether both sides have reported for a long time that it is gone, and the source as a whole was not
    lost."""
    is_gone = is_absent(pair.source) and is_absent(pair.target) and not entry.kept
    return is_gone and entry.deleted_at_ms is not None and now_ms - entry.deleted_at_ms >= FORGET_AFTER_MS


def _with_source(entry: ReplicatedTopic, source: TopicDescription, configs: Configs) -> ReplicatedTopic:
    recreated = (
        bool(entry.source_topic_id) and bool(source.topic_id) and entry.source_topic_id != source.topic_id
    )
    return replace(
        entry,
        partition_count=source.partition_count,
        source_topic_id=source.topic_id or entry.source_topic_id,
        generation=entry.generation + 1 if recreated else entry.generation,
        source_cleanup_policy=_value(configs, "cleanup.policy") or entry.source_cleanup_policy,
        deleted_at_ms=None,
        kept="",
    )


def _with_target(entry: ReplicatedTopic, target: TopicDescription, configs: Configs) -> ReplicatedTopic:
    limits = entry.limits
    if not isinstance(configs, KafkaError):
        limits = TopicLimits(
            max_message_bytes=largest_batch_bytes({entry.name: entry.value for entry in configs})
            or limits.max_message_bytes,
            compression_type=_value(configs, "compression.type") or limits.compression_type,
            timestamp_type=_value(configs, "message.timestamp.type") or limits.timestamp_type,
        )
    return replace(
        entry,
        target_partition_count=target.partition_count,
        target_topic_id=target.topic_id,
        limits=limits,
    )


def _without_source(
    entry: ReplicatedTopic, error: KafkaError, *, now_ms: int, loss: Hold | None
) -> ReplicatedTopic:
    if entry.partition_count:
        entry = replace(entry, kept=_kept(entry, loss))
    if is_absent(error):
        message = f"{entry.source_topic} is gone from the source"
        if loss is not None:
            message = f"{message}: {loss.message}"
        elif entry.kept and entry.state is TopicState.DELETED_AT_SOURCE:
            message = entry.message
        return replace(
            entry,
            selected=entry.target_partition_count > 0,
            state=TopicState.DELETED_AT_SOURCE,
            reason=entry.kept or SyncReason.DELETED_AT_SOURCE,
            message=message,
            deleted_at_ms=now_ms if entry.deleted_at_ms is None else entry.deleted_at_ms,
        )
    if error.retriable and entry.partition_count:
        return entry
    return replace(entry, state=TopicState.WAITING, reason=error.reason, message=str(error))


def _kept(entry: ReplicatedTopic, loss: Hold | None) -> str:
    return entry.kept or ("" if loss is None else str(loss.reason))


def _with_state(entry: ReplicatedTopic, pair: TopicPair, blocker: Blocker | None) -> ReplicatedTopic:
    if entry.target_partition_count:
        short = entry.target_partition_count < entry.partition_count
        reason, message = _words(blocker) if short or blocker is not None else ("", "")
        return replace(entry, state=TopicState.READY, reason=reason, message=message)
    reason, message = _words(blocker or (pair.target if isinstance(pair.target, KafkaError) else None))
    return replace(entry, state=TopicState.WAITING, reason=reason, message=message)


def _words(blocker: Blocker | None) -> tuple[str, str]:
    match blocker:
        case Skip():
            return blocker.reason, blocker.rule
        case KafkaError() if not is_absent(blocker):
            return blocker.reason, str(blocker)
        case _:
            return SyncReason.TARGET_NOT_VISIBLE, "created, but the target's brokers do not show it yet"


def _value(configs: Configs, name: str) -> str | None:
    if isinstance(configs, KafkaError):
        return None
    return next((entry.value for entry in configs if _is(entry, name)), None)


def _is(entry: ConfigEntry, name: str) -> bool:
    return entry.name == name
