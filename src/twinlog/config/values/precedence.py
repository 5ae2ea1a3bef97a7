"""Which property takes precedence: MirrorMakerConfig's rules, step by step. Pure; values are passed on
unchanged.

`raw` is the file. "put" overwrites, "put if absent" does not. A prefix is only removed from longer names.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from twinlog.config.keys.client import CLUSTER_CLIENT_KEYS, SECURITY_KEYS
from twinlog.config.keys.spec import java_boolean
from twinlog.config.keys.table import INHERITED_BY_FLOWS
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property

Settings = Mapping[str, Property]

_CLIENTS = ("producer", "consumer", "admin")
TRANSFORM_PREFIXES = "transforms", "predicates"
_BYTE_ARRAY_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
_WORKER_PREFIXES_AT_TOP = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
    "replication.policy",
)


class Connector(StrEnum):
    """MM2's connectors; the value is the simple class name, which is also the connector's default name."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"


class ClusterSide(StrEnum):
    SOURCE = "source"
    TARGET = "target"


def default(key: str, value: str) -> Property:
    """A property that is not in any file."""
    return Property(key=key, value=value)


def with_prefix(properties: Settings, prefix: str) -> dict[str, Property]:
    return {k: v for k, v in properties.items() if k.startswith(prefix)}


def strip_prefix(properties: Settings, prefix: str) -> dict[str, Property]:
    """A name that equals the prefix is left out."""
    return {k[len(prefix) :]: v for k, v in properties.items() if k.startswith(prefix) and k != prefix}


def herder_flows(raw: Mapping[str, str], clusters: Iterable[ClusterAlias]) -> tuple[Flow, ...]:
    """The running flows: the enabled ones, and by default every other pair for its heartbeats.

    `raw` contains resolved values; booleans are parsed with `Boolean.parseBoolean`. In the order of
    `clusters`.
    """
    aliases = tuple(clusters)
    everywhere = java_boolean(raw.get("emit.heartbeats.enabled", "true"))

    def runs(flow: Flow) -> bool:
        own = raw.get(f"{flow}.emit.heartbeats.enabled")
        heartbeats = everywhere if own is None else java_boolean(own)
        return heartbeats or java_boolean(raw.get(f"{flow}.enabled", "false"))

    pairs = (Flow(source, target) for source in aliases for target in aliases if source != target)
    return tuple(flow for flow in pairs if runs(flow))


_STORAGE_TOPICS = (
    *("offset.storage.topic", "config.storage.topic", "status.storage.topic"),
    "offsets.storage.topic",
)


def internal_topics(raw: Settings, aliases: Iterable[ClusterAlias]) -> frozenset[str]:
    """Topics in which any flow of the file keeps its state, under names or separators that the file sets at
    any level. References count as written."""
    named = {prop.value.strip() for key, prop in raw.items() if key.endswith(_STORAGE_TOPICS)}
    separators = {
        prop.value.strip() for key, prop in raw.items() if key.endswith("replication.policy.separator")
    }
    by_alias = {
        name
        for alias in aliases
        for separator in separators
        for name in (
            f"mm2-offset-syncs{separator}{alias}{separator}internal",
            f"{alias}{separator}checkpoints{separator}internal",
        )
    }
    return frozenset(named | by_alias)


def cluster_properties(raw: Settings, alias: ClusterAlias) -> dict[str, Property]:
    """MM2's clusterProps: `A.<k>`, then the cluster's client keys for each client, then those of the top
    level."""
    properties = strip_prefix(raw, f"{alias}.")
    for key in CLUSTER_CLIENT_KEYS:
        if key in properties:
            for client in _CLIENTS:
                properties.setdefault(f"{client}.{key}", properties[key])
    for key in CLUSTER_CLIENT_KEYS:
        if key in raw:
            for client in _CLIENTS:
                properties.setdefault(f"{client}.{key}", raw[key])
            properties.setdefault(key, raw[key])
    return properties


def connector_properties(raw: Settings, flow: Flow, connector: Connector) -> dict[str, Property]:
    """MM2's connectorBaseConfig. References stay as written until they are used.

    MM2 takes `transforms` at the top level and drops `transforms.<name>.type` there, so that every flow
    fails; here they hold for each flow."""
    inherited = INHERITED_BY_FLOWS | SECURITY_KEYS | {"config.providers"}
    properties = {k: v for k, v in raw.items() if k in inherited}
    properties |= with_prefix(raw, "config.providers")
    for prefix in ("replication.policy", *TRANSFORM_PREFIXES):
        properties |= with_prefix(raw, prefix)
    for side, alias in ((ClusterSide.SOURCE, flow.source), (ClusterSide.TARGET, flow.target)):
        for key, prop in cluster_properties(raw, alias).items():
            of_client = key.startswith(_CLIENTS)
            properties[f"{side}.{key}" if of_client else f"{side}.cluster.{key}"] = prop
    for key, value in (
        ("name", str(connector)),
        ("connector.class", f"org.apache.kafka.connect.mirror.{connector}"),
        ("source.cluster.alias", flow.source),
        ("target.cluster.alias", flow.target),
    ):
        properties.setdefault(key, default(key, value))
    properties |= strip_prefix(raw, f"{flow}.")
    properties.setdefault("enabled", default("enabled", "false"))
    return properties


def connector_name(raw: Settings, flow: Flow, connector: Connector) -> str:
    """The name under which a connector stores its progress. MM2's dedicated mode takes the class's, whatever
    `name` says at the top level; that of a flow names the connector of a Connect cluster."""
    named = raw.get(f"{flow}.name")
    return (named is not None and named.value.strip()) or str(connector)


def worker_properties(
    raw: Settings, flow: Flow, resolve: Callable[[Property], Property]
) -> dict[str, Property]:
    """MM2's workerConfig: the Connect worker of a flow, which connects to the target."""
    properties = cluster_properties(raw, flow.target)
    for prefix in _WORKER_PREFIXES_AT_TOP:
        properties |= with_prefix(raw, prefix)
    properties = {key: resolve(prop) for key, prop in properties.items()}
    properties |= with_prefix(raw, "config.providers")
    for key, value in (
        ("client.id", str(flow)),
        ("group.id", f"{flow.source}-mm2"),
        ("offset.storage.topic", f"mm2-offsets.{flow.source}.internal"),
        ("status.storage.topic", f"mm2-status.{flow.source}.internal"),
        ("config.storage.topic", f"mm2-configs.{flow.source}.internal"),
        ("key.converter", _BYTE_ARRAY_CONVERTER),
        ("value.converter", _BYTE_ARRAY_CONVERTER),
        ("header.converter", _BYTE_ARRAY_CONVERTER),
    ):
        properties.setdefault(key, default(key, value))
    return properties


def consumer_properties(connector: Settings, side: ClusterSide) -> dict[str, Property]:
    """A consumer that a connector creates on one side of its flow."""
    properties = _client_properties(connector, side, "consumer")
    properties["enable.auto.commit"] = default("enable.auto.commit", "false")
    properties.setdefault("auto.offset.reset", default("auto.offset.reset", "earliest"))
    return properties


def producer_properties(connector: Settings, side: ClusterSide) -> dict[str, Property]:
    """A producer that a connector creates itself, only for offset syncs. Records use
    `data_producer_properties`."""
    return _client_properties(connector, side, "producer")


def admin_properties(connector: Settings, side: ClusterSide) -> dict[str, Property]:
    return _client_properties(connector, side, "admin")


def _client_properties(connector: Settings, side: ClusterSide, client: str) -> dict[str, Property]:
    of_cluster = strip_prefix(connector, f"{side}.cluster.")
    properties = {k: v for k, v in of_cluster.items() if k in CLUSTER_CLIENT_KEYS}
    properties |= strip_prefix(connector, f"{client}.")
    properties |= strip_prefix(connector, f"{side}.{client}.")
    return properties


def data_producer_properties(worker: Settings, connector: Settings) -> dict[str, Property]:
    """The producer of replicated records, heartbeats and checkpoints, without Connect's own defaults.

    `A->B.producer.<k>` does not reach it: `B.producer.<k>` and `A->B.producer.override.<k>` do.
    """
    properties = {k: v for k, v in worker.items() if k == "bootstrap.servers"}
    properties |= strip_prefix(worker, "producer.")
    properties |= strip_prefix(connector, "producer.override.")
    return properties


def mirror_client_properties(raw: Settings, alias: ClusterAlias, client: str) -> dict[str, Property]:
    """What MM2's MirrorClient passes to its `client` (admin, consumer or producer): client keys only."""
    properties = {**raw, **cluster_properties(raw, alias)}
    merged = {**properties, **strip_prefix(properties, f"{client}.")}
    return {k: v for k, v in merged.items() if k in CLUSTER_CLIENT_KEYS}


def client_id(
    flow: Flow,
    connector_name: str,
    role: str | None,
    *,
    user: str | None = None,
    task_index: int | None = None,
) -> str:
    """MM2's client.id: `[user client.id|]A->B|connector[-task][|role]`."""
    entity = connector_name if task_index is None else f"{connector_name}-{task_index}"
    parts = (user, str(flow), entity, role)
    return "|".join(part for part in parts if part)
