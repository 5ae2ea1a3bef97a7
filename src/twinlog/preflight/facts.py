"""What was seen of the clusters. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.config import Address, FlowConfig, Notice
from twinlog.errors import KafkaError
from twinlog.kafka.ports import ConfigEntry, TopicDescription
from twinlog.model import ClusterAlias, Flow
from twinlog.selection import TopicSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    alias: ClusterAlias
    unreachable: KafkaError | None = None
    """Why nothing else is known."""
    cluster_id: str = ""
    release: str = ""
    broker_count: int = 0
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Of one broker; empty when they may not be read."""
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
    source_operations: frozenset[str] | KafkaError = frozenset()
    target_operations: frozenset[str] | KafkaError = frozenset()
    """Of a target topic that exists."""
    creation: KafkaError | None = None
    """Why the target topic, which does not exist, could not be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic of the mirror's own."""

    cluster: ClusterAlias
    name: str
    operations: frozenset[str] | KafkaError
    """TOPIC_UNKNOWN while it does not exist."""
    creation: KafkaError | None = None
    """Why it, which does not exist, could not be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    config: FlowConfig
    selector: TopicSelector
    topics: Sequence[TopicFacts] = ()
    internal: Sequence[InternalTopic] = ()
    source_operations: frozenset[str] | KafkaError = frozenset()
    """On the source cluster itself."""
    target_operations: frozenset[str] | KafkaError = frozenset()
    source_principal: str = ""
    """As far as the properties tell it; empty otherwise."""
    target_principal: str = ""

    @property
    def flow(self) -> Flow:
        return self.config.flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    clusters: Mapping[ClusterAlias, ClusterFacts]
    flows: Sequence[FlowFacts]
    """Enabled flows; those with an unreachable end have no topics."""
    listens: Mapping[str, Address] = field(default_factory=dict)
    """Where the services will listen, by name."""
    file: str = ""
    notices: Sequence[Notice] = ()
    """What was said of the file when it was read: the same that `twinlog run` says."""
