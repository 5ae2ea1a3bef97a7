"""The settings of Kafka clients."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from twinlog.config.keys.client import NOTES, is_secret
from twinlog.config.keys.spec import split_list
from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import ClusterSide, Settings, client_id
from twinlog.config.values.providers import Resolver, notes
from twinlog.config.values.reader import ConfigFindings
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property

_SERVER = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?(\[[0-9a-fA-F:%.]+\]|[0-9a-zA-Z\-%._]+):(\d{1,5})")
"""As in Java: an optional protocol, which is ignored, and a host with its port."""


def bootstrap_server(entry: str) -> str | None:
    """`host:port` of an entry of `bootstrap.servers`, without a protocol; None if it is not that.

    >>> bootstrap_server("SSL://kafka-a:9093"), bootstrap_server("kafka-a")
    ('kafka-a:9093', None)
    """
    match = _SERVER.fullmatch(entry)
    if match is None or not 0 < int(match.group(2)) < 65536:
        return None
    return f"{match.group(1)}:{match.group(2)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a client setting was written; it never contains the value."""

    key: str
    line: int
    """0 = a default."""
    reference: str | None = None
    """The `${provider:…}` text if the value came from a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of one Kafka client with Java's names, references resolved. Its repr shows no secret."""

    alias: ClusterAlias
    properties: Mapping[str, str] = field(repr=False)
    origins: Mapping[str, Origin] = field(default_factory=dict, repr=False)

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return split_list(self.properties.get("bootstrap.servers", ""))

    def redacted(self) -> dict[str, str]:
        """The settings without secrets: secrets are `***`, values from providers are their reference."""
        shown: dict[str, str] = {}
        for key, value in sorted(self.properties.items()):
            if key.startswith(NOTES):
                continue
            origin = self.origins.get(key)
            if is_secret(key):
                shown[key] = "***"
            else:
                shown[key] = value if origin is None or origin.reference is None else origin.reference
        return shown

    def for_role(
        self, flow: Flow, connector_name: str, role: str | None = None, *, task_index: int | None = None
    ) -> "ClientConfig":
        """The same client with MM2's client.id: `[user client.id|]A->B|connector[-task][|role]`."""
        identity = client_id(
            flow, connector_name, role, user=self.properties.get("client.id"), task_index=task_index
        )
        return replace(self, properties={**self.properties, "client.id": identity})

    def __repr__(self) -> str:
        return f"ClientConfig(alias={self.alias!r}, properties={self.redacted()!r})"

    @classmethod
    def of(cls, alias: ClusterAlias, properties: Mapping[str, Property]) -> "ClientConfig":
        """Create it from resolved properties; values are trimmed like Kafka's typed values."""
        return cls(
            alias=alias,
            properties={key: prop.value.strip() for key, prop in properties.items()},
            origins={
                key: Origin(key=prop.key, line=prop.line, reference=prop.written)
                for key, prop in properties.items()
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A single cluster, as MM2's MirrorClient sees it; the command line and preflight connect with this."""

    alias: ClusterAlias
    admin: ClientConfig
    consumer: ClientConfig
    producer: ClientConfig

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return self.admin.bootstrap_servers


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowClients:
    """The Kafka clients of a flow, each with the settings that MM2 would give it."""

    source_consumer: ClientConfig
    """Reads the records; always has an `isolation.level`."""
    source_admin: ClientConfig
    source_producer: ClientConfig
    """Writes offset syncs if they are stored on the source."""
    target_consumer: ClientConfig
    """Reads checkpoints, positions, and offset syncs if they are stored on the target."""
    target_admin: ClientConfig
    target_producer: ClientConfig
    """Writes offset syncs if they are stored on the target."""
    data_producer: ClientConfig
    """Writes replicated records, positions, checkpoints and heartbeats."""


# The settings of each Kafka client of a flow or a cluster: by MM2's precedence, resolved, checked, with
# Twinlog's defaults.


READ_COMMITTED = "read_committed"

_ADMIN_TIMEOUT = "admin.timeout.ms"

_CHOICES = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "isolation.level": (READ_COMMITTED, "read_uncommitted"),
}


class ClientBuilder:
    def __init__(self, resolver: Resolver, findings: ConfigFindings) -> None:
        self._resolver = resolver
        self._findings = findings

    def of_flow(self, flow: Flow, *, connector: Settings, worker: Settings) -> FlowClients:
        source_consumer = precedence.consumer_properties(connector, ClusterSide.SOURCE)
        timeout = connector.get(_ADMIN_TIMEOUT)
        admin_timeout = {} if timeout is None else {"default.api.timeout.ms": timeout}
        isolation = precedence.default("isolation.level", READ_COMMITTED)
        return FlowClients(
            source_consumer=self._client(flow.source, {"isolation.level": isolation, **source_consumer}),
            source_admin=self._client(
                flow.source, {**admin_timeout, **precedence.admin_properties(connector, ClusterSide.SOURCE)}
            ),
            source_producer=self._client(
                flow.source, precedence.producer_properties(connector, ClusterSide.SOURCE)
            ),
            target_consumer=self._client(
                flow.target,
                {
                    "isolation.level": isolation,
                    **precedence.consumer_properties(connector, ClusterSide.TARGET),
                },
            ),
            target_admin=self._client(
                flow.target, {**admin_timeout, **precedence.admin_properties(connector, ClusterSide.TARGET)}
            ),
            target_producer=self._client(
                flow.target, precedence.producer_properties(connector, ClusterSide.TARGET)
            ),
            data_producer=self._client(flow.target, precedence.data_producer_properties(worker, connector)),
        )

    def of_cluster(self, raw: Settings, alias: ClusterAlias) -> ClusterConfig:
        admin, consumer, producer = (
            self._client(alias, precedence.mirror_client_properties(raw, alias, client))
            for client in ("admin", "consumer", "producer")
        )
        return ClusterConfig(alias=alias, admin=admin, consumer=consumer, producer=producer)

    def _client(self, alias: ClusterAlias, properties: Mapping[str, Property]) -> ClientConfig:
        resolved = {key: self._resolver.resolve(prop) for key, prop in properties.items()}
        for key, choices in _CHOICES.items():
            prop = resolved.get(key)
            if prop is not None and prop.value.strip().upper() not in (choice.upper() for choice in choices):
                self._findings.wrong_value(prop, "one of " + ", ".join(choices), secret=is_secret(key))
        servers = resolved.get("bootstrap.servers", precedence.default("", ""))
        entries = [entry for entry in split_list(servers.value) if entry]
        if not entries:
            self._findings.problem(
                f"{alias}.bootstrap.servers",
                f"missing: the brokers of cluster {alias}, as host:port,host:port",
            )
        elif None in map(bootstrap_server, entries):
            self._findings.wrong_value(servers, "host:port of each broker, as a:9092,b:9092", secret=False)
        config = ClientConfig.of(alias, resolved)
        kept = notes(resolved, self._resolver)
        return replace(config, properties={**config.properties, **kept}) if kept else config
