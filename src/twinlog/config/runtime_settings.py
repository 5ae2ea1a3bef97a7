"""The settings of processes: addresses, Spark, logs. Times are in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from twinlog.config.loopback import is_loopback


class LogFormat(StrEnum):
    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int
    """0 = any free one."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it can only be reached from this machine."""
        return is_loopback(self.host)

    def dialled_from_here(self) -> "Address":
        """The loopback address instead of one that means all interfaces."""
        loopback = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared with, not bound to
        return replace(self, host=loopback.get(self.host, self.host))

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port`, `[::1]:port`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isdecimal()):
            raise ValueError(f"{text!r} is not an address: expected HOST:PORT")
        return cls(host=host, port=int(port))

    def excludes(self, other: "Address") -> bool:
        """Whether two servers on one machine cannot have both addresses: the same port of one host or of
        all."""
        every = ("0.0.0.0", "[::]")  # noqa: S104 (compared with, not bound)
        same_host = self.host == other.host or self.host in every or other.host in every
        return self.port == other.port != 0 and same_host


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoints:
    listen: Address
    listen_is_default: bool
    """It is the default: `twinlog run` takes a free port if another run uses it."""
    endpoint: Address
    """Where other processes reach it."""
    metrics_listen: Address | None
    """None = no metrics endpoint."""
    metrics_is_default: bool
    """It is the default: a free port is taken if the default one is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    master: str
    conf: Mapping[str, str] = field(repr=False)
    """`twinlog.spark.conf.<name>` without the prefix. May contain secrets."""
    worker_endpoint: Address | None
    """Where tasks on other machines reach the source service; None = where it listens for them."""
    worker_listen: Address | None = None
    """Where the source service listens for its tasks; None = see `twinlog.source.worker.listen`."""

    @property
    def is_local(self) -> bool:
        """Whether tasks run inside the service."""
        return self.master.startswith("local")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    drain_seconds: float
    grace_seconds: float
    owner_timeout_seconds: float
    log_level: str
    log_format: LogFormat
    strimzi_cluster: str = ""
    """The cluster name under which Strimzi's dashboard shows the metrics; empty: not at all."""
