"""Converts Java client properties into settings of confluent-kafka (librdkafka), which is used for
administration.

As in `twinlog.kafka.clients`, every function raises ConfigError with cluster, key and remedy, never a secret.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from twinlog.kafka.clients import (
    CALL_TIMEOUT_KEY,
    CLIENT_KEYS,
    IDLE_KEY,
    bootstrap_servers,
    client_id,
    idle_ms,
    whole_numbers,
)
from twinlog.kafka.security.access import ClusterAccess
from twinlog.kafka.security.client_security import SaslLogin, refused
from twinlog.kafka.security.kerberos import GSSAPI, OWN_LIBRDKAFKA, KerberosLogin
from twinlog.kafka.security.oauth.keeper import TokenKeeper
from twinlog.kafka.security.oauth.login import OAuthLogin

_ADMIN_NUMBERS = {
    "retry.backoff.ms": (1, 300_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "request.timeout.ms": (10, 300_000),
    "metadata.max.age.ms": (1, 86_400_000),
}
"""Numbers with the range that librdkafka accepts: values outside are moved to its edge."""
_LIBRDKAFKA_NAMES = {
    "request.timeout.ms": "socket.timeout.ms",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
}
"""Settings with another name in librdkafka than in Java."""
_BACKOFF_KEY = "reconnect.backoff.ms"
_BACKOFF_MAX_KEY = "reconnect.backoff.max.ms"
_MOST_USED = 0.75
"""librdkafka requests another token after 80 % of a token's lifetime. It must not get the same one again,
with so little time left that brokers refuse the next login, which comes within a second."""
ADMIN_KEYS = frozenset((*_ADMIN_NUMBERS, CALL_TIMEOUT_KEY)) - CLIENT_KEYS


def librdkafka_options(
    properties: Mapping[str, str],
    *,
    alias: str = "",
    client_id_suffix: str = "",
    timeout_seconds: float = 30.0,
    access: ClusterAccess | None = None,
) -> dict[str, Any]:
    """The configuration dict of confluent-kafka's AdminClient. It contains secrets: never log it.

    `timeout_seconds` is the time-out of a whole call; a broker gets a part of it to accept a connection.
    `access` was created earlier from the properties, and has the current credentials.
    """
    if access is None:
        access = ClusterAccess(properties, alias=alias)
    else:
        access.refresh()
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(bootstrap_servers(properties, alias=alias)),
        "client.id": client_id(properties, client_id_suffix),
        "log.connection.close": False,
        "enable.metrics.push": False,
        "socket.keepalive.enable": True,
        "socket.connection.setup.timeout.ms": min(max(int(timeout_seconds * 250), 1000), 10_000),
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 2000,
    }
    for key, (least, most) in _ADMIN_NUMBERS.items():
        for number in whole_numbers(properties, {key: key}, alias).values():
            options[_LIBRDKAFKA_NAMES.get(key, key)] = min(max(number, least), most)
    _order_backoffs(options, max_is_set=bool(properties.get(_BACKOFF_MAX_KEY, "").strip()))
    idle = idle_ms(properties, alias)
    if idle is not None:
        options[IDLE_KEY] = min(max(idle, 0), (1 << 31) - 1)
    options.update(_security(access))
    return options


def _order_backoffs(options: dict[str, Any], *, max_is_set: bool) -> None:
    """Java accepts any two values: a configured maximum bounds the first back-off; otherwise a larger first
    back-off is the maximum. librdkafka refuses a maximum below the first one."""
    first, most = options[_BACKOFF_KEY], options[_BACKOFF_MAX_KEY]
    if max_is_set:
        options[_BACKOFF_KEY] = min(first, most)
    else:
        options[_BACKOFF_MAX_KEY] = max(first, most)


def _security(access: ClusterAccess) -> dict[str, Any]:
    security = access.security
    options: dict[str, Any] = {"security.protocol": security.protocol}
    if security.sasl is not None:
        options["sasl.mechanism"] = security.sasl.mechanism
    if isinstance(security.sasl, SaslLogin):
        options["sasl.username"] = security.sasl.username
        options["sasl.password"] = security.sasl.password
    if isinstance(security.sasl, KerberosLogin):
        options.update(_kerberos(security.sasl))
    if access.keeper is not None and isinstance(security.sasl, OAuthLogin):
        options["oauth_cb"] = _token_callback(access.keeper, dict(security.sasl.extensions))
    if security.tls is not None:
        options["ssl.endpoint.identification.algorithm"] = "https" if security.tls.check_hostname else "none"
        if security.tls.limits.ciphers:
            options["ssl.cipher.suites"] = security.tls.limits.ciphers
        if security.tls.trusted_pem is not None:
            options["ssl.ca.pem"] = security.tls.trusted_pem
        if security.tls.identity is not None:
            options["ssl.certificate.pem"] = security.tls.identity.certificate_chain_pem
            options["ssl.key.pem"] = security.tls.identity.key_pem
    return options


@cache
def admin_knows_kerberos() -> bool:
    """Whether the installed librdkafka supports GSSAPI."""
    asked = KerberosLogin(service="kafka")
    try:
        AdminClient({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": GSSAPI, **_kerberos(asked)})
    except KafkaException:
        return False
    return True


def require_kerberos_of_admin(access: ClusterAccess, *, alias: str) -> None:
    """Raises ConfigError for a Kerberos login that librdkafka cannot do."""
    if isinstance(access.security.sasl, KerberosLogin) and not admin_knows_kerberos():
        raise refused(alias, "sasl.mechanism", OWN_LIBRDKAFKA)


def _kerberos(login: KerberosLogin) -> dict[str, Any]:
    """librdkafka gets tickets of a key table with `kinit`, in the default cache."""
    options = {"sasl.kerberos.service.name": login.service}
    if not login.keytab:
        return {**options, "sasl.kerberos.kinit.cmd": "true"}  # Another program renews the tickets.
    named = {"sasl.kerberos.principal": login.principal, "sasl.kerberos.keytab": login.keytab}
    return {**options, **named}


def _token_callback(keeper: TokenKeeper, extensions: dict[str, str]) -> Callable[[str], tuple[Any, ...]]:
    """Called by confluent-kafka from its own thread when it needs a token."""

    def on_token_needed(_config: str) -> tuple[Any, ...]:
        token = keeper.token(most_used=_MOST_USED)
        return token.text, token.expires_at, "", extensions

    return on_token_needed
