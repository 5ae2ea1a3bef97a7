"""Repeated lines, redaction, the metrics table and its page."""

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, NoOpMeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from twinlog.telemetry import metrics
from twinlog.telemetry.logging import configure_logging
from twinlog.telemetry.metrics_page import prometheus_name, render
from twinlog.telemetry.redaction import is_secret_key, redact, redact_text
from twinlog.telemetry.repeats import RepeatLimiter

METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_a_repeated_line_is_written_once_a_minute_with_the_number_left_out() -> None:
    limiter = RepeatLimiter(interval_seconds=60)

    written = [limiter.admit("away", now=float(second)) for second in range(0, 121, 20)]

    assert written == [0, None, None, 2, None, None, 2]
    assert limiter.admit("another", now=121) == 0


def test_the_limiter_forgets_the_oldest_key_beyond_its_bound() -> None:
    limiter = RepeatLimiter(interval_seconds=60, max_keys=2)
    for key in ("a", "b", "c"):
        limiter.admit(key, now=0)

    assert limiter.admit("b", now=1) is None
    assert limiter.admit("a", now=1) == 0


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "client_secret",
        "Authorization",
        "oauth.token",
        "A.sasl.jaas.config",
    ],
)
def test_secret_keys_are_recognised(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name", ["topic", "resume_token", "page_token", "partition", "ssl.truststore.location"]
)
def test_ordinary_keys_are_not_taken_for_secrets(name: str) -> None:
    assert not is_secret_key(name)


@pytest.mark.parametrize(
    "text",
    [
        'PlainLoginModule required username="u" password="hunter2";',
        "password=hunter2 rest",
        "sasl.password: hunter2",
        '{"ssl.key.password": "hunter2"}',
        "https://user:hunter2@host/path",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2 cut off",
    ],
)
def test_secrets_inside_a_text_are_blanked(text: str) -> None:
    assert "hunter2" not in redact_text(text)


def test_redaction_reaches_into_containers_and_leaves_the_rest_alone() -> None:
    event = {
        "event": "x",
        "properties": {"sasl.password": "hunter2", "client.id": "c"},
        "list": ["password=hunter2"],
        "n": 3,
    }

    shown = redact(event)

    assert "hunter2" not in json.dumps(shown)
    assert shown["properties"]["client.id"] == "c"
    assert shown["n"] == 3


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def test_our_lines_and_those_of_libraries_look_alike(log_stream: io.StringIO) -> None:
    configure_logging(service="source", version="1.2", format="json", level="info", stream=log_stream)

    structlog.stdlib.get_logger("twinlog.x").info("offset_sync_written", topic="t", partition=3)
    logging.getLogger("aiokafka.client").warning("Connection to %s lost, password=hunter2", "broker-1")
    logging.getLogger("aiokafka.client").info("not shown: client libraries talk per request")

    ours, theirs = (json.loads(line) for line in log_stream.getvalue().splitlines())
    assert ours["event"] == "offset_sync_written"
    assert (ours["topic"], ours["partition"]) == ("t", 3)
    assert theirs["event"].startswith("Connection to broker-1 lost")
    assert "hunter2" not in theirs["event"]
    for line in (ours, theirs):
        assert (line["service"], line["version"]) == ("source", "1.2")
        assert line["time"].endswith("Z")
        assert line["level"] in ("info", "warning")


def test_a_traceback_is_one_line_without_secrets(log_stream: io.StringIO) -> None:
    configure_logging(service="source", version="1", format="json", level="info", stream=log_stream)

    try:
        raise ValueError("cannot log in with password=hunter2")
    except ValueError:
        structlog.stdlib.get_logger("twinlog.x").exception("login_failed")

    (line,) = log_stream.getvalue().splitlines()
    assert "ValueError" in json.loads(line)["exception"]
    assert "hunter2" not in line


def test_every_metric_is_named_by_the_rules_and_only_once() -> None:
    names = [spec.name for spec in metrics.METRICS]
    assert len(set(names)) == len(names)
    for spec in metrics.METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", spec.name), spec.name
        assert not spec.name.endswith((".total", "_total", ".seconds", "_seconds", ".bytes", "_bytes")), (
            spec.name
        )
        assert (spec.kind is metrics.Kind.HISTOGRAM) == bool(spec.buckets), spec.name
        assert spec.buckets == tuple(sorted(spec.buckets)), spec.name


def test_every_spec_of_the_module_is_in_the_table() -> None:
    declared = {value.name for value in vars(metrics).values() if isinstance(value, metrics.MetricSpec)}
    assert declared == {spec.name for spec in metrics.METRICS}


def test_the_page_is_generated_from_the_table() -> None:
    assert METRICS_PAGE.read_text() == render(), (
        "run: python -m twinlog.telemetry.metrics_page docs/metrics.md"
    )


def test_no_code_names_a_metric_outside_the_table() -> None:
    """A name typed a second time would drift: the library and the services take the specs."""
    root = Path(__file__).parents[3]
    known = {spec.name for spec in metrics.METRICS}
    sources = [*root.glob("src/twinlog/**/*.py"), *root.glob("services/*/twinlog_*/**/*.py")]
    typed_again = [
        f"{path.relative_to(root)}: {name}"
        for path in sources
        if path.name != "metrics.py" and "api" not in path.parts
        for name in known
        if f'"{name}"' in path.read_text()
    ]
    assert typed_again == []


def test_names_in_prometheus_are_those_the_page_says() -> None:
    registry = CollectorRegistry()
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)])
    meter = provider.get_meter("test")
    for spec in metrics.METRICS:
        _record(meter, spec)

    exposed = {
        line.split("{", 1)[0]
        for line in generate_latest(registry).decode().splitlines()
        if not line.startswith("#")
    }
    provider.shutdown()

    expected = {name for spec in metrics.METRICS for name in _series_names(spec)}
    assert exposed - {"target_info"} == expected


def _record(meter: Meter, spec: metrics.MetricSpec) -> None:
    match spec.kind:
        case metrics.Kind.COUNTER:
            metrics.counter(meter, spec).add(1)
        case metrics.Kind.UP_DOWN_COUNTER:
            metrics.up_down_counter(meter, spec).add(1)
        case metrics.Kind.HISTOGRAM:
            metrics.histogram(meter, spec).record(1.0)
        case metrics.Kind.GAUGE:
            metrics.gauge(meter, spec, lambda: [Observation(1)])


def _series_names(spec: metrics.MetricSpec) -> set[str]:
    name = prometheus_name(spec)
    if spec.kind is not metrics.Kind.HISTOGRAM:
        return {name}
    base = name.removesuffix("_bucket / _sum / _count")
    return {f"{base}_bucket", f"{base}_sum", f"{base}_count"}


def test_an_instrument_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="is a histogram, not a counter"):
        metrics.counter(NoOpMeterProvider().get_meter("test"), metrics.REPLICATION_LATENCY)
