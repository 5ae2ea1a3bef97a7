"""Expiry times of a process's certificates and tokens, for Kafka clusters and for other services."""

from collections.abc import Callable, Mapping
from datetime import datetime

from opentelemetry.metrics import Meter, Observation

from twinlog.clock import Clock
from twinlog.errors import ConfigError
from twinlog.kafka.security.access import ClusterAccess
from twinlog.kafka.security.oauth.jwt import expiry_of, lifetime_of
from twinlog.kafka.security.oauth.reading import TokenOutlook
from twinlog.kafka.security.tls import client_certificate_validity
from twinlog.model import ClusterAlias
from twinlog.service.access.client import read_token
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.service import (
    LOGIN_CERTIFICATE_EXPIRY,
    LOGIN_CERTIFICATE_LIFETIME,
    TOKEN_EXPIRY,
    TOKEN_FAILING,
    TOKEN_LIFETIME,
)
from twinlog.telemetry.metrics.spec import CLUSTER, MetricSpec

READ_SECONDS = 60.0
"""Longest age of a reading: each scrape reads the files again after that, because renewed certificates keep
their names."""


class LoginCertificates:
    """The certificates that log in to clusters."""

    def __init__(self, clients: Mapping[ClusterAlias, Mapping[str, str]], *, clock: Clock) -> None:
        """`clients`: Kafka's client properties by cluster."""
        self._clients = clients
        self._clock = clock
        self._valid: dict[ClusterAlias, tuple[datetime, datetime]] = {}
        self._read_at = float("-inf")

    def observe(self, meter: Meter) -> None:
        instruments.gauge(meter, LOGIN_CERTIFICATE_EXPIRY, self.expiries)
        instruments.gauge(meter, LOGIN_CERTIFICATE_LIFETIME, self.lifetimes)

    def expiries(self) -> list[Observation]:
        """Seconds by cluster. Called from the scraper's thread, as `lifetimes`."""
        now_seconds = self._clock.now_ms() / 1000
        return [
            Observation(end.timestamp() - now_seconds, {CLUSTER: alias})
            for alias, (_, end) in self._known().items()
        ]

    def lifetimes(self) -> list[Observation]:
        """Seconds by cluster."""
        return [
            Observation((end - begin).total_seconds(), {CLUSTER: alias})
            for alias, (begin, end) in self._known().items()
        ]

    def _known(self) -> Mapping[ClusterAlias, tuple[datetime, datetime]]:
        now = self._clock.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._read()
        return self._valid

    def _read(self) -> None:
        for alias, properties in self._clients.items():
            try:
                valid = client_certificate_validity(properties, alias)
            except ConfigError:
                continue  # half written: the last reading stands
            if valid is not None:
                self._valid[alias] = valid


class Tokens:
    """The process's tokens. Reads those that its clients hold, and requests none."""

    def __init__(
        self, clients: Mapping[ClusterAlias, Mapping[str, str]], *, token_file: str, clock: Clock
    ) -> None:
        """`clients`: Kafka's client properties by cluster. `token_file`: holds the token for the other
        services; "" = none."""
        self._unread = dict(clients)
        self._clients: dict[ClusterAlias, ClusterAccess] = {}
        self._token_file = token_file
        self._clock = clock
        self._own: TokenOutlook | None = None
        self._seen = ("", 0.0)
        """The token in the file, and when it was first seen (seconds since 1970)."""
        self._read_at = float("-inf")

    def observe(self, meter: Meter) -> None:
        def publish(spec: MetricSpec, value: Callable[[TokenOutlook], float | None]) -> None:
            def observations() -> list[Observation]:
                return [
                    Observation(number, attributes)
                    for attributes, outlook in self.outlooks()
                    if (number := value(outlook)) is not None
                ]

            instruments.gauge(meter, spec, observations)

        def left(token: TokenOutlook) -> float | None:
            return None if token.expires_at is None else token.expires_at - self._now()

        publish(TOKEN_EXPIRY, left)
        publish(
            TOKEN_LIFETIME,
            lambda token: None if token.expires_at is None else token.lifetime_seconds,
        )
        publish(TOKEN_FAILING, lambda token: int(token.failing))

    def outlooks(self) -> list[tuple[dict[str, str], TokenOutlook]]:
        """By the attributes of its metrics. Called from the scraper's thread."""
        now = self._clock.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._read_clients()
            self._read_own()
        kept = {
            alias: access.keeper.outlook()
            for alias, access in self._clients.items()
            if access.keeper is not None
        }
        found = [({CLUSTER: alias}, token) for alias, token in kept.items() if token is not None]
        return found if self._own is None else [*found, ({}, self._own)]

    def _read_clients(self) -> None:
        for access in self._clients.values():
            access.refresh()
        for alias, properties in list(self._unread.items()):
            try:
                access = ClusterAccess(properties, alias=alias)
            except ConfigError:
                continue  # half written: its clients report it
            del self._unread[alias]
            if access.keeper is not None:
                self._clients[alias] = access

    def _read_own(self) -> None:
        if not self._token_file:
            return
        try:
            text = read_token(self._token_file)
        except ConfigError:
            before = self._own
            self._own = TokenOutlook(
                expires_at=None if before is None else before.expires_at,
                lifetime_seconds=0.0 if before is None else before.lifetime_seconds,
                failing=True,
            )
            return
        if text != self._seen[0]:
            self._seen = text, self._now()
        expires_at = expiry_of(text)
        self._own = TokenOutlook(
            expires_at=expires_at,
            lifetime_seconds=0.0 if expires_at is None else lifetime_of(text, expires_at, self._seen[1]),
            failing=False,
        )

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
