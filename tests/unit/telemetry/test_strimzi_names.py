"""What Strimzi's board of MirrorMaker 2 asks for is shown, where a key says so."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from twinlog.config import load
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.replication import (
    REPLICATION_IO,
    REPLICATION_IO_RATE,
    REPLICATION_LAG,
    REPLICATION_LATENCY_AVG,
    REPLICATION_LATENCY_MAX,
    REPLICATION_LATENCY_MIN,
    REPLICATION_RECORD_AGE_AVG,
    REPLICATION_RECORD_AGE_MAX,
    REPLICATION_RECORD_AGE_MIN,
    REPLICATION_RECORDS,
    REPLICATION_RECORDS_RATE,
)
from twinlog.telemetry.metrics.service import FLOW_OWNER
from twinlog.telemetry.metrics.services import CHECKPOINT_LATENCY
from twinlog.telemetry.metrics.spec import DESTINATION, PARTITION, TWINLOG_SERVICE, flow_attributes
from twinlog.telemetry.strimzi_names import NAMES, StrimziRegistry

SOURCE, CHECKPOINT = (
    f"kafka_connect_mirror_mirror{connector}connector" for connector in ("source", "checkpoint")
)
BOARD: Mapping[str, frozenset[str]] = {
    **{
        f"{SOURCE}_{figure}": frozenset({"topic", "partition"})
        for figure in (
            "record_age_ms",
            "record_age_ms_avg",
            "record_age_ms_min",
            "record_age_ms_max",
            "replication_latency_ms",
            "replication_latency_ms_avg",
            "replication_latency_ms_min",
            "replication_latency_ms_max",
        )
    },
    f"{SOURCE}_record_rate": frozenset(),
    f"{SOURCE}_byte_rate": frozenset(),
    f"{CHECKPOINT}_checkpoint_latency_ms": frozenset({"source", "target", "topic", "partition", "group"}),
    "kafka_consumer_fetch_manager_records_lag": frozenset({"topic", "partition", "clientid"}),
    "kafka_consumer_incoming_byte_total": frozenset({"kubernetes_pod_name"}),
    "kafka_producer_outgoing_byte_total": frozenset({"kubernetes_pod_name"}),
    "kafka_connect_worker_connector_count": frozenset({"namespace"}),
    "kafka_connect_worker_task_count": frozenset(),
    "kafka_connect_coordinator_assigned_connectors": frozenset({"kubernetes_pod_name"}),
    "kafka_connect_coordinator_assigned_tasks": frozenset({"kubernetes_pod_name"}),
    "kafka_connect_worker_rebalance_rebalancing": frozenset(),
}
"""What the board of Strimzi 1.0 selects, and the labels that it groups by or filters on, without what it asks
of Connect's and Java's inside. It filters everything by `strimzi_io_kind` and `strimzi_io_cluster`."""
FLOW = flow_attributes("A", "B")
COPY = {**FLOW, DESTINATION: "A.orders"}

Series = dict[str, list[tuple[dict[str, str], float]]]


def measure(meter: Meter) -> None:
    """Something of everything that the names are made of."""
    instruments.counter(meter, REPLICATION_RECORDS).add(600, COPY)
    instruments.counter(meter, REPLICATION_IO).add(6000, COPY)
    instruments.counter(meter, REPLICATION_IO).add(4000, {**COPY, DESTINATION: "A.payments"})
    for seconds in (0.1, 0.3):
        instruments.histogram(meter, CHECKPOINT_LATENCY).record(seconds, FLOW)
    for spec, value, attributes in (
        (REPLICATION_RECORDS_RATE, 20.0, COPY),
        (REPLICATION_IO_RATE, 200.0, COPY),
        (REPLICATION_LATENCY_MIN, 0.01, COPY),
        (REPLICATION_LATENCY_AVG, 0.05, COPY),
        (REPLICATION_LATENCY_MAX, 0.25, COPY),
        (REPLICATION_RECORD_AGE_MIN, 0.01, COPY),
        (REPLICATION_RECORD_AGE_AVG, 0.02, COPY),
        (REPLICATION_RECORD_AGE_MAX, 0.03, COPY),
        (REPLICATION_LAG, 7, {**COPY, PARTITION: "3"}),
        (FLOW_OWNER, 1, {**FLOW, TWINLOG_SERVICE: "source"}),
    ):
        instruments.gauge(meter, spec, lambda value=value, at=attributes: [Observation(value, at)])  # type: ignore[misc]


def shown(registry: CollectorRegistry) -> Series:
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)])
    measure(provider.get_meter("test"))
    found: Series = {}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    provider.shutdown()
    return found


def test_every_query_of_the_board_that_has_a_counterpart_finds_series_with_its_labels() -> None:
    found = shown(StrimziRegistry(cluster="my-mm2", service="source"))
    for name, labels in BOARD.items():
        assert found[name], name
        for has, _ in found[name]:
            assert labels <= has.keys(), name
            assert has["strimzi_io_kind"] == "KafkaMirrorMaker2"
            assert has["strimzi_io_cluster"] == "my-mm2"
    for has, _ in found["kafka_consumer_fetch_manager_records_lag"]:
        assert has["clientid"].endswith('replication-consumer"')


def test_values_are_in_the_units_of_mirrormaker_2_and_added_up_where_labels_are_fewer() -> None:
    found = shown(StrimziRegistry(cluster="my-mm2", service="source"))
    values = {name: [value for _, value in series] for name, series in found.items()}
    assert values[f"{SOURCE}_replication_latency_ms_max"] == [250]
    assert values[f"{SOURCE}_record_age_ms"] == [20]
    assert values[f"{SOURCE}_record_count"] == [600]
    assert values[f"{CHECKPOINT}_checkpoint_latency_ms"] == pytest.approx([200])
    assert values["kafka_consumer_incoming_byte_total"] == [10_000]
    assert values["kafka_consumer_fetch_manager_records_lag"] == [7]
    assert values["kafka_connect_worker_rebalance_rebalancing"] == [0]


def test_our_own_names_stay_as_they_are_and_strimzis_come_only_where_they_are_asked_for() -> None:
    ours = shown(CollectorRegistry())
    both = shown(StrimziRegistry(cluster="my-mm2", service="source"))
    assert not [name for name in ours if name.startswith("kafka_")]
    assert {name: both[name] for name in ours if name != "target_info"} == {
        name: ours[name] for name in ours if name != "target_info"
    }
    assert {name.of for name in NAMES} <= ours.keys()


def test_the_key_names_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    text = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
    file.write_text(text)
    assert load(file, environ={}).runtime.strimzi_cluster == ""
    file.write_text(f"{text}twinlog.metrics.strimzi.cluster = my-mm2\n")
    assert load(file, environ={}).runtime.strimzi_cluster == "my-mm2"
