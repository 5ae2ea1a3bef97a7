"""A properties file as immutable, typed records. Positions and topic names are created elsewhere."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.config.client_settings import ClusterConfig
from twinlog.config.flow.settings import FlowConfig
from twinlog.config.keys.spec import Service
from twinlog.config.problems import Notice
from twinlog.config.runtime_settings import RuntimeSettings, ServiceEndpoints, SparkSettings
from twinlog.config.security import SecuritySettings
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow


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
