"""A topic's configs as its logs read them."""

from collections.abc import Mapping

from twinlog.batches import Codec

_LONGEST_MS = (1 << 63) - 1
_DAY_MS = 86_400_000


class LogSettings:
    """The topic's own configs, then the brokers', then Kafka's defaults. All are read when they are used."""

    def __init__(self, configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
        self._configs = configs
        self._broker_configs = broker_configs

    def text(self, name: str, default: str) -> str:
        return self._configs.get(name, self._broker_configs.get(name, default))

    def _number(self, name: str, default: int) -> int:
        return int(self.text(name, str(default)))

    @property
    def max_message_bytes(self) -> int:
        return self._number("max.message.bytes", 1_048_588)

    @property
    def segment_bytes(self) -> int:
        return self._number("segment.bytes", 1 << 30)

    @property
    def segment_ms(self) -> int:
        return self._number("segment.ms", 7 * _DAY_MS)

    @property
    def retention_bytes(self) -> int:
        return self._number("retention.bytes", -1)

    @property
    def retention_ms(self) -> int:
        return self._number("retention.ms", 7 * _DAY_MS)

    @property
    def retention_check_ms(self) -> int | None:
        """None: nothing is removed by retention."""
        text = self._broker_configs.get("log.retention.check.interval.ms")
        return None if text is None else int(text)

    @property
    def is_log_append_time(self) -> bool:
        return self.text("message.timestamp.type", "CreateTime") == "LogAppendTime"

    @property
    def timestamp_before_max_ms(self) -> int:
        return self._number("message.timestamp.before.max.ms", self._timestamp_difference_max_ms)

    @property
    def timestamp_after_max_ms(self) -> int:
        return self._number("message.timestamp.after.max.ms", self._timestamp_difference_max_ms)

    @property
    def _timestamp_difference_max_ms(self) -> int:
        """Before 3.6."""
        return self._number("message.timestamp.difference.max.ms", _LONGEST_MS)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.policies

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.policies

    @property
    def policies(self) -> list[str]:
        return self.text("cleanup.policy", "delete").split(",")

    @property
    def min_insync_replicas(self) -> int:
        return self._number("min.insync.replicas", 1)

    @property
    def codec(self) -> Codec | None:
        """With which the broker writes every batch; None: as its producer did."""
        name = self.text("compression.type", "producer")
        if name == "producer":
            return None
        return Codec.NONE if name == "uncompressed" else Codec[name.upper()]

    @property
    def producer_expiration_ms(self) -> int:
        return self._number("producer.id.expiration.ms", _DAY_MS)
