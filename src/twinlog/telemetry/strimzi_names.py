"""Exports a service's metrics also under the names and labels of Strimzi's MirrorMaker 2 board, so that an
existing board shows this deployment.

Computed from each scrape. Panels about Connect's workers and Java's heap have no counterpart and stay empty.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

_SOURCE = "kafka_connect_mirror_mirrorsourceconnector"
_CHECKPOINT = "kafka_connect_mirror_mirrorcheckpointconnector"
_MILLISECONDS = 1000.0
_ALL = "all"
"""Partition of a metric of a whole topic, and topic and group of a metric of a whole flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """One name of the board, and its source."""

    name: str
    of: str
    """Our series."""
    factor: float = 1.0
    labels: tuple[str, ...] = ("source", "target", "topic", "partition")
    client: str = ""
    """The consumer that the board expects in the label `clientid`."""
    total: bool = False


def _in_milliseconds(figure: str, name: str) -> tuple[_Name, ...]:
    """The figures of the last half minute; the board's current value is our mean."""
    return tuple(
        _Name(
            name=f"{_SOURCE}_{name}{suffix}",
            of=f"twinlog_replication_{figure}_{kind}_seconds",
            factor=_MILLISECONDS,
        )
        for suffix, kind in (("", "avg"), ("_avg", "avg"), ("_min", "min"), ("_max", "max"))
    )


_FLOWS = "twinlog_flow_owner"
NAMES: tuple[_Name, ...] = (
    _Name(name=f"{_SOURCE}_record_count", of="twinlog_replication_records_total"),
    _Name(name=f"{_SOURCE}_record_rate", of="twinlog_replication_records_rate_per_second"),
    _Name(name=f"{_SOURCE}_byte_count", of="twinlog_replication_io_bytes_total"),
    _Name(name=f"{_SOURCE}_byte_rate", of="twinlog_replication_io_rate_bytes_per_second"),
    *_in_milliseconds("record_age", "record_age_ms"),
    *_in_milliseconds("latency", "replication_latency_ms"),
    _Name(
        name="kafka_consumer_fetch_manager_records_lag",
        of="twinlog_replication_lag",
        labels=("topic", "partition"),
        client="replication-consumer",
    ),
    _Name(
        name="kafka_consumer_incoming_byte", of="twinlog_replication_io_bytes_total", labels=(), total=True
    ),
    _Name(
        name="kafka_producer_outgoing_byte", of="twinlog_replication_io_bytes_total", labels=(), total=True
    ),
    _Name(name="kafka_connect_worker_connector_count", of=_FLOWS, labels=()),
    _Name(name="kafka_connect_worker_task_count", of=_FLOWS, labels=()),
    _Name(name="kafka_connect_coordinator_assigned_connectors", of=_FLOWS, labels=()),
    _Name(name="kafka_connect_coordinator_assigned_tasks", of=_FLOWS, labels=()),
    # Flows have owners that change by lease: nothing is ever rebalanced.
    _Name(name="kafka_connect_worker_rebalance_rebalancing", of=_FLOWS, factor=0.0, labels=()),
)
CHECKPOINT_LATENCY = f"{_CHECKPOINT}_checkpoint_latency_ms"
"""Mean since the start, from the sum and the count of a histogram."""
_LATENCY = "twinlog_checkpoint_latency_seconds"


class StrimziRegistry(CollectorRegistry):
    """All registered metrics, and the same again under the names of Strimzi's board."""

    def __init__(self, *, cluster: str, service: str) -> None:
        """`cluster` is the name that a user selects on the board."""
        super().__init__()
        self._common = {
            "strimzi_io_kind": "KafkaMirrorMaker2",
            "strimzi_io_cluster": cluster,
            "namespace": "twinlog",
            "kubernetes_pod_name": f"twinlog-{service}",
        }

    def collect(self) -> Iterator[Metric]:
        families = list(super().collect())
        yield from families
        yield from renamed(families, self._common)


def renamed(families: Iterable[Metric], common: Mapping[str, str]) -> Iterator[Metric]:
    """The families of the board; series with the same labels are added up."""
    samples: dict[str, list[Sample]] = {}
    for family in families:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    for name in NAMES:
        values: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in samples.get(name.of, ()):
            labels = tuple(_labels(sample, name).items())
            values[labels] = values.get(labels, 0.0) + sample.value * name.factor
        if values:
            yield _family(name.name, values, common, total=name.total)
    sums = {_flow(sample): sample.value for sample in samples.get(f"{_LATENCY}_sum", ())}
    counts = {_flow(sample): sample.value for sample in samples.get(f"{_LATENCY}_count", ())}
    means = {
        (*flow, ("topic", _ALL), ("partition", _ALL), ("group", _ALL)): _MILLISECONDS * sums[flow] / count
        for flow, count in counts.items()
        if count
    }
    if means:
        yield _family(CHECKPOINT_LATENCY, means, common)


def _family(
    name: str,
    values: Mapping[tuple[tuple[str, str], ...], float],
    common: Mapping[str, str],
    *,
    total: bool = False,
) -> Metric:
    family = Metric(name, "As MirrorMaker 2 on Strimzi shows it.", "counter" if total else "gauge")
    for labels, value in values.items():
        family.add_sample(f"{name}_total" if total else name, {**common, **dict(labels)}, value)
    return family


def _flow(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple((end, sample.labels[f"twinlog_{end}_cluster"]) for end in ("source", "target"))


def _labels(sample: Sample, name: _Name) -> dict[str, str]:
    known = {
        **dict(_flow(sample)),
        "topic": sample.labels.get("messaging_destination_name", _ALL),
        "partition": sample.labels.get("messaging_destination_partition_id", _ALL),
    }
    found = {label: known[label] for label in name.labels}
    if name.client:
        # In the JMX exporter's form, with the quotation marks of the object's name.
        found["clientid"] = f'"{known["source"]}->{known["target"]}|{name.client}"'
    return found
