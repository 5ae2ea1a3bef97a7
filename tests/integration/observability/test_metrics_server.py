"""The port of metrics, as strangers meet it."""

import http.client
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import structlog
from opentelemetry.metrics import Observation
from prometheus_client import CollectorRegistry, Counter

from twinlog.config import Address
from twinlog.telemetry.exporter import open_telemetry
from twinlog.telemetry.metrics_server import MAX_CONNECTIONS, SILENT_SECONDS, serve_metrics
from twinlog.testing.brokers import eventually

PATIENCE_SECONDS = 120.0


@contextmanager
def metrics(host: str = "127.0.0.1", seconds: float = SILENT_SECONDS) -> Iterator[int]:
    registry = CollectorRegistry()
    Counter("seen", "so that there is one", registry=registry)
    server = serve_metrics(Address(host=host, port=0), 0, registry, silent_seconds=seconds)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def answer(port: int, host: str = "localhost", path: str = "/metrics") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1:17411", "localhost:17411", "[::1]:17411", "localhost"])
def test_this_machines_own_names_are_answered(host: str) -> None:
    with metrics() as port:
        assert answer(port, host) == 200


def test_another_sites_name_for_this_machine_is_refused_on_loopback_alone() -> None:
    with metrics() as port:
        assert answer(port, "evil.example:17411") == 421
    with metrics("0.0.0.0") as port:
        assert answer(port, "source.example:17411") == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/ready", "/metrics/more"])
def test_a_path_that_says_nothing_of_health_is_no_healthy_answer_to_a_probe(path: str) -> None:
    with metrics() as port:
        assert answer(port, path=path) == 404
        assert answer(port, path="/metrics?name[]=up") == 200


@pytest.mark.parametrize(("host", "told"), [("127.0.0.1", 0), ("0.0.0.0", 1)])
def test_metrics_that_others_reach_are_told_at_the_start(host: str, told: int) -> None:
    with structlog.testing.capture_logs() as lines:
        listen = Address(host=host, port=0)
        telemetry = open_telemetry(
            service="heartbeat", version="1", instance_id="one", listen=listen, environment={}
        )
        with telemetry:
            pass
    assert [line["log_level"] for line in lines if line["event"] == "metrics_open"] == ["warning"] * told


def test_every_series_of_a_large_cluster_has_its_name() -> None:
    """By default the SDK counts those behind the first 2,000 as one."""
    telemetry = open_telemetry(
        service="source",
        version="1",
        instance_id="one",
        listen=Address(host="127.0.0.1", port=0),
        environment={},
    )
    with telemetry:
        telemetry.meter.create_observable_gauge(
            "lag", [lambda _: [Observation(1, {"partition": number}) for number in range(3_000)]]
        )
        url = f"http://127.0.0.1:{telemetry.port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as scraped:
            lines = scraped.read().decode().splitlines()
    assert sum(line.startswith("lag{") and "partition=" in line for line in lines) == 3_000


async def test_a_request_that_comes_byte_by_byte_is_given_up_as_a_whole() -> None:
    with (
        metrics(seconds=0.5) as port,
        socket.create_connection(("127.0.0.1", port), timeout=0.1) as slow,
    ):
        slow.sendall(b"GET /metrics?")

        def is_closed() -> bool:
            try:
                slow.sendall(b"x")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        await eventually(is_closed)
        assert answer(port) == 200


async def test_connections_that_say_nothing_are_bounded_and_leave_room_when_they_end() -> None:
    with metrics() as port, ExitStack() as silent:
        for _ in range(MAX_CONNECTIONS):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS))
        one_more = silent.enter_context(
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        )
        assert one_more.recv(1) == b""
        silent.close()

        def has_room() -> bool:
            try:
                return answer(port, "localhost") == 200
            except OSError:
                return False

        await eventually(has_room)


def test_a_scrape_that_takes_longer_than_the_sdk_grants_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of 100,000 partitions on a busy machine: time passes while the gauges are read."""
    now_ns = 10**18

    def time_ns() -> int:
        nonlocal now_ns
        now_ns += 11 * 10**9
        return now_ns

    monkeypatch.setattr("opentelemetry.sdk.metrics._internal.measurement_consumer.time_ns", time_ns)
    telemetry = open_telemetry(
        service="source", version="1", instance_id="1", listen=Address.parse("127.0.0.1:0"), environment={}
    )
    with telemetry:
        telemetry.meter.create_observable_gauge("one", [lambda _: [Observation(1)]])
        assert answer(telemetry.port) == 200
