"""When the certificates end with which a process logs in to Kafka clusters."""

from collections.abc import Mapping
from datetime import datetime

from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.errors import ConfigError
from twinlog.kafka.security.tls import client_certificate_end
from twinlog.model import ClusterAlias
from twinlog.telemetry import metrics

READ_SECONDS = 60.0
"""Files are read again so often at most, when somebody scrapes: new certificates come under the old names."""


class LoginCertificates:
    """Of each cluster that is logged in to by a certificate."""

    def __init__(self, clients: Mapping[ClusterAlias, Mapping[str, str]], *, clock: Clock) -> None:
        """`clients`: Kafka's client properties by cluster."""
        self._clients = clients
        self._clock = clock
        self._ends: dict[ClusterAlias, datetime] = {}
        self._read_at = float("-inf")

    def observe(self, meter: Meter) -> None:
        metrics.gauge(meter, metrics.LOGIN_CERTIFICATE_EXPIRY, self.expiries)

    def expiries(self) -> list[Observation]:
        """Seconds by cluster. Called from the scraper's thread."""
        now = self._clock.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._read()
        return [
            Observation(end.timestamp() - self._clock.now_ms() / 1000, {metrics.CLUSTER: alias})
            for alias, end in self._ends.items()
        ]

    def _read(self) -> None:
        for alias, properties in self._clients.items():
            try:
                end = client_certificate_end(properties, alias)
            except ConfigError:
                continue  # half written: what was read last stands
            if end is not None:
                self._ends[alias] = end
