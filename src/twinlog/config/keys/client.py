"""The names of Kafka's Java client settings (4.3), to distinguish them from typing errors, and which are
secret."""

_SSL = (
    "cipher.suites", "enabled.protocols", "endpoint.identification.algorithm", "engine.factory.class",
    "key.password", "keymanager.algorithm", "keystore.certificate.chain", "keystore.key",
    "keystore.location", "keystore.password", "keystore.type", "protocol", "provider",
    "secure.random.implementation", "trustmanager.algorithm", "truststore.certificates",
    "truststore.location", "truststore.password", "truststore.type",
)  # fmt: skip

_SASL = (
    "mechanism", "jaas.config", "client.callback.handler.class", "login.class",
    "login.callback.handler.class", "login.connect.timeout.ms", "login.read.timeout.ms",
    "login.refresh.buffer.seconds", "login.refresh.min.period.seconds", "login.refresh.window.factor",
    "login.refresh.window.jitter", "login.retry.backoff.ms", "login.retry.backoff.max.ms",
    "kerberos.kinit.cmd", "kerberos.min.time.before.relogin", "kerberos.service.name",
    "kerberos.ticket.renew.jitter", "kerberos.ticket.renew.window.factor",
    "oauthbearer.assertion.algorithm", "oauthbearer.assertion.claim.aud",
    "oauthbearer.assertion.claim.exp.seconds", "oauthbearer.assertion.claim.iss",
    "oauthbearer.assertion.claim.jti.include", "oauthbearer.assertion.claim.nbf.seconds",
    "oauthbearer.assertion.claim.sub", "oauthbearer.assertion.file",
    "oauthbearer.assertion.private.key.file", "oauthbearer.assertion.private.key.passphrase",
    "oauthbearer.assertion.template.file", "oauthbearer.client.credentials.client.id",
    "oauthbearer.client.credentials.client.secret", "oauthbearer.clock.skew.seconds",
    "oauthbearer.expected.audience", "oauthbearer.expected.issuer", "oauthbearer.header.urlencode",
    "oauthbearer.jwks.endpoint.refresh.ms", "oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "oauthbearer.jwks.endpoint.retry.backoff.ms", "oauthbearer.jwks.endpoint.url",
    "oauthbearer.jwt.retriever.class", "oauthbearer.jwt.validator.class", "oauthbearer.scope",
    "oauthbearer.scope.claim.name", "oauthbearer.sub.claim.name", "oauthbearer.token.endpoint.url",
)  # fmt: skip

LOGIN_HANDLERS = (
    "OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler",
    "JaasClientOauthLoginCallbackHandler", "IAMOAuthBearerLoginCallbackHandler",
)  # fmt: skip
"""Simple names of the supported classes in `sasl.login.callback.handler.class`."""

SECURITY_KEYS: frozenset[str] = frozenset(
    ("security.protocol", *(f"ssl.{name}" for name in _SSL), *(f"sasl.{name}" for name in _SASL))
)
"""Valid at top level for all clusters, as `A.<key>` for one, and as `A.consumer.<key>` for one client."""

CLUSTER_CLIENT_KEYS: frozenset[str] = SECURITY_KEYS | {"bootstrap.servers"}
"""MM2's "client keys": those that a cluster passes on to consumer, producer and admin."""

_ALL_CLIENTS = frozenset((
    *CLUSTER_CLIENT_KEYS, "client.dns.lookup", "client.id", "connections.max.idle.ms",
    "default.api.timeout.ms", "enable.metrics.push", "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters",
    "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
    "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms",
    "retry.backoff.max.ms", "retry.backoff.ms", "security.providers", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    "auto.include.jmx.reporter", "config.providers",
))  # fmt: skip

CONSUMER_KEYS = _ALL_CLIENTS | {
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs",
    "client.rack", "enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes",
    "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "interceptor.classes", "isolation.level",
    "key.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "value.deserializer", "poll.timeout.ms",
}  # fmt: skip

PRODUCER_KEYS = _ALL_CLIENTS | {
    "acks", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level",
    "compression.type", "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence",
    "interceptor.classes", "key.serializer", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "partitioner.class", "partitioner.ignore.keys", "retries", "transaction.timeout.ms",
    "transaction.two.phase.commit.enable", "transactional.id", "value.serializer",
}  # fmt: skip

ADMIN_KEYS = _ALL_CLIENTS | {"bootstrap.controllers", "host.resolver.class", "retries", "timeout.ms"}

KEYS_BY_CLIENT: dict[str, frozenset[str]] = {
    "consumer": CONSUMER_KEYS,
    "producer": PRODUCER_KEYS,
    "admin": ADMIN_KEYS,
}

OAUTH_KEYS = (
    "sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms", "sasl.client.callback.handler.class",
    "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
)  # fmt: skip
"""The settings for getting a token for OAUTHBEARER."""

_EFFECTIVE_SECURITY_KEYS = frozenset((
    *OAUTH_KEYS, "security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.kerberos.service.name",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.protocol",
    "ssl.cipher.suites",
))  # fmt: skip

_EFFECTIVE = _EFFECTIVE_SECURITY_KEYS | {
    "bootstrap.servers", "client.id", "connections.max.idle.ms", "metadata.max.age.ms",
    "request.timeout.ms", "retry.backoff.ms",
}  # fmt: skip

EFFECTIVE_BY_CLIENT: dict[str, frozenset[str]] = {
    "consumer": _EFFECTIVE | {
        "auto.offset.reset", "check.crcs", "client.rack", "fetch.max.bytes", "fetch.max.wait.ms",
        "fetch.min.bytes", "isolation.level", "max.partition.fetch.bytes",
    },
    "producer": _EFFECTIVE | {
        "compression.type", "delivery.timeout.ms", "max.request.size", "transaction.timeout.ms",
    },
    "admin": _EFFECTIVE | {"default.api.timeout.ms"},
}  # fmt: skip
"""Settings with an effect on Twinlog's clients: those that `twinlog.kafka.clients` maps, and the start of new
partitions."""

_BATCHES_STAY = "copied records keep the batches of their producer, see twinlog.coalesce.below.bytes"
_BROKERS = "a setting of brokers"
_RECONNECT = "connections are opened again after retry.backoff.ms, brokers that fail left out for up to 10 s"

REFUSED_KEYS: dict[str, str] = {
    "ssl.engine.factory.class": "engines of Java cannot be run; give ssl.keystore.* and ssl.truststore.*",
    "ssl.provider": "providers of Java cannot be run; OpenSSL's are set up in the system",
    "security.providers": "providers of Java cannot be run; OpenSSL's are set up in the system",
    "sasl.login.class": "classes of Java cannot be run; see docs/logins.md for the ways to log in",
    "interceptor.classes": "interceptors are not run here: what they check or record would be missing",
}
"""Ignoring these settings would weaken a promise: they are errors unless empty."""

NO_EFFECT_REASONS: dict[str, str] = {
    "batch.size": _BATCHES_STAY,
    "client.dns.lookup": "every address of a name is tried, as with use_all_dns_ips",
    "linger.ms": _BATCHES_STAY,
    "reconnect.backoff.ms": _RECONNECT,
    "reconnect.backoff.max.ms": _RECONNECT,
    "acks": "always all, positions may only follow what the target cannot lose",
    "enable.idempotence": "always true",
    "enable.auto.commit": "positions are kept by Twinlog",
    "group.id": "partitions are assigned by Twinlog",
    "max.poll.records": "whole batches are read, see fetch.max.bytes and max.partition.fetch.bytes",
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS,
    "sasl.oauthbearer.expected.audience": _BROKERS,
    "sasl.oauthbearer.expected.issuer": _BROKERS,
    "sasl.oauthbearer.jwks.endpoint.url": _BROKERS,
    "transactional.id": "made from the flow and the slot",
}
"""For settings that occur in practice; all others share one sentence."""

NOTES = "twinlog.written"
"""Keys with this prefix are not settings: see config/values/rereading.py."""

_SECRET_WORDS = (
    "password", "secret", "passphrase", "jaas.config", "keystore.key", "private.key", "credential",
    "token",
)  # fmt: skip
_NOT_SECRET = ("token.endpoint.url", "private.key.file", "client.credentials.client.id")


def is_secret(key: str) -> bool:
    """Whether the value of this key must never be shown. When in doubt, True."""
    name = key.lower()
    return not name.endswith(_NOT_SECRET) and any(word in name for word in _SECRET_WORDS)
