"""Whether the copy of a deleted source topic is deleted: only on request, after a grace period, and a few at
a time. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_configsync.model.actions import WHAT_DELETION, DeleteTopic, Skip, number_text
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.observation import Observation, is_absent

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRules:
    enabled: bool
    grace_seconds: float
    """How long the source topic must have been missing."""
    max_per_hour: int


def plan_deletes(
    observation: Observation,
    entries: Mapping[str, ReplicatedTopic],
    rules: DeleteRules,
    *,
    deleted_at_ms: Collection[int],
    now_ms: int,
    hold: Hold | None = None,
) -> list[DeleteTopic | Skip]:
    """The deletions that are due, oldest first; those that are not due yet are left out with the reason.

    `hold` tells why nothing may be deleted now; `deleted_at_ms` is when Twinlog recently deleted copies, or
    was about to. A topic is only deleted if it has the id in the registry, and while the source itself
    reports that its topic does not exist.
    """
    if not rules.enabled:
        return []
    budget = rules.max_per_hour - sum(now_ms - at_ms < HOUR_MS for at_ms in deleted_at_ms)
    gone = sorted(
        (entry.deleted_at_ms, name, entry)
        for name, entry in entries.items()
        if entry.state is TopicState.DELETED_AT_SOURCE and entry.deleted_at_ms is not None and entry.selected
    )
    planned: list[DeleteTopic | Skip] = []
    for since_ms, name, entry in gone:
        pair = observation.pairs.get(name)
        if pair is None or not is_absent(pair.source) or isinstance(pair.target, KafkaError):
            continue
        if entry.kept:
            planned.append(_left(entry, f"{entry.kept}: {entry.message}; its copy is kept"))
        elif hold is not None:
            planned.append(_left(entry, f"{hold.reason}: {hold.message}"))
        elif not pair.target.topic_id:
            planned.append(_left(entry, "the target has no topic ids, by which a copy is known (Kafka 2.8)"))
        elif pair.target.topic_id != entry.target_topic_id:
            planned.append(_left(entry, "the target topic is another one than the registry knows"))
        elif now_ms - since_ms < rules.grace_seconds * 1000:
            planned.append(
                _left(entry, f"deleted on the source, kept for {number_text(rules.grace_seconds)} s")
            )
        elif budget <= 0:
            planned.append(_left(entry, f"{rules.max_per_hour} topics were deleted within the last hour"))
        else:
            budget -= 1
            planned.append(
                DeleteTopic(
                    source_topic=name,
                    target_topic=pair.target_topic,
                    target_topic_id=entry.target_topic_id,
                    rule="deleted on the source (twinlog.sync.topic.deletes.enabled)",
                )
            )
    return planned


def _left(entry: ReplicatedTopic, rule: str) -> Skip:
    return Skip(
        source_topic=entry.source_topic, target_topic=entry.target_topic, what=WHAT_DELETION, rule=rule
    )
