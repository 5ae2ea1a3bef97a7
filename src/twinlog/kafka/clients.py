"""Converts Java client properties, as in MM2's file, into settings of aiokafka's client: all requests use its
connections.

Properties are those of one cluster without prefixes (`bootstrap.servers`, `sasl.jaas.config`, …). Every
function raises ConfigError with cluster, key and remedy, never a secret. None accesses the network. Reading
trust and key stores accesses files.
"""

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiokafka.client
import aiokafka.errors
from aiokafka.protocol.metadata import MetadataRequest

from twinlog.config.client_settings import bootstrap_server
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import KAFKA_REASONS
from twinlog.kafka.security.access import ClusterAccess, SaslLogin, refused

# Four corrections to aiokafka 0.14, applied once per process before its first client is made.
#
# They act on module objects of the library because every client, also the one inside its producer, must have
# them:
#
# 1. Metadata requests ask brokers not to create topics. aiokafka leaves the flag on, so with Kafka's default
#    `auto.create.topics.enable=true` merely reading a deleted topic would bring it back, empty.
# 2. Error codes that the library does not know are registered with their number and whether a retry may help:
#    otherwise they all become `UnknownError` -1, not retriable.
# 3. Log lines that would show a password are dropped: at DEBUG it prints every request, SaslAuthenticate too.
# 4. Its other lines are logged at DEBUG: each failure reaches the caller as an error and is reported there,
#    once.

_LOGGERS = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
    "aiokafka.producer.transaction_manager",
)
_STALE_METADATA_CODES = frozenset(
    (
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    )
)


@functools.cache
def apply_aiokafka_fixes() -> None:
    """Apply the corrections of the module's docstring. Further calls do nothing."""
    aiokafka.client.MetadataRequest = functools.partial(MetadataRequest, allow_auto_topic_creation=False)
    for code in KAFKA_REASONS:
        aiokafka.errors.kafka_errors.setdefault(code, _error_class(ErrorCode(code)))
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_quieter)


def _error_class(code: ErrorCode) -> type[aiokafka.errors.BrokerResponseError]:
    name = code.name.upper()
    attributes = {
        "errno": int(code),
        "message": name,
        "description": name.replace("_", " ").capitalize(),
        "retriable": KAFKA_REASONS[code].retriable,
        "invalid_metadata": code in _STALE_METADATA_CODES,
    }
    return type(name.title().replace("_", "") + "Error", (aiokafka.errors.BrokerResponseError,), attributes)


def _quieter(record: logging.LogRecord) -> bool:
    """Drop lines that may contain credentials, log the others at DEBUG."""
    if any("Sasl" in type(argument).__name__ for argument in _arguments(record)):
        return False
    if record.levelno > logging.DEBUG:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_JAVA_MAX_WAIT_MS = 500

_CLIENT_NUMBERS = {
    "request.timeout.ms": "request_timeout_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}
_PRODUCER_NUMBERS = {"max.request.size": "max_request_size"}
CALL_TIMEOUT_KEY = "default.api.timeout.ms"
IDLE_KEY = "connections.max.idle.ms"
"""Java's -1 (never) is None for aiokafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How a consumer reads. Java's defaults except for two: only committed data is read, and brokers without
    data answer late."""

    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_wait_ms: int = 5000
    """With Java's 500 ms every quiet partition would cost an answer twice a second. Data ends the wait."""
    max_partition_bytes: int = 1 << 20
    read_committed: bool = True
    client_rack: str = ""
    check_crcs: bool = True


def bootstrap_servers(properties: Mapping[str, str], *, alias: str = "") -> list[str]:
    """`host:port` of every bootstrap server, without protocol prefixes."""
    key = "bootstrap.servers"
    entries = [entry.strip() for entry in properties.get(key, "").split(",") if entry.strip()]
    if not entries:
        raise refused(alias, key, "it is missing; set it to host:port of one or more brokers")
    servers = []
    for entry in entries:
        server = bootstrap_server(entry)
        if server is None:
            raise refused(alias, key, f"{entry!r} is not host:port")
        servers.append(server)
    return servers


def aiokafka_client_options(
    properties: Mapping[str, str],
    *,
    alias: str = "",
    client_id_suffix: str = "",
    access: ClusterAccess | None = None,
) -> dict[str, Any]:
    """Keyword arguments for `AIOKafkaClient` (and everything based on it), with an SSLContext if TLS is on.
    The suffix distinguishes several clients of one process: `client.id` is the configured one, else
    `twinlog`. `access` was created earlier from the properties: then no file is read here, because each
    connection reads what has changed."""
    apply_aiokafka_fixes()
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers(properties, alias=alias),
        "client_id": _client_id(properties, client_id_suffix),
    }
    options.update(_whole_numbers(properties, _CLIENT_NUMBERS, alias))
    idle = _idle_ms(properties, alias)
    if idle is not None:
        options["connections_max_idle_ms"] = idle if idle >= 0 else None
    options.update(_aiokafka_security(ClusterAccess(properties, alias=alias) if access is None else access))
    return options


def aiokafka_producer_options(
    properties: Mapping[str, str],
    *,
    alias: str = "",
    client_id_suffix: str = "",
    access: ClusterAccess | None = None,
) -> dict[str, Any]:
    """Keyword arguments for an idempotent `AIOKafkaProducer`; acks is always `all`. `access` as for
    `aiokafka_client_options`.

    A transactional producer also needs `transactional_id`; `transaction.timeout.ms` is passed on if it is
    set. A configured `acks` below `all` is ignored, because positions may only follow data that the target
    cannot lose.
    """
    options = aiokafka_client_options(
        properties, alias=alias, client_id_suffix=client_id_suffix, access=access
    )
    options.update(_whole_numbers(properties, _PRODUCER_NUMBERS, alias))
    options.update(
        _whole_numbers(properties, {"transaction.timeout.ms": "transaction_timeout_ms"}, alias, minimum=1)
    )
    codec = properties.get("compression.type", "none").strip().lower()
    if codec not in _CODECS:
        raise refused(alias, "compression.type", f"{codec!r} is none of {', '.join(_CODECS)}")
    options["compression_type"] = None if codec == "none" else codec
    options["enable_idempotence"] = True
    options["acks"] = "all"
    return options


def fetch_options(properties: Mapping[str, str], *, alias: str = "") -> FetchOptions:
    """How to read from this cluster."""
    level = properties.get("isolation.level", "read_committed").strip().lower()
    if level not in _ISOLATION_LEVELS:
        raise refused(alias, "isolation.level", f"{level!r} is none of {', '.join(_ISOLATION_LEVELS)}")
    numbers = _whole_numbers(
        properties,
        {
            "fetch.min.bytes": "min_bytes",
            "fetch.max.bytes": "max_bytes",
            "fetch.max.wait.ms": "max_wait_ms",
            "max.partition.fetch.bytes": "max_partition_bytes",
        },
        alias,
    )
    if numbers.get("min_bytes", 1) > 1:
        # Then a little data does not end the wait, which delays records by this time.
        numbers.setdefault("max_wait_ms", _JAVA_MAX_WAIT_MS)
    request_timeout_ms = _whole_numbers(properties, {"request.timeout.ms": "timeout"}, alias, minimum=1).get(
        "timeout"
    )
    if request_timeout_ms is not None:
        # A broker that waits for data must answer before the request counts as lost.
        longest_wait_ms = numbers.get("max_wait_ms", FetchOptions().max_wait_ms)
        numbers["max_wait_ms"] = min(longest_wait_ms, request_timeout_ms // 2)
    return FetchOptions(
        **numbers,
        read_committed=level == "read_committed",
        client_rack=properties.get("client.rack", "").strip(),
        check_crcs=_boolean(properties, "check.crcs", default=True, alias=alias),
    )


def delivery_timeout_seconds(
    properties: Mapping[str, str], *, alias: str = "", default: float = 120.0
) -> float:
    """`delivery.timeout.ms` in seconds: how long a record may take until it is acknowledged."""
    number = _whole_numbers(properties, {"delivery.timeout.ms": "delivery_timeout_ms"}, alias, minimum=1)
    return number["delivery_timeout_ms"] / 1000 if number else default


def call_timeout_seconds(properties: Mapping[str, str], *, alias: str = "", default: float) -> float:
    """`default.api.timeout.ms` of an admin client in seconds: the time-out of each of its calls. A flow's
    `admin.timeout.ms` is passed on under this name."""
    number = _whole_numbers(properties, {CALL_TIMEOUT_KEY: "timeout"}, alias, minimum=1)
    return number["timeout"] / 1000 if number else default


def _client_id(properties: Mapping[str, str], suffix: str = "") -> str:
    base = properties.get("client.id", "").strip() or "twinlog"
    return f"{base}-{suffix}" if suffix else base


def _aiokafka_security(access: ClusterAccess) -> dict[str, Any]:
    security = access.security
    options: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls is not None:
        options["ssl_context"] = access.context
    if security.sasl is not None:
        options["sasl_mechanism"] = security.sasl.mechanism
    if security.tls is not None or security.sasl is not None:
        options["sasl_oauth_token_provider"] = access
    if isinstance(security.sasl, SaslLogin):
        options["sasl_plain_username"] = security.sasl.username
        options["sasl_plain_password"] = security.sasl.password
    return options


def _whole_numbers(
    properties: Mapping[str, str], names: Mapping[str, str], alias: str, *, minimum: int = 0
) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, name in names.items():
        text = properties.get(key, "").strip()
        if not text:
            continue
        if not text.isdecimal() or int(text) < minimum:
            raise refused(alias, key, f"{text!r} is not a whole number from {minimum} up")
        found[name] = int(text)
    return found


def _idle_ms(properties: Mapping[str, str], alias: str) -> int | None:
    if properties.get(IDLE_KEY, "").strip() == "-1":
        return -1
    return _whole_numbers(properties, {IDLE_KEY: IDLE_KEY}, alias).get(IDLE_KEY)


def _boolean(properties: Mapping[str, str], key: str, *, default: bool, alias: str) -> bool:
    text = properties.get(key, "").strip().lower()
    if text not in ("", "true", "false"):
        raise refused(alias, key, f"{text!r} is neither true nor false")
    return default if not text else text == "true"
