"""How many replicas brokers give to a new topic, and how many they want in sync. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from twinlog.config.flow.settings import MIN_ISR

BROKERS_FACTOR: Final = "default.replication.factor"
_SINCE_KAFKA_3_7: Final = "telemetry.max.bytes"
"""A broker property (KIP-714)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    configs: Mapping[str, str] = field(default_factory=dict)
    """Of one broker; empty without the right to read them: then Kafka's defaults count."""
    is_since_3_8: bool = False
    """Known by its requests."""

    def factor(self, configured: int) -> int:
        """Of a topic; `configured` is -1 for the brokers' default."""
        return int(self.configs.get(BROKERS_FACTOR, 1)) if configured == -1 else configured

    @property
    def min_isr(self) -> int:
        """Of topics without a value of their own."""
        return int(self.configs.get(MIN_ISR, 1))

    def refuse_writes(self, *, factor: int, min_isr: int) -> bool:
        """Whether no write to such a topic succeeds. From Kafka 3.7 on brokers want no more replicas in sync
        than there are (KAFKA-15583)."""
        return min_isr > factor and not (self.is_since_3_8 or _SINCE_KAFKA_3_7 in self.configs)
