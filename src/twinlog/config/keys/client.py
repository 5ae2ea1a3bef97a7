"""The settings of Kafka's Java clients, in `client_settings.txt`, and which of them are secret."""

from twinlog.text_tables import read_table

LOGIN_HANDLERS = (
    "OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler",
    "JaasClientOauthLoginCallbackHandler", "IAMOAuthBearerLoginCallbackHandler",
)  # fmt: skip
"""Simple names of the supported classes in `sasl.login.callback.handler.class`."""

_ROWS = [
    (clients.split(), fate, names.split(), why)
    for (clients, fate), rows in read_table("twinlog.config.keys", "client_settings.txt")
    for names, _, why in (row.partition(": ") for row in rows)
]


def _of_clients(*fates: str) -> dict[str, frozenset[str]]:
    return {
        client: frozenset(
            name for clients, fate, names, _ in _ROWS if client in clients and fate in fates for name in names
        )
        for client in ("consumer", "producer", "admin")
    }


KEYS_BY_CLIENT = _of_clients("effect", "none", "refused")
EFFECTIVE_BY_CLIENT = _of_clients("effect")
"""Settings with an effect on Twinlog's clients: those that `twinlog.kafka.clients` maps, and the start of new
partitions."""
REFUSED_KEYS = {name: why for _, fate, names, why in _ROWS if fate == "refused" for name in names}
"""Ignoring these settings would weaken a promise: they are errors unless empty."""
NO_EFFECT_REASONS = {name: why for _, fate, names, why in _ROWS if fate == "none" and why for name in names}
"""For settings that occur in practice; all others share one sentence."""

SECURITY_KEYS = frozenset(
    key for key in KEYS_BY_CLIENT["admin"] if key.startswith(("ssl.", "sasl.", "security.protocol"))
)
"""Valid at top level for all clusters, as `A.<key>` for one, and as `A.consumer.<key>` for one client."""

CLUSTER_CLIENT_KEYS = SECURITY_KEYS | {"bootstrap.servers"}
"""MM2's "client keys": those that a cluster passes on to consumer, producer and admin."""

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
