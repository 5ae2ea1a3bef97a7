"""The settings of the copying producers, from the file's Java names."""

from collections.abc import Mapping

from twinlog.errors import ConfigError
from twinlog.kafka.clients import delivery_timeout_seconds
from twinlog.kafka.raw import ProducerSettings

DELIVERY_SECONDS = 15.0
"""The default: a partition that cannot be written is set aside after this, so that others are not delayed."""
TRANSACTION_SECONDS = 60.0
UNKNOWN_TOPIC_SECONDS = 1.0
"""configsync has seen a topic before it is copied, so an unknown one was deleted, or will appear soon; other
partitions wait meanwhile."""


def producer_settings(
    properties: Mapping[str, str], *, alias: str, delivery_seconds: float = DELIVERY_SECONDS
) -> ProducerSettings:
    """`delivery.timeout.ms`, `transaction.timeout.ms`, `request.timeout.ms`, `retry.backoff.ms` and
    `max.request.size` as configured. acks is always `all`, because a position may only follow records that
    the target cannot lose.

    Raises ConfigError.
    """
    defaults = ProducerSettings()
    return ProducerSettings(
        delivery_timeout_seconds=delivery_timeout_seconds(properties, alias=alias, default=delivery_seconds),
        transaction_timeout_seconds=_number(
            properties, "transaction.timeout.ms", alias, TRANSACTION_SECONDS * 1000
        )
        / 1000,
        request_timeout_seconds=_number(
            properties,
            "request.timeout.ms",
            alias,
            min(delivery_seconds, defaults.request_timeout_seconds) * 1000,
        )
        / 1000,
        retry_pause_seconds=_number(
            properties, "retry.backoff.ms", alias, defaults.retry_pause_seconds * 1000
        )
        / 1000,
        unknown_topic_seconds=UNKNOWN_TOPIC_SECONDS,
        max_request_bytes=int(_number(properties, "max.request.size", alias, defaults.max_request_bytes)),
    )


def _number(properties: Mapping[str, str], key: str, alias: str, default: float) -> float:
    text = properties.get(key, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(
            f"{alias}.producer.{key}: {text!r} is not a whole number above 0", metadata={"key": key}
        )
    return float(text)
