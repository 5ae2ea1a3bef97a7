"""The alerts of deploy/prometheus/alerts.yaml, as tests ask for them."""

from dataclasses import dataclass

import yaml
from deploy.observability.files import rules

RPO_SECONDS = 300
"""Recovery point objective: how old the oldest record that is not copied may be. The rules have it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    name: str
    severity: str
    """critical: wake somebody up, what is copied is late, wrong or lost. warning: look at it today."""
    expression: str
    """PromQL; one series for each thing that is wrong."""
    held: str
    """How long it must be so: `for` of the rule."""
    summary: str
    """One line, with Prometheus' templates."""
    first: str
    """The command to begin with, with Prometheus' templates."""
    runbook: str


ALERTS: tuple[Alert, ...] = tuple(
    Alert(
        name=rule["alert"],
        severity=rule["labels"]["severity"],
        expression=rule["expr"],
        held=rule["for"],
        summary=rule["annotations"]["summary"],
        first=rule["annotations"]["first"],
        runbook=rule["annotations"]["runbook_url"],
    )
    for rule in yaml.safe_load(rules())["groups"][0]["rules"]
)
