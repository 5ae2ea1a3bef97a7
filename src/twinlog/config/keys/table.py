"""The table of all configuration keys; reading, checking and docs/configuration.md use it."""

from dataclasses import replace
from typing import Any

from twinlog.config.keys.flow import FLOW_KEYS
from twinlog.config.keys.spec import ALL_SERVICES, KeySpec, Scope, Service, ValueType
from twinlog.config.keys.twinlog import TWINLOG_KEYS

# The keys of the services' own ports: who may call them, and how callers and services authenticate.

SIGNATURES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The signatures that tokens of an OpenID provider may have. Only asymmetric ones, because anybody who can
verify a shared secret can also sign with it."""


def _key(name: str, value_type: ValueType, default: str | None, meaning: str, **more: Any) -> KeySpec:
    return KeySpec(name, value_type, default, ALL_SERVICES, meaning, Scope.TOP, **more)


_TLS: tuple[KeySpec, ...] = (
    _key("twinlog.tls.certificate.file", ValueType.TEXT, "",
         "PEM file with the certificate chain of a service, without its root CA. If it is set, the service's"
         " gRPC port uses TLS. It is read again when it changes."),
    _key("twinlog.tls.key.file", ValueType.TEXT, "",
         "PEM file with the private key of that certificate, not encrypted."),
    _key("twinlog.tls.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs that must have signed the certificates of callers and of services."),
    _key("twinlog.tls.client.auth", ValueType.TEXT, "required",
         "Whether callers must have a certificate: `required`, or `none` if tokens identify them.",
         choices=("required", "none")),
    _key("twinlog.tls.server.name", ValueType.TEXT, "",
         "The name that callers expect in a service's certificate. Default: the host of its endpoint."),
    _key("twinlog.insecure", ValueType.BOOLEAN, "false",
         "Lets a service listen beyond loopback without TLS or without authentication: everybody who reaches"
         " its port may then change what is copied."),
)  # fmt: skip


def _of_service(spec: KeySpec, service: Service) -> KeySpec:
    name = spec.name.replace("twinlog.", f"twinlog.{service}.", 1)
    services = ALL_SERVICES if spec.name.endswith("server.name") else (service,)
    meaning = f"`{spec.name}` for {service} only; wins over that key."
    return replace(spec, name=name, default=None, services=services, meaning=meaning)


SECURITY_KEYS: tuple[KeySpec, ...] = (
    *_TLS,
    *(_of_service(spec, service) for service in Service for spec in _TLS),
    _key("twinlog.client.tls.certificate.file", ValueType.TEXT, "",
         "PEM file with the certificate of commands that call services. Default:"
         " `twinlog.tls.certificate.file`."),
    _key("twinlog.client.tls.key.file", ValueType.TEXT, "",
         "PEM file with the private key of that certificate. Default: `twinlog.tls.key.file`."),
    _key("twinlog.client.tls.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs that must have signed the certificates of services. If it is set without any"
         " `twinlog.tls.certificate.file`, commands call services by TLS. Default: `twinlog.tls.ca.file`."),
    _key("twinlog.client.token.file", ValueType.TEXT, "",
         "File with the token that services and commands send to services; read again when it changes."),
    _key("twinlog.auth.tokens.file", ValueType.TEXT, "",
         "File with the tokens that services accept, in lines of `NAME ROLE SHA256`: the name and the role of"
         " the caller, and the SHA-256 hash of the token in hexadecimal digits; read again when it changes."),
    _key("twinlog.auth.oidc.issuer", ValueType.TEXT, "",
         "The OpenID provider whose tokens (JWT) services accept: exactly the value of their `iss` claim."),
    _key("twinlog.auth.oidc.audience", ValueType.TEXT, "",
         "The value that the `aud` claim of such a token must contain; required with the issuer."),
    _key("twinlog.auth.oidc.jwks.url", ValueType.TEXT, "",
         "The URL of the provider's keys. Default: the one in ISSUER/.well-known/openid-configuration."),
    _key("twinlog.auth.oidc.ca.file", ValueType.TEXT, "",
         "PEM file with the CAs for HTTPS to the provider. Default: those of the system."),
    _key("twinlog.auth.oidc.algorithms", ValueType.LIST, "RS256, ES256",
         "The signature algorithms that services accept.", choices=SIGNATURES),
    _key("twinlog.auth.oidc.roles.claim", ValueType.TEXT, "groups",
         "The claim that `group:VALUE` in the lists of roles refers to; dots lead into nested claims"
         " (`realm_access.roles`)."),
    _key("twinlog.auth.oidc.clock.skew.seconds", ValueType.NUMBER, "30",
         "How far the provider's clock may differ from that of the service.", unit="s", minimum=0,
         maximum=300),
    _key("twinlog.auth.viewers", ValueType.LIST, "",
         "Callers with the role viewer: `cn:NAME`, `dns:NAME`, `uri:URI`, `email:ADDRESS` of a certificate,"
         " `sub:SUBJECT` or `group:VALUE` of an OpenID token. A `*` at the end matches any rest, `*` alone"
         " everybody who is identified."),
    _key("twinlog.auth.operators", ValueType.LIST, "",
         "Callers with the role operator, who may also pause, limit, acknowledge gaps and apply plans."
         " Written as for `twinlog.auth.viewers`."),
    _key("twinlog.auth.admins", ValueType.LIST, "",
         "Callers with the role admin, who may do everything. Written as for `twinlog.auth.viewers`."),
)  # fmt: skip


# Keys of MM2's driver (top level) and of its Connect workers (`B.<key>`, B being the flow's target).

_SOURCE = (Service.SOURCE,)
_NO_REST = "the services talk gRPC, see `twinlog.<service>.listen`"
_NO_WORKER = "there are no Connect workers"
_BYTES_ONLY = "records are copied byte for byte, nothing is converted"


def _worker(name: str, value_type: ValueType, default: str | None, meaning: str,
            scope: Scope = Scope.TARGET, **more: Any) -> KeySpec:  # fmt: skip
    return KeySpec(name, value_type, default, _SOURCE, meaning, scope, **more)


def _ignored(scope: Scope, reason: str, *names: str) -> tuple[KeySpec, ...]:
    return tuple(KeySpec(name, ValueType.TEXT, None, (), "", scope, no_effect=reason) for name in names)


DRIVER_KEYS: tuple[KeySpec, ...] = (
    _key("clusters", ValueType.LIST, "", "The aliases of the clusters.", distinct=True),
    _key("config.providers", ValueType.LIST, "",
            "Names of the providers that `${name:…}` may refer to; each has "
            "`config.providers.<name>.class` and `config.providers.<name>.param.<param>`.", distinct=True),
    *_ignored(Scope.TOP, _NO_REST, "dedicated.mode.enable.internal.rest", "listeners",
              "rest.advertised.host.name", "rest.advertised.port", "rest.advertised.listener",
              "access.control.allow.origin", "access.control.allow.methods", "response.http.headers.config",
              "admin.listeners", "rest.extension.classes", "ssl.client.auth"),
)  # fmt: skip

WORKER_KEYS: tuple[KeySpec, ...] = (
    _worker("exactly.once.source.support", ValueType.TEXT, "enabled",
            "`enabled`: data and positions in one transaction. `disabled` and `preparing`: an idempotent "
            "producer, positions after the acknowledgements.", choices=("disabled", "preparing", "enabled"),
            mm2_default="disabled"),
    _worker("offset.flush.interval.ms", ValueType.INTEGER, "60000",
            "How often a partition may get an offset sync in addition to those for offset.lag.max. "
            "Also how often a preserved copy's position is stored, but at least every 5 s (docs/offsets.md).",
            unit="ms", minimum=1),
    _worker("offset.storage.topic", ValueType.TEXT, None,
            "The positions topic. Default: mm2-offsets.<source alias>.internal.",
            scope=Scope.TARGET_OR_TOP),
    _worker("offset.storage.partitions", ValueType.INTEGER, "25",
            "Partitions of the positions topic when it is created; -1 = the broker's default.",
            scope=Scope.TARGET_OR_TOP, minimum=-1),
    _worker("offset.storage.replication.factor", ValueType.INTEGER, "3",
            "Replication factor of the positions topic when it is created; -1 = the broker's default.",
            scope=Scope.TARGET_OR_TOP, minimum=-1),
    *_ignored(Scope.TARGET_OR_TOP, "there is no Connect status or config topic", "status.storage.topic",
              "status.storage.partitions", "status.storage.replication.factor", "config.storage.topic",
              "config.storage.replication.factor"),
    *_ignored(Scope.TARGET_OR_TOP, _NO_WORKER, "task.shutdown.graceful.timeout.ms",
              "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
    *_ignored(Scope.TARGET_OR_TOP, _BYTES_ONLY, "key.converter.schemas.enable",
              "value.converter.schemas.enable"),
    *_ignored(Scope.TARGET, _NO_WORKER, "group.id", "offset.flush.timeout.ms", "session.timeout.ms",
              "heartbeat.interval.ms", "rebalance.timeout.ms", "scheduled.rebalance.max.delay.ms",
              "connect.protocol", "connector.client.config.override.policy",
              "internal.topics.automatic.creation.enable", "plugin.path", "plugin.discovery",
              "topic.tracking.enable", "topic.tracking.allow.reset", "topic.creation.enable",
              "inter.worker.key.generation.algorithm", "inter.worker.key.size", "inter.worker.key.ttl.ms",
              "inter.worker.signature.algorithm", "inter.worker.verification.algorithms"),
)  # fmt: skip


ALL_KEYS: tuple[KeySpec, ...] = (*DRIVER_KEYS, *FLOW_KEYS, *WORKER_KEYS, *TWINLOG_KEYS, *SECURITY_KEYS)

BY_NAME: dict[str, KeySpec] = {spec.name: spec for spec in ALL_KEYS}

BY_ANY_NAME: dict[str, KeySpec] = {name: spec for spec in ALL_KEYS for name in (spec.name, *spec.aliases)}

INHERITED_BY_FLOWS: frozenset[str] = frozenset(
    name for name, spec in BY_ANY_NAME.items() if spec.scope is Scope.FLOW
)
"""Top-level keys that every flow inherits (MM2: the union of the three connectors' ConfigDefs), without the
client keys that Connect also defines."""
