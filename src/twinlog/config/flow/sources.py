"""What the settings of one flow are read from."""

from dataclasses import dataclass

from twinlog.config.problems import Findings
from twinlog.config.values.precedence import Settings
from twinlog.config.values.providers import Resolver
from twinlog.config.values.reader import SettingsReader
from twinlog.model import Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSources:
    """Everything a flow's settings are read from."""

    raw: Settings
    flow: Flow
    connector: Settings
    """Settings of the source connector; those of the other two differ in `name` and `connector.class`
    only."""
    worker: Settings
    read: SettingsReader
    read_worker: SettingsReader
    resolver: Resolver
    findings: Findings
