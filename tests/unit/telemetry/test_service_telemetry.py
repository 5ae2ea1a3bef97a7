"""Repeated lines, redaction, the metrics table and its page."""

import io
import json
import logging
import os
import re
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, NoOpMeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

from twinlog.config.keys.spec import Service
from twinlog.config.keys.table import BY_NAME
from twinlog.errors import ConfigError
from twinlog.service.app import fingerprint
from twinlog.service.errors_wire import status_of
from twinlog.telemetry import instruments
from twinlog.telemetry.logging import (
    MAX_ITEMS,
    MAX_TEXT_CHARACTERS,
    RepeatLimiter,
    blank_secrets,
    configure_logging,
    is_secret_key,
    redact,
    redact_text,
    toggle_debug,
)
from twinlog.telemetry.metrics import (
    METRICS,
    replication,
    service,
    services,
)
from twinlog.telemetry.metrics.replication import REPLICATION_LATENCY
from twinlog.telemetry.metrics.spec import Kind, MetricSpec
from twinlog.telemetry.metrics_page import prometheus_name, tables
from twinlog.telemetry.otlp import LogExport
from twinlog.telemetry.tracing import request_id_of
from twinlog.text_tables import renewed
from unit.cases import about

METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ALERTS = METRICS_PAGE.parents[1] / "deploy" / "prometheus" / "alerts.yaml"


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


def test_secrets_inside_a_text_are_blanked() -> None:
    for text in [
        'PlainLoginModule required username="u" password="hunter2";',
        "password=hunter2 rest",
        "sasl.password: hunter2",
        '{"ssl.key.password": "hunter2"}',
        "https://user:hunter2@host/path",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2 cut off",
        "Authorization: Bearer hunter2",
        "{'Authorization': 'Basic hunter2'}",
        "https://host/path?token=hunter2&x=1",
        "access_token=hunter2",
        "ssl.keystore.key: hunter2",
        'password="hunter2 cut off',
        r'password="a\"hunter2"',
        r"{\"password\": \"hunter2\"}",
        "value=password=hunter2",
        "redis://:hunter2@host",
    ]:
        with about(text):
            assert "hunter2" not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    ["resume_token: these bytes are no token", "the password is wrong", "tokens: 3", "page_token: unknown"],
)
def test_ordinary_texts_are_left_alone(text: str) -> None:
    assert redact_text(text) == text


def test_the_work_of_redaction_grows_with_the_text_and_not_with_its_square() -> None:
    """200,000 characters: one step too many for each pair of them would take many minutes, and no clock is
    asked."""
    for piece in [
        *("a", "passwd", "password", "token", "a.", "a ", "a:", " =", "http://", "a://b:", 'secret"'),
        *("password=", 'password="', "p='\\", 'password="\\', 'password=\\"', "password:\t\n "),
        *(
            "-----BEGIN ",
            "-----BEGIN A PRIVATE KEY-----",
            "-----END A",
            "Authorization: Bearer ",
            "resume_token",
        ),
    ]:
        with about(piece):
            text = piece * (200_000 // len(piece))
            blank_secrets(text)
            blank_secrets(text + "=")
            assert len(redact_text(text)) <= len(text)


def test_a_long_text_is_cut_before_it_is_looked_at() -> None:
    shown = redact_text("x" * (MAX_TEXT_CHARACTERS + 5) + " password=hunter2")
    assert shown == "x" * MAX_TEXT_CHARACTERS + "… (22 characters left out)"


def test_whatever_lies_deep_or_in_an_object_is_looked_at_too() -> None:
    deep: object = "password=hunter2"
    for _ in range(20):
        deep = {"a": [deep]}
    shown = redact({"deep": deep, "bytes": b"password=hunter2", "error": ValueError("token=hunter2")})
    assert "hunter2" not in repr(shown)
    assert json.loads(json.dumps(shown))["error"] == "token=***"


def test_a_container_of_a_log_line_is_bounded() -> None:
    shown = redact({"groups": ["g"] * 5_000, "values": {str(number): number for number in range(5_000)}})
    assert shown["groups"][-1] == "… 4000 more"
    assert len(shown["groups"]) == len(shown["values"]) == MAX_ITEMS + 1


@pytest.mark.parametrize("given", ["a", "3f0c-77_x.Y", "x" * 64])
def test_a_sound_request_id_is_taken_over(given: str) -> None:
    assert request_id_of(given) == given


@pytest.mark.parametrize("given", [None, "", "x" * 65, "a b", "a\n", "ä", "passwd=x", b"bytes", "\x1b[31m"])
def test_any_other_request_id_is_replaced(given: str | bytes | None) -> None:
    assert re.fullmatch("[0-9a-f]{16}", request_id_of(given))


def test_an_error_that_repeats_a_long_text_fits_into_a_status() -> None:
    long = "x" * 1_000_000
    error = ConfigError(
        f"{long} is no name", metadata={"key": long, **dict.fromkeys(map(str, range(100)), long)}
    )
    status = status_of(error, service="source")
    assert status.ByteSize() < 30 * 1024
    assert status.message.startswith("xxx")
    assert len(status.message) < 2_000


@pytest.mark.parametrize("character", ["x", "%", "\n", "é", "漢", "😀"])
def test_an_error_fits_into_trailers_whatever_its_characters(character: str) -> None:
    """gRPC percent-encodes the message and writes details in base64; clients take 8 KB of both."""
    metadata = {f"{number}{character * 400}": character * 400 for number in range(30)}
    error = ConfigError(character * 5_000, metadata={"key": "groups", **metadata})
    status = status_of(error, service="checkpoint")
    trailers = len(quote(status.message, safe=" ")) + len(b64encode(status.SerializeToString()))
    assert trailers < 7_500
    assert status.message.startswith(character * 100)


def test_the_fingerprint_of_a_file_tells_nothing_of_its_secrets(tmp_path: Path) -> None:
    def of(text: str) -> str:
        file = tmp_path / "mm2.properties"
        file.write_text(text)
        return fingerprint(str(file))

    first = of("A.sasl.password = hunter2\ntopics = a\nurl = http://u:hunter2@h\n")
    assert first == of("A.sasl.password = other\ntopics = a\nurl = http://u:other@h\n")
    assert first != of("A.sasl.password = hunter2\ntopics = b\nurl = http://u:hunter2@h\n")


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


def test_lines_that_nobody_reads_are_left_out_and_counted() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb") as reader:
        configure_logging(service="source", version="1", format="json", stream=stream)
        log = structlog.stdlib.get_logger("twinlog.test")
        log.info("nobody_reads")
        log.info("nobody_reads")
        os.set_blocking(reading, False)
        while reader.read(65536):
            pass
        log.info("somebody_reads")
        [line] = reader.read().splitlines()
    assert json.loads(line)["event"] == "somebody_reads"
    assert json.loads(line)["lines_left_out"] == 2


def test_details_are_logged_for_as_long_as_somebody_wants_them(log_stream: io.StringIO) -> None:
    configure_logging(service="source", version="1", format="json", level="warning", stream=log_stream)
    log, library = structlog.stdlib.get_logger("twinlog.x"), logging.getLogger("aiokafka.client")
    levels = []
    for _ in range(2):
        levels.append(toggle_debug("warning"))
        log.debug("detail")
        library.debug("a request")
    assert levels == ["debug", "warning"]
    assert [json.loads(line)["event"] for line in log_stream.getvalue().splitlines()] == [
        "detail",
        "a request",
    ]


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
    names = [spec.name for spec in METRICS]
    assert len(set(names)) == len(names)
    for spec in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", spec.name), spec.name
        assert not spec.name.endswith((".total", "_total", ".seconds", "_seconds", ".bytes", "_bytes")), (
            spec.name
        )
        assert (spec.kind is Kind.HISTOGRAM) == bool(spec.buckets), spec.name
        assert spec.buckets == tuple(sorted(spec.buckets)), spec.name


def test_each_metric_is_measured() -> None:
    root = Path(__file__).parents[3]
    sources = [*root.glob("src/twinlog/**/*.py"), *root.glob("services/*/twinlog_*/**/*.py")]
    code = "\n".join(path.read_text() for path in sources if path.parent.name != "metrics")
    names = [
        name
        for module in (service, replication, services)
        for name, spec in vars(module).items()
        if isinstance(spec, MetricSpec)
    ]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_the_page_is_generated_from_the_table() -> None:
    page = METRICS_PAGE.read_text()
    assert page == renewed(page, tables()), (
        ".venv/bin/python -m twinlog.telemetry.metrics_page docs/metrics.md"
    )


def test_no_code_names_a_metric_outside_the_table() -> None:
    """A name typed a second time would drift: the library and the services take the specs."""
    root = Path(__file__).parents[3]
    known = {spec.name for spec in METRICS}
    sources = [*root.glob("src/twinlog/**/*.py"), *root.glob("services/*/twinlog_*/**/*.py")]
    typed_again = [
        f"{path.relative_to(root)}: {name}"
        for path in sources
        if not {"metrics", "api"} & set(path.parts)
        for text in (path.read_text(),)
        for name in known
        if f'"{name}"' in text
    ]
    assert typed_again == []


def test_names_in_prometheus_are_those_the_page_says() -> None:
    registry = CollectorRegistry()
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)])
    meter = provider.get_meter("test")
    for spec in METRICS:
        _record(meter, spec)

    exposed = {
        line.split("{", 1)[0]
        for line in generate_latest(registry).decode().splitlines()
        if not line.startswith("#")
    }
    provider.shutdown()

    expected = {name for spec in METRICS for name in _series_names(spec)}
    assert exposed - {"target_info"} == expected


def _record(meter: Meter, spec: MetricSpec) -> None:
    match spec.kind:
        case Kind.COUNTER:
            instruments.counter(meter, spec).add(1)
        case Kind.UP_DOWN_COUNTER:
            instruments.observed_sum(meter, spec, lambda: [Observation(1)])
        case Kind.HISTOGRAM:
            instruments.histogram(meter, spec).record(1.0)
        case Kind.GAUGE:
            instruments.gauge(meter, spec, lambda: [Observation(1)])


def _series_names(spec: MetricSpec) -> set[str]:
    name = prometheus_name(spec)
    if spec.kind is not Kind.HISTOGRAM:
        return {name}
    base = name.removesuffix("_bucket / _sum / _count")
    return {f"{base}_bucket", f"{base}_sum", f"{base}_count"}


def test_an_instrument_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="is a histogram, not a counter"):
        instruments.counter(NoOpMeterProvider().get_meter("test"), REPLICATION_LATENCY)


def test_a_collector_that_is_away_is_told_of_seldom(log_stream: io.StringIO) -> None:
    configure_logging(service="source", version="1", format="json", stream=log_stream)
    exporter = logging.getLogger("opentelemetry.exporter.otlp")
    for _ in range(20):
        exporter.warning("Transient error UNAVAILABLE, retrying")
    logging.getLogger("twinlog.test").warning("ours")
    logging.getLogger("twinlog.test").warning("ours")
    lines = log_stream.getvalue().splitlines()
    assert len([line for line in lines if "Transient" in line]) == 1
    assert len([line for line in lines if "ours" in line]) == 2


def test_a_line_that_cannot_be_exported_never_fails_who_writes_it(
    log_stream: io.StringIO,
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("the queue is shut down")

    configure_logging(service="source", version="1", format="json", level="info", stream=log_stream)
    export = LogExport(broken)
    logging.getLogger().addHandler(export)
    try:
        logging.getLogger("twinlog.test").info("copied")
    finally:
        logging.getLogger().removeHandler(export)
    assert "copied" in log_stream.getvalue()


def test_the_scrape_job_of_the_page_has_the_default_addresses_of_all_services() -> None:
    (job,) = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", METRICS_PAGE.read_text(), re.DOTALL)[0])[
        "scrape_configs"
    ]
    listen = {str(BY_NAME[f"twinlog.{service}.metrics.listen"].default) for service in Service}
    assert {target for each in job["static_configs"] for target in each["targets"]} == listen
    assert f'up{{job="{job["job_name"]}"}}' in ALERTS.read_text()
