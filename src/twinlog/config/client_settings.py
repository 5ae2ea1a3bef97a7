"""The settings of Kafka clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from twinlog.config.keys.client import NOTES, is_secret
from twinlog.config.keys.spec import split_list
from twinlog.config.values.precedence import client_id
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property


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
