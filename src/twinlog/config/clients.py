"""The settings of each Kafka client of a flow or a cluster: by MM2's precedence, resolved, checked, with
Twinlog's defaults."""

from collections.abc import Mapping
from dataclasses import replace

from twinlog.config.client_settings import ClientConfig, ClusterConfig, FlowClients
from twinlog.config.keys.client import is_secret
from twinlog.config.problems import Findings
from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import Settings, Side
from twinlog.config.values.providers import Resolver
from twinlog.config.values.rereading import notes
from twinlog.model import ClusterAlias, Flow
from twinlog.properties import Property

READ_COMMITTED = "read_committed"

_ADMIN_TIMEOUT = "admin.timeout.ms"

_CHOICES = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "isolation.level": (READ_COMMITTED, "read_uncommitted"),
}


class ClientBuilder:
    def __init__(self, resolver: Resolver, findings: Findings) -> None:
        self._resolver = resolver
        self._findings = findings

    def of_flow(self, flow: Flow, *, connector: Settings, worker: Settings) -> FlowClients:
        source_consumer = precedence.consumer_properties(connector, Side.SOURCE)
        timeout = connector.get(_ADMIN_TIMEOUT)
        admin_timeout = {} if timeout is None else {"default.api.timeout.ms": timeout}
        isolation = precedence.default("isolation.level", READ_COMMITTED)
        return FlowClients(
            source_consumer=self._client(flow.source, {"isolation.level": isolation, **source_consumer}),
            source_admin=self._client(
                flow.source, {**admin_timeout, **precedence.admin_properties(connector, Side.SOURCE)}
            ),
            source_producer=self._client(flow.source, precedence.producer_properties(connector, Side.SOURCE)),
            target_consumer=self._client(
                flow.target,
                {"isolation.level": isolation, **precedence.consumer_properties(connector, Side.TARGET)},
            ),
            target_admin=self._client(
                flow.target, {**admin_timeout, **precedence.admin_properties(connector, Side.TARGET)}
            ),
            target_producer=self._client(flow.target, precedence.producer_properties(connector, Side.TARGET)),
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
        if not resolved.get("bootstrap.servers", precedence.default("", "")).value.strip():
            self._findings.problem(
                f"{alias}.bootstrap.servers",
                f"missing: the brokers of cluster {alias}, as host:port,host:port",
            )
        config = ClientConfig.of(alias, resolved)
        kept = notes(resolved, self._resolver)
        return replace(config, properties={**config.properties, **kept}) if kept else config
