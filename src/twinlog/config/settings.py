"""A properties file as immutable, typed records. Positions and topic names are created elsewhere."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from twinlog.config.client_settings import ClusterConfig
from twinlog.config.flow.settings import FlowConfig
from twinlog.config.keys.spec import Service
from twinlog.config.security import SecuritySettings, is_loopback
from twinlog.config.values.reader import Notice, of_key
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow

# The settings of processes: addresses, Spark, logs. Times are in seconds.


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
    drain_seconds: float = field(metadata=of_key("twinlog.drain.seconds"))
    grace_seconds: float = field(metadata=of_key("twinlog.grace.seconds"))
    owner_timeout_seconds: float = field(metadata=of_key("twinlog.owner.timeout.seconds"))
    log_level: str = field(metadata=of_key("twinlog.log.level"))
    log_format: LogFormat = field(metadata=of_key("twinlog.log.format"))


class ConfigurationBase(Protocol):
    """The file as it was read, to create a configuration again with other values for some keys. Contains
    secrets."""

    def with_overrides(self, overrides: Mapping[str, str]) -> "Configuration":
        """The same file with these literal properties on top; references in them are refused
        (REFERENCE_REFUSED). Raises ConfigError. Blocks as `load` does."""
        ...

    def whole_file(self) -> "Configuration":
        """The same file with all of its flows, including those that this process does not run. Raises
        ConfigError. Blocks as `load` does."""
        ...

    def written_values(self, flow: Flow, keys: Collection[str]) -> Mapping[str, str]:
        """The values of those of these keys that the file has for a flow."""
        ...

    def other_flow(self, flow: Flow) -> "Configuration | None":
        """The same file with this flow alone, which another process may run; None if the file does not run
        it. Raises ConfigError. Blocks as `load` does."""
        ...

    def flow_values(self, flow: Flow, keys: Collection[str]) -> Mapping[str, str]:
        """The values of these keys for a flow: as written, or their defaults; keys without either are left
        out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The result of `load`."""

    file: str
    clusters: Mapping[ClusterAlias, ClusterConfig]
    flows: tuple[FlowConfig, ...]
    """Every flow, including those that only carry heartbeats; in the order of `clusters`."""
    endpoints: Mapping[Service, ServiceEndpoints]
    spark: SparkSettings
    runtime: RuntimeSettings
    security: SecuritySettings = field(default_factory=SecuritySettings)
    notices: tuple[Notice, ...] = ()
    base: ConfigurationBase | None = field(default=None, repr=False, compare=False)
    """The file it was created from; None if it was created by hand."""

    @property
    def enabled_flows(self) -> tuple[FlowConfig, ...]:
        """Flows that replicate."""
        return tuple(flow for flow in self.flows if flow.enabled)

    def flow(self, flow: Flow) -> FlowConfig:
        """Raises ConfigError, which lists the known flows."""
        for candidate in self.flows:
            if candidate.flow == flow:
                return candidate
        known = ", ".join(str(candidate.flow) for candidate in self.flows)
        raise ConfigError(
            f"{self.file}: there is no flow {flow}; flows: {known}", metadata={"flow": str(flow)}
        )
