"""The sources of one flow's settings."""

from dataclasses import dataclass

from twinlog.config.problems import Findings
from twinlog.config.values.precedence import Settings
from twinlog.config.values.providers import Resolver
from twinlog.config.values.reader import SettingsReader
from twinlog.model import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSources:
    """Everything from which a flow's settings are read."""

    raw: Settings
    flow: Flow
    connector: Settings
    """The settings of the source connector; those of the other two differ only in `name` and
    `connector.class`."""
    worker: Settings
    read: SettingsReader
    read_worker: SettingsReader
    resolver: Resolver
    findings: Findings
