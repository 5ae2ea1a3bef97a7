"""What was seen of the clusters. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from twinlog.config import Address, FlowConfig, Notice
from twinlog.config.security import SecuritySettings
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry, TopicDescription
from twinlog.model import ClusterAlias, Flow
from twinlog.selection import TopicSelector

Operations: TypeAlias = frozenset[str] | KafkaError
"""What may be done with something, in Kafka's own words, or why that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    alias: ClusterAlias
    unreachable: KafkaError | None = None
    """Why nothing else is known."""
    cluster_id: str = ""
    release: str = ""
    broker_count: int = 0
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs of one broker; empty when they may not be read."""
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic of a source that the flow replicates."""

    name: str
    target_name: str
    source: TopicDescription | KafkaError
    source_configs: Sequence[ConfigEntry] | KafkaError = ()
    target: TopicDescription | KafkaError
    target_configs: Sequence[ConfigEntry] | KafkaError = ()
    source_operations: Operations = frozenset()
    target_operations: Operations = frozenset()
    """What the principal may do with the target topic, where that exists."""
    creation: KafkaError | None = None
    """Why the target topic, which does not exist, could not be created."""
    log_starts: Sequence[int] = ()
    """Where the source's logs start, by partition, of a topic whose copy has not begun."""
    target_ends: Sequence[int] | None = None
    """Where the target's logs end, of a target topic that exists before the flow has copied anything; None =
    it does not exist, its copy may have begun, or nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic of the mirror's own."""

    cluster: ClusterAlias
    name: str
    operations: Operations
    """TOPIC_UNKNOWN while it does not exist."""
    creation: KafkaError | None = None
    """Why it, which does not exist, could not be created."""
    purpose: str = ""
    """What it is needed for when the flow works without it; empty when it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRights:
    """What the principal may do with groups, by group; errors are the coordinators' answers."""

    elections: Mapping[str, Operations] = field(default_factory=dict)
    """On the target: the groups that elect the process which works."""
    on_source: Mapping[str, Operations] = field(default_factory=dict)
    """What the principal may do with the groups that the rules take, as far as it sees them and they were
    asked about."""
    on_target: Mapping[str, Operations] = field(default_factory=dict)
    """The same groups there, present or not."""
    sees_all: bool = True
    """Whether the source lists groups that the principal has no rights on too."""
    not_asked: int = 0
    """Groups that the rules take beyond those that were asked about."""
    unlisted: KafkaError | None = None
    """Why the source's groups are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    config: FlowConfig
    selector: TopicSelector
    topics: Sequence[TopicFacts] = ()
    internal: Sequence[InternalTopic] = ()
    source_operations: Operations = frozenset()
    """On the source cluster itself."""
    target_operations: Operations = frozenset()
    source_principal: str = ""
    """As far as the properties tell it; empty otherwise."""
    target_principal: str = ""
    other_principals: Mapping[str, str] = field(default_factory=dict)
    """Clients of the flow (`A consumer`) that log in as somebody else than the one that preflight asks as."""
    groups: GroupRights = field(default_factory=GroupRights)
    transactions: bool | KafkaError = True
    """Whether the flow's transactional ids may be written with; the error when that could not be asked."""

    @property
    def flow(self) -> Flow:
        return self.config.flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    clusters: Mapping[ClusterAlias, ClusterFacts]
    flows: Sequence[FlowFacts]
    """Enabled flows; those with an unreachable end have no topics."""
    listens: Mapping[str, Address] = field(default_factory=dict)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    """Where the services will listen, by name."""
    file: str = ""
    notices: Sequence[Notice] = ()
    """What was said of the file when it was read: the same that `twinlog run` says."""
