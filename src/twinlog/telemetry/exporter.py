"""Exports telemetry: a Prometheus pull endpoint, unless the configuration disables it, and OTLP when the
environment asks for it.

The OpenTelemetry SDK is imported only when it is needed: without an endpoint a service loads only the API.
"""

import errno
import inspect
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import structlog
from opentelemetry.metrics import Meter, NoOpMeterProvider

from twinlog.config import Address
from twinlog.telemetry.otlp import Otlp, open_otlp, refused_setting, resource_of, wanted

_log = structlog.stdlib.get_logger(__name__)

MOST_SERIES = 1_000_000
"""Of an instrument: Kafka clusters have fewer partitions."""


SCRAPE_SECONDS = 60.0
"""How long a scrape may take. The SDK gives up after 10 s, which 100,000 partitions need on a busy machine; a
scraper has a patience of its own."""


@dataclass(slots=True, kw_only=True)
class Telemetry(AbstractContextManager["Telemetry"]):
    """The meter of the process; closing it ends the endpoint and flushes."""

    meter: Meter
    port: int = 0
    """The bound port of the endpoint; 0 when there is none."""
    _otlp: Otlp | None = None
    _server: Any = field(default=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._otlp is not None:
            self._otlp.close()


def open_telemetry(
    *,
    service: str,
    version: str,
    instance_id: str,
    listen: Address | None = None,
    make_way: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Telemetry:
    """Metrics of one service; `listen` is the address of the Prometheus endpoint (port 0 = a free one).

    `make_way`: take a free port when that one is in use. `environment`: holds OpenTelemetry's variables, by
    default the process's.

    An endpoint that cannot be opened and a signal with invalid OpenTelemetry variables are logged and left
    out: telemetry never stops a service.
    """
    signals = wanted(os.environ if environment is None else environment)
    if listen is None and not signals:
        return Telemetry(meter=NoOpMeterProvider().get_meter("twinlog", version))
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

    from twinlog.telemetry.metrics_server import serve_metrics

    registry = CollectorRegistry()
    resource = resource_of(service, version, **{"service.instance.id": instance_id})
    otlp = open_otlp(signals, resource=resource)
    readers = [] if listen is None else [PrometheusMetricReader(registry=registry)]
    for reader in readers:
        reader._collector._callback = partial(reader.collect, timeout_millis=SCRAPE_SECONDS * 1000)  # type: ignore[assignment]
    try:
        provider = MeterProvider(
            resource=resource,
            metric_readers=[*readers, *otlp.metric_readers],
            shutdown_on_exit=False,
            views=[_without_limit()],
        )
    except Exception as error:  # noqa: BLE001 (the SDK refuses its variables in many ways)
        refused_setting("METRICS", error)
        otlp.ends += [reader.shutdown for reader in otlp.metric_readers]
        return Telemetry(meter=NoOpMeterProvider().get_meter("twinlog", version), _otlp=otlp)
    otlp.ends.append(provider.shutdown)
    telemetry = Telemetry(meter=provider.get_meter("twinlog", version), _otlp=otlp)
    if listen is None:
        return telemetry
    key = f"twinlog.{service}.metrics.listen"
    for port in (listen.port, 0) if make_way else (listen.port,):
        try:
            server = serve_metrics(listen, port, registry)
        except OSError as error:
            is_in_use = error.errno == errno.EADDRINUSE
            if is_in_use and make_way and port != 0:
                continue
            _log.error(
                "metrics_endpoint_unavailable",
                key=key,
                address=str(listen),
                reason="ADDRESS_IN_USE" if is_in_use else "ADDRESS_INVALID",
                message=str(error),
                remedy=f"choose another {key}; port 0 takes a free one",
            )
            return telemetry
        break
    telemetry._server = server
    telemetry.port = server.server_port
    if listen.port not in (0, telemetry.port):
        _log.warning(
            "metrics_address_taken",
            key=key,
            reason="ADDRESS_IN_USE",
            wanted=str(listen),
            message=f"another process has {listen}: metrics are at port {telemetry.port} until the next"
            f" start; choose an address of its own with {key}",
        )
    _log.info("metrics_listening", address=f"{listen.host}:{telemetry.port}")
    if not listen.is_loopback:
        _log.warning(
            "metrics_open",
            key=key,
            address=str(listen),
            message="everybody who reaches this address reads the names of topics, groups and hosts: metrics"
            " have no TLS and no authentication, so let only your scraper reach it, or listen on 127.0.0.1",
        )
    return telemetry


def _without_limit() -> Any:
    """Every series of every instrument: by default the SDK counts those behind the first 2,000, as of
    partitions, as one series without a name. Releases without that limit do not know its argument."""
    from opentelemetry.sdk.metrics.view import View

    known = inspect.signature(View).parameters
    limit: dict[str, Any] = (
        {"aggregation_cardinality_limit": MOST_SERIES} if "aggregation_cardinality_limit" in known else {}
    )
    return View(instrument_name="*", **limit)
