"""Observed facts of the clusters, and what they say of loops. Values and decisions only.

A flow's internal topics. Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from twinlog.config import Address, FlowConfig, Notice
from twinlog.config.security import SecuritySettings
from twinlog.errors import ConfigError, KafkaError, StateError, TwinlogError, WireFormatError
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import ConfigEntry, TopicDescription
from twinlog.loops import ring_of, ring_text, same_places
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import (
    configsync_topic,
    failover_topic,
    offset_syncs_topic,
    source_of_offsets,
    source_offsets_topic,
    sync_history_topic,
)
from twinlog.policy.new_topics import BROKERS_FACTOR, BrokerRules
from twinlog.policy.replication import ReplicationPolicy
from twinlog.selection import TopicSelector
from twinlog.transforms.expressions import DEAD_LETTERS

# Findings of preflight.


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but not as expected."""
    ERROR = "error"
    """It does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    level: Severity
    about: str
    """A cluster's alias, a flow, or a flow and a topic."""
    check: str
    """The subject of the check, in a word or two."""
    message: str
    remedy: str = ""


def fine(about: str, check: str, message: str) -> Finding:
    return Finding(level=Severity.OK, about=about, check=check, message=message)


def warning(about: str, check: str, message: str, remedy: str = "") -> Finding:
    return Finding(level=Severity.WARNING, about=about, check=check, message=message, remedy=remedy)


def error(about: str, check: str, message: str, remedy: str = "") -> Finding:
    return Finding(level=Severity.ERROR, about=about, check=check, message=message, remedy=remedy)


Operations: TypeAlias = frozenset[str] | KafkaError
"""Permitted operations, in Kafka's names, or the error that hides them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    alias: ClusterAlias
    unreachable: KafkaError | ConfigError | None = None
    """The error, also of a file that cannot be read; of the rest only `outage` is known then."""
    cluster_id: str = ""
    release: str = ""
    broker_count: int = 0
    """Those that do not answer included."""
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs of one broker; empty without the right to read them."""
    topics: frozenset[str] = frozenset()
    outage: Outage = field(default=Outage())

    @property
    def rules(self) -> BrokerRules:
        is_since_3_8 = bool(self.release) and _release(self.release) >= (3, 8)
        return BrokerRules(configs=self.broker_configs, is_since_3_8=is_since_3_8)


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
    """The principal's operations on an existing target topic."""
    creation: KafkaError | None = None
    """The error that prevents creating a missing target topic."""
    log_starts: Sequence[int] = ()
    """First offsets of the source's logs by partition, for a topic whose copy has not begun."""
    unread: KafkaError | None = None
    """Why the logs of a topic whose copy may not have begun could not be read: no field below is known, nor
    `log_starts`."""
    keyless: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset of a record without a key at the begin of a compacted log of the source, for a
    topic whose copy has not begun."""
    target_ends: Sequence[int] | None = None
    """End offsets of a target topic that exists before the flow has copied anything; None = the topic does
    not exist, its copy may have begun, or this is not known."""
    held: Mapping[int, int] = field(default_factory=dict)
    """By partition, how many offsets the target's log has, where no copy has begun: nobody is known to have
    copied them."""
    is_preserved: bool = False
    """A copy of it has begun that has the source's offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """An internal topic of the flow."""

    cluster: ClusterAlias
    name: str
    operations: Operations
    """TOPIC_UNKNOWN while it does not exist."""
    creation: KafkaError | None = None
    """The error that prevents creating it while it is missing."""
    purpose: str = ""
    """Its purpose, for a topic without which the flow works; otherwise empty."""
    is_written: bool = True
    """Otherwise it belongs to a flow into the source, and is only read."""
    missing_settings: Mapping[str, str] = field(default_factory=dict)
    """Those by which it would be compacted soon, of a topic that is read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRights:
    """The principal's rights on groups, by group; errors are the coordinators' answers."""

    elections: Mapping[str, Operations] = field(default_factory=dict)
    """On the target: the groups that elect the owner."""
    on_source: Mapping[str, Operations] = field(default_factory=dict)
    """The principal's operations on the groups that the rules select, as far as it sees them and they were
    asked about."""
    on_target: Mapping[str, Operations] = field(default_factory=dict)
    """The same groups on the target, whether or not they exist."""
    sees_all: bool = True
    """Whether the source also lists groups on which the principal has no rights."""
    not_asked: int = 0
    """Selected groups beyond those asked about."""
    unlisted: KafkaError | None = None
    """The error that hides the source's groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFlow:
    config: FlowConfig
    """With the rules in force that were changed live."""
    selector: TopicSelector
    topics: Sequence[TopicFacts] = ()
    unseen: Mapping[str, KafkaError] = field(default_factory=dict)
    """Topics that the rules name literally and the source does not show, with its answer about each."""
    internal: Sequence[InternalTopic] = ()
    source_operations: Operations = frozenset()
    """Operations on the source cluster itself."""
    target_operations: Operations = frozenset()
    source_principal: str = ""
    """The principal as far as the properties show it; otherwise empty."""
    target_principal: str = ""
    other_principals: Mapping[str, str] = field(default_factory=dict)
    """Clients of the flow (`A consumer`) that log in as another principal than preflight's."""
    groups: GroupRights = field(default_factory=GroupRights)
    transactions: bool | KafkaError = True
    """Whether the flow may write with its transactional ids; the error when this could not be asked."""
    transform: TwinlogError | bool = False
    """True if Spark understands the flow's expressions, False if it was not asked, or what it says."""
    left_out: Sequence[str] = ()
    """Topics that the flow copies now, and that the rules no longer select."""
    rules: Sequence[str] = ()
    """Each rule that was changed live, and replaces the file's or is put aside, as a sentence."""
    rules_unknown: StateError | KafkaError | WireFormatError | None = None
    """Why the rules that were changed live are not known: the facts follow the file then. KafkaError: the
    target did not answer."""

    @property
    def flow(self) -> Flow:
        return self.config.flow


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    clusters: Mapping[ClusterAlias, ClusterFacts]
    """The ends of the enabled flows."""
    flows: Sequence[CheckedFlow]
    """Enabled flows. A flow with an unreachable end has no topics."""
    listens: Mapping[str, Address] = field(default_factory=dict)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    """The services' listeners by name."""
    file: str = ""
    aliases: Sequence[ClusterAlias] = ()
    """The clusters of the file, in its order."""
    notices: Sequence[Notice] = ()
    """Notices from reading the file, the same as `twinlog run` prints."""


"""A broker property."""
WARM_START: Final = "without it the checkpoint service starts more slowly"


class OwnTopic(NamedTuple):
    cluster: ClusterAlias
    """The cluster that holds it."""
    name: str
    factor_key: str
    factor: int
    """Its replicas, as `factor_key` says; -1 = as the brokers say."""
    purpose: str = ""
    """Its purpose, for a topic without which the flow works; otherwise empty."""
    is_read_whole: bool = False
    """A process reads all of it at its start, however large it is."""


def own_topics(config: FlowConfig, policy: ReplicationPolicy) -> list[OwnTopic]:
    """Every topic that the services create, read and write for a flow."""
    source, target = config.flow.source, config.flow.target
    storage = config.source.offset_storage
    of_positions = "offset.storage.replication.factor", storage.replication_factor
    topics = [
        OwnTopic(target, storage.topic, *of_positions, is_read_whole=True),
        OwnTopic(target, configsync_topic(source), *of_positions),
    ]
    if config.source.offset_syncs.enabled:
        syncs = offset_syncs_topic(policy, config.flow, config.source.offset_syncs.location)
        factor = config.source.offset_syncs.replication_factor
        topics.append(OwnTopic(syncs.cluster, syncs.topic, "offset-syncs.topic.replication.factor", factor))
    if dead_letters := config.policy_config.get(DEAD_LETTERS):
        purpose = "without it records that fail stop their partitions"
        topics.append(OwnTopic(target, dead_letters, BROKERS_FACTOR, -1, purpose))
    if config.checkpoint.enabled:
        of_groups = "checkpoints.topic.replication.factor", config.checkpoint.topic_replication_factor
        topics += [
            OwnTopic(target, policy.checkpoints_topic(source), *of_groups, is_read_whole=True),
            OwnTopic(target, failover_topic(source), *of_groups),
            OwnTopic(target, sync_history_topic(source), *of_groups, WARM_START),
        ]
    if config.heartbeat.enabled:
        of_beats = "heartbeats.topic.replication.factor", config.heartbeat.topic_replication_factor
        topics += [OwnTopic(cluster, policy.heartbeats_topic(), *of_beats) for cluster in (source, target)]
    return topics


# Finds records that would loop, flows that write into the same topic, and copies that cannot be created
# beside a topic of nearly the same name. Pure.


def check_loops(facts: Facts) -> Iterator[Finding]:
    """A name that returns to a cluster through flows that keep names; two sources with one target topic."""
    rings: dict[str, set[str]] = {}
    selectors = [flow.selector for flow in facts.flows]
    places = same_places(
        {alias: {found.cluster_id} for alias, found in facts.clusters.items() if found.cluster_id}
    )
    for name in sorted({topic.name for flow in facts.flows for topic in flow.topics}):
        ring = ring_of(selectors, name, places)
        if ring is not None:
            rings.setdefault(ring_text(ring), set()).add(name)
    for flows, topics in sorted(rings.items()):
        yield error(
            flows,
            "loops",
            f"{', '.join(sorted(topics))} would be copied in a loop, because these flows keep names",
            "use the default policy, or exclude the topics in one of the flows",
        )
    unread = any(found.unreachable is not None for found in facts.clusters.values())
    if facts.flows and not rings and not unread:
        yield fine("all flows", "loops", "no topic is copied in a loop")
    yield from _flows_back(facts)
    yield from _meshes(facts)
    yield from _old_formats(facts)
    yield from _collisions(facts.flows)
    yield from _alike(facts)


def copied_back(flows: Sequence[CheckedFlow]) -> Collection[tuple[Flow, str]]:
    """The topics of flows whose copies another flow copies back to them."""
    copies = {(flow.flow, topic.name, topic.target_name) for flow in flows for topic in flow.topics}
    return {
        (flow, name)
        for flow, name, target_name in copies
        if (Flow(flow.target, flow.source), target_name, name) in copies
    }


def _flows_back(facts: Facts) -> Iterator[Finding]:
    """Flows that have copied back, and that the file does not have, or not any more: nothing tells whether
    they come again, so they count for ever."""
    for flow in facts.flows:
        source, target = flow.flow.source, flow.flow.target
        topic, in_file = source_offsets_topic(target), {each.flow for each in facts.flows}
        if flow.selector.policy.tracks_topic_sources or Flow(target, source) in in_file:
            continue
        if topic in facts.clusters[source].topics:
            yield fine(
                str(flow.flow),
                "both ways",
                f"{topic} on {source} is of a flow that is not in the file: what it copied back counts as"
                " copied both ways, also while it is stopped. If it is gone for good, stop the source"
                f" service, delete {topic}, start, and set positions that wait (ORIGIN_UNKNOWN)",
            )


def _meshes(facts: Facts) -> Iterator[Finding]:
    """Flows of other files that seem to copy both to the source and to the target: of the topics that they
    copy under the same name, none knows what the other copies."""
    for flow in facts.flows:
        source, target = flow.flow.source, flow.flow.target
        if flow.selector.policy.tracks_topic_sources:
            continue
        here = {source, target, *(each.flow.source for each in facts.flows if each.flow.target == target)}
        there = [
            {source_of_offsets(name) for name in facts.clusters[alias].topics} for alias in (source, target)
        ]
        for alias in sorted(set.intersection(*there) - here - {None}, key=str):
            yield warning(
                str(flow.flow),
                "mesh",
                f"{alias}->{source} and {alias}->{target} of other files copy topics, too; those that all of"
                " them copy under the same name wait (ORIGIN_UNKNOWN)",
                f"put all flows to {target} into one file, or delete mm2-offsets.{alias}.internal on {target}"
                " if its flow is gone",
            )


def _old_formats(facts: Facts) -> Iterator[Finding]:
    """Topics whose brokers would store batches without producer ids: they refuse those with ids, as all
    copies are."""
    for flow in facts.flows:
        there = facts.clusters[flow.flow.target]
        of_brokers = there.broker_configs.get("log.message.format.version", "")
        written = there.broker_configs.get("inter.broker.protocol.version") or there.release
        for topic in flow.topics:
            entries = () if isinstance(topic.target_configs, KafkaError) else topic.target_configs
            own = {entry.name: entry.value for entry in entries}.get("message.format.version")
            stored = own or of_brokers
            if stored and _release(stored) < _FIRST_WITH_IDS and _release(written) < _FORMATS_IGNORED:
                yield error(
                    f"{flow.flow.target} {topic.target_name}",
                    "message format",
                    f"its format {stored} has no producer ids: brokers refuse all copies",
                    "set message.format.version to 0.11 or newer",
                )


_FIRST_WITH_IDS: Final = (0, 11)
_FORMATS_IGNORED: Final = (3, 0)
"""From this inter.broker.protocol.version on, brokers write the newest format (KIP-724)."""


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a release: `0.10.2-IV0` is (0, 10)."""
    return tuple(int(part) for part in version.partition("-")[0].split(".")[:2])


def _collisions(flows: Sequence[CheckedFlow]) -> Iterator[Finding]:
    writers: dict[tuple[ClusterAlias, str], list[str]] = {}
    for flow in flows:
        for topic in flow.topics:
            place = (flow.flow.target, topic.target_name)
            writers.setdefault(place, []).append(f"{topic.name} of {flow.flow.source}")
    for (target, name), origins in sorted(writers.items()):
        if len(origins) > 1:
            yield warning(
                f"{target} {name}",
                "name collision",
                f"{' and '.join(origins)} are copied to the same topic, so their offsets cannot be"
                " translated",
                "use the default policy, and aliases of which none begins another one, or exclude the topic"
                " in all flows but one",
            )


def _alike(facts: Facts) -> Iterator[Finding]:
    """Kafka creates no topic whose name differs from another one's in `.` and `_` only: their metrics would
    have one name."""
    names: dict[tuple[ClusterAlias, str], set[str]] = {}
    for flow in facts.flows:
        for topic in flow.topics:
            if isinstance(topic.target, KafkaError):
                place = (flow.flow.target, topic.target_name.replace(".", "_"))
                names.setdefault(place, set()).add(topic.target_name)
    new = {(target, name) for (target, _), several in names.items() for name in several}
    for target in {target for target, _ in new}:
        for name in facts.clusters[target].topics:
            if (place := (target, name.replace(".", "_"))) in names:
                names[place].add(name)
    for (target, _), several in sorted(names.items()):
        if len(several) > 1:
            copies = sorted(name for name in several if (target, name) in new)
            yield error(
                f"{target} {copies[0]}",
                "name collision",
                f"Kafka creates only one of {' and '.join(sorted(several))}: names that differ in '.' and '_'"
                " only collide",
                "give the copy another name by twinlog.topic.rename, or exclude its topic",
            )
