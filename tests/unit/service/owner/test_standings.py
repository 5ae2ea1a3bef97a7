"""Readiness follows ownership and the first pass; the metrics say who owns what, and what a process costs."""

import os

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from twinlog.model import Flow
from twinlog.service.owner.servicer import FlowStandings
from twinlog.telemetry.process import descendants, observe_process, resident_bytes
from unit.metric_points import counted

A_TO_B, B_TO_A = Flow("A", "B"), Flow("B", "A")


def observed() -> tuple[FlowStandings, InMemoryMetricReader, MeterProvider]:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    return FlowStandings.observed("source", provider.get_meter("test")), reader, provider


def values(reader: InMemoryMetricReader) -> dict[str, list[NumberDataPoint]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [point for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_process_is_ready_once_each_flow_has_an_owner_and_its_own_have_begun() -> None:
    standings, _, provider = observed()
    owns: dict[Flow, bool | None] = {A_TO_B: None, B_TO_A: False}
    begun: set[Flow] = set()
    for flow in owns:
        standings.add(flow, lambda flow=flow: owns[flow])  # type: ignore[misc]

    def ready() -> bool:
        return standings.is_ready(lambda flow: flow in begun)

    assert not ready()
    owns[A_TO_B] = True
    assert not ready()
    begun.add(A_TO_B)
    assert ready()
    owns[B_TO_A] = True
    assert not ready()
    owns[B_TO_A] = None
    assert not ready()
    provider.shutdown()


def test_a_process_without_flows_is_ready() -> None:
    standings, _, provider = observed()
    assert standings.is_ready(lambda _: False)
    provider.shutdown()


def test_who_owns_a_flow_and_how_often_that_changed_are_metrics() -> None:
    standings, reader, provider = observed()
    standings.add(A_TO_B, lambda: True)
    standings.add(B_TO_A, lambda: None)
    standings.owner_changed(A_TO_B)
    standings.owner_changed(A_TO_B)

    assert counted(reader, "twinlog.flow.owner", "twinlog.source.cluster") == {("A",): 1, ("B",): 0}
    # An increase is seen only in a series that exists from the beginning.
    assert counted(reader, "twinlog.flow.owner.changes", "twinlog.source.cluster") == {("A",): 2, ("B",): 0}
    provider.shutdown()


def test_what_a_process_costs_is_read_when_somebody_asks() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    observe_process(provider.get_meter("test"))

    found = values(reader)
    assert found["process.memory.usage"][0].value > 1_000_000
    assert found["process.unix.file_descriptor.count"][0].value >= 3
    modes = {point.attributes["cpu.mode"] for point in found["process.cpu.time"] if point.attributes}
    assert modes == {"user", "system"}
    assert found["process.uptime"][0].value >= 0
    provider.shutdown()


def test_a_process_that_is_gone_has_no_memory_and_init_has_descendants() -> None:
    assert resident_bytes(2**22 + 1) is None
    assert resident_bytes(os.getpid())
    assert os.getpid() in descendants(os.getppid())
