"""The definition of a metric, and the names of attributes."""

from dataclasses import dataclass
from enum import StrEnum

SOURCE_CLUSTER = "twinlog.source.cluster"
TARGET_CLUSTER = "twinlog.target.cluster"
CLUSTER = "twinlog.cluster"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
SLOT = "twinlog.slot"
GROUP = "messaging.consumer.group.name"
ERROR_TYPE = "error.type"
TWINLOG_SERVICE = "twinlog.service"
END = "twinlog.end"
"""`source` or `target`: one of a flow's two clusters."""
FLOW = (SOURCE_CLUSTER, TARGET_CLUSTER)
"""The attributes of every metric of one flow."""

CALL_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
AGE_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
                       3600.0)  # fmt: skip


class Kind(StrEnum):
    COUNTER = "counter"
    UP_DOWN_COUNTER = "up-down counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    name: str
    kind: Kind
    unit: str
    """UCUM: `s`, `By`, `{record}`."""
    attributes: tuple[str, ...]
    service: str
    """The service that records it; `every` = all four."""
    description: str
    buckets: tuple[float, ...] = ()
    """Upper bounds, histograms only."""
    mm2_name: str = ""
    """MirrorMaker 2's metric of the same meaning."""


def flow_attributes(source: str, target: str) -> dict[str, str]:
    return {SOURCE_CLUSTER: source, TARGET_CLUSTER: target}
