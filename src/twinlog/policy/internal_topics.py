"""Names and clusters of the internal topics of MM2, Connect and Twinlog."""

import re
from dataclasses import dataclass
from typing import Final

from twinlog.config.flow.settings import OffsetSyncsLocation
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.replication import ReplicationPolicy
from twinlog.wire.formatters import RecordKind

# Names on a flow's target other than topics: groups of owners, transactional ids. Rights are granted and
# checked by these names.


def owners_group(service: str, target: ClusterAlias) -> str:
    """The group of the service's processes on a target, which own the flows to it. Needs the right to READ
    it.

    >>> owners_group("source", "B")
    'twinlog-source.B'
    """
    return f"twinlog-{service}.{target}"


def election_group(service: str, flow: Flow) -> str:
    """The group on the flow's target whose leader owns the flow, in releases before `owners_group`."""
    return f"twinlog-{service}-{flow.source}-{flow.target}"


def transactional_id_prefix(flow: Flow) -> str:
    """The prefix of the transactional ids of the flow's tasks on its target."""
    return f"twinlog-{flow.source}-{flow.target}-"


_SOURCE_OFFSETS: Final = re.compile(r"mm2-offsets\.(.+)\.internal")
_INTERNAL_SUFFIX: Final = ".internal"
_MIRROR_PREFIXES: Final = (
    *("mm2-offset-syncs", "mm2-offsets", "mm2-configs", "mm2-status"),
    *("mm2-configsync", "mm2-failover", "mm2-sync-history"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTopic:
    """A topic and the cluster it lives on."""

    cluster: ClusterAlias
    topic: str


def offset_syncs_topic(
    policy: ReplicationPolicy, flow: Flow, location: OffsetSyncsLocation = OffsetSyncsLocation.SOURCE
) -> HostedTopic:
    """Return the flow's offset syncs topic. Its name holds the alias of the other cluster."""
    if location is OffsetSyncsLocation.SOURCE:
        return HostedTopic(cluster=flow.source, topic=policy.offset_syncs_topic(flow.target))
    return HostedTopic(cluster=flow.target, topic=policy.offset_syncs_topic(flow.source))


def source_offsets_topic(source: ClusterAlias) -> str:
    """Topic on the target with the positions of flows from `source`. Connect's names ignore the separator."""
    return f"mm2-offsets.{source}.internal"


def source_of_offsets(topic: str) -> ClusterAlias | None:
    """The source whose positions a topic of this name has; None for every other name."""
    found = _SOURCE_OFFSETS.fullmatch(topic)
    return None if found is None else found[1]


def configsync_topic(source: ClusterAlias) -> str:
    """Topic on the target with the rules, topic registry and last plan of flows from `source`."""
    return f"mm2-configsync.{source}.internal"


def failover_topic(source: ClusterAlias) -> str:
    """Topic on the target with the record of moves of groups from `source` and back."""
    return f"mm2-failover.{source}.internal"


def sync_history_topic(source: ClusterAlias) -> str:
    """Topic on the target with the condensed offset syncs of flows from `source`."""
    return f"mm2-sync-history.{source}.internal"


def is_mirror_topic(policy: ReplicationPolicy, topic: str) -> bool:
    """Whether MM2, its Connect workers or Twinlog keep a topic of this name, for any flow.

    Narrower than the policy's `is_internal_topic` (a copy from a cluster called `mm2x` is no such topic), and
    wider with an internal separator: Connect's and Twinlog's names ignore it.
    """
    if policy.is_checkpoints_topic(topic):
        return True
    own = policy.is_mm2_internal_topic(topic) or topic.endswith(_INTERNAL_SUFFIX)
    return own and topic.startswith(_MIRROR_PREFIXES)


def record_kind(policy: ReplicationPolicy, topic: str) -> RecordKind | None:
    """Return the binary format of an internal topic by its name, None for other topics."""
    if policy.is_heartbeats_topic(topic):
        return RecordKind.HEARTBEAT
    if policy.is_checkpoints_topic(topic):
        return RecordKind.CHECKPOINT
    if policy.is_mm2_internal_topic(topic) and topic.startswith("mm2-offset-syncs"):
        return RecordKind.OFFSET_SYNC
    return None
