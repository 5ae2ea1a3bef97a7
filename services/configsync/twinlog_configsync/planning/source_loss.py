"""Whether topics that are missing on the source were deleted there, or the source itself was lost. Pure.

A source that was wiped or restored empty, or whose address leads to another cluster, lacks topics, ACLs and
quotas that nobody deleted. The copies on the target are then all that is left.
"""

from collections.abc import Callable, Mapping

from twinlog.errors import KafkaError
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog_configsync.model.hold import Hold
from twinlog_configsync.model.observation import Observation, TopicPair, is_absent
from twinlog_configsync.model.reasons import SyncReason


def source_loss(
    entries: Mapping[str, ReplicatedTopic],
    observation: Observation,
    *,
    known_cluster_id: str,
    is_heartbeats: Callable[[str], bool],
) -> Hold | None:
    """The loss that this observation of the source shows; None when there is none.

    The source is lost when topics are missing and none of the known ones is still the same topic (by its id).
    Heartbeats do not count, because Twinlog creates them on any cluster. `known_cluster_id` is the id at the
    last read; "" when it is not known.
    """
    cluster_id = observation.source_cluster_id
    if known_cluster_id and cluster_id and known_cluster_id != cluster_id:
        return Hold(
            reason=SyncReason.SOURCE_REPLACED,
            message=f"the source is another cluster now (id {cluster_id}, before {known_cluster_id})",
        )
    before = {
        name: entry
        for name, entry in entries.items()
        if entry.partition_count
        and not entry.kept
        and entry.state is not TopicState.DELETED_AT_SOURCE
        and name in observation.pairs
        and not is_heartbeats(name)
    }
    missing = [name for name in before if is_absent(observation.pairs[name].source)]
    if not missing or any(_survives(entry, observation.pairs[name]) for name, entry in before.items()):
        return None
    return Hold(
        reason=SyncReason.SOURCE_LOST,
        message=f"the source no longer has any of its {len(before)} topics",
    )


def kept_copies(entries: Mapping[str, ReplicatedTopic]) -> Hold | None:
    """Copies that are kept because of an earlier loss, until the topics are back on the source, or their
    copies are gone from the target."""
    kept = sorted((name, entry) for name, entry in entries.items() if entry.kept and entry.selected)
    if not kept:
        return None
    names = ", ".join(entry.target_topic for _, entry in kept[:_NAMED])
    more = f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else ""
    replaced = kept[0][1].kept == SyncReason.SOURCE_REPLACED
    return Hold(
        reason=SyncReason.SOURCE_REPLACED if replaced else SyncReason.SOURCE_LOST,
        message=f"the source was lost, and the topics of {names}{more} are not seen on it again: their copies"
        " are kept. Restore the topics on the source, or delete the copies",
    )


_NAMED = 5


def _survives(entry: ReplicatedTopic, pair: TopicPair) -> bool:
    if isinstance(pair.source, KafkaError):
        return False
    known, found = entry.source_topic_id, pair.source.topic_id
    return not known or not found or known == found
