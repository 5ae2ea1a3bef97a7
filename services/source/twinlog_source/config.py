"""The part of the configuration that the source service uses, by flow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from twinlog.config import Configuration, FlowClients, SourceSettings
from twinlog.filters import PatternList
from twinlog.loops import whole_file
from twinlog.model import Flow
from twinlog.policy import HostedTopic, ReplicationPolicy, offset_syncs_topic, policy_from_config
from twinlog.policy.expected_offsets import OffsetsRule, offsets_rule
from twinlog.policy.transformed import changes_records
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector
from twinlog.service.owner.name import selection_fingerprint
from twinlog.transforms.expressions import Expressions, expressions_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """Another flow that keeps names. What it writes, a flow may find on its source."""

    flow: Flow
    selector: TopicSelector
    """The selection of the file."""
    positions_topic: str

    def copy_of(self, topic: str) -> str | None:
        """The name of its copy of a topic by the file; None = it copies no such topic."""
        if not self.selector.selects(topic):
            return None
        return self.selector.policy.format_remote_topic(self.flow.source, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFlow:
    """One flow that is copied."""

    flow: Flow
    settings: SourceSettings
    clients: FlowClients
    policy: ReplicationPolicy
    selector: TopicSelector
    """The selection of the file. configsync's takes precedence once it is known, and the rules that it has
    stored while it is down."""
    offset_syncs: HostedTopic | None
    """None = no offset syncs are written."""
    offsets: OffsetsRule
    """Which copies keep the source's offsets."""
    weight: Callable[[str], float] | None = None
    """Of a source topic, when a limit is divided; None = all weigh the same."""
    transforms: Mapping[str, str] = field(default_factory=dict)
    """What a task needs to transform records: the settings of transforms and names; empty = it copies them
    unchanged."""
    partners: tuple[Partner, ...] = ()
    """The other flows of the file into this source or this target, where all of them keep names."""
    expressions: Expressions | None = None
    """What Spark does to records; None = nothing."""
    rules: str = ""
    """A fingerprint of the file's selection. It tells two deployments apart that would both own the flow."""

    def task_clients(self, slot: int) -> Mapping[str, Mapping[str, str]]:
        """The Java client properties of a slot's clients, by role. They contain secrets."""
        clients, name = self.clients, self.settings.connector_name
        roles = {
            "source_consumer": (clients.source_consumer, "replication-consumer"),
            "data_producer": (clients.data_producer, "replication-producer"),
            "target_consumer": (clients.target_consumer, "positions-consumer"),
            "source_producer": (clients.source_producer, "offset-syncs-source-producer"),
            "target_producer": (clients.target_producer, "offset-syncs-target-producer"),
        }
        return {
            role: client.for_role(self.flow, name, suffix, task_index=slot).properties
            for role, (client, suffix) in roles.items()
        }


def source_flows(configuration: Configuration) -> tuple[SourceFlow, ...]:
    """The flows that replicate. Raises ConfigError for a pattern that does not compile."""
    flows, keeping = [], partners(configuration)
    for entry in configuration.enabled_flows:
        policy = policy_from_config(entry.policy_config)
        syncs = entry.source.offset_syncs
        flows.append(
            SourceFlow(
                flow=entry.flow,
                settings=entry.source,
                clients=entry.clients,
                policy=policy,
                selector=topic_selector(entry),
                offset_syncs=offset_syncs_topic(policy, entry.flow, syncs.location)
                if syncs.enabled
                else None,
                rules=selection_fingerprint(entry),
                transforms=entry.policy_config if changes_records(entry.policy_config) else {},
                expressions=expressions_of(entry.policy_config),
                offsets=offsets_rule(entry),
                weight=_weight(entry.source.weights),
                partners=tuple(
                    each
                    for each in keeping
                    if each.flow.target in (entry.flow.source, entry.flow.target) and each.flow != entry.flow
                )
                if not policy.tracks_topic_sources
                else (),
            )
        )
    return tuple(flows)


def _weight(weights: Sequence[tuple[str, float]]) -> Callable[[str], float] | None:
    patterns = [(PatternList("twinlog.weight", (pattern,)), weight) for pattern, weight in weights]

    @cache
    def of(topic: str) -> float:
        return next((weight for pattern, weight in patterns if pattern.matches(topic)), 1.0)

    return of if patterns else None


def partners(configuration: Configuration) -> tuple[Partner, ...]:
    """All flows of the file that keep names."""
    return tuple(
        Partner(
            flow=entry.flow,
            selector=topic_selector(entry),
            positions_topic=entry.source.offset_storage.topic,
        )
        for entry in whole_file(configuration).enabled_flows
        if not policy_from_config(entry.policy_config).tracks_topic_sources
    )
