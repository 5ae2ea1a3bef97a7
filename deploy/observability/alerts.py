"""The alerts of deploy/prometheus/alerts.yaml, as boards, docs and tests ask for them. docs/alerts.md has a
section for each."""

from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).parents[1] / "prometheus" / "alerts.yaml"
RUNBOOK = "http://127.0.0.1:8890/alerts.html"
"""Where docs/alerts.md is read, by default: on the live page. `#` and an alert's small name follow."""
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
    runbook: str


def rules(*, runbook: str = RUNBOOK) -> str:
    """The file of rules that Prometheus reads; `runbook` is the address of docs/alerts.md."""
    return FILE.read_text().replace(f" {RUNBOOK}#", f" {runbook}#")


ALERTS: tuple[Alert, ...] = tuple(
    Alert(
        name=rule["alert"],
        severity=rule["labels"]["severity"],
        expression=rule["expr"],
        held=rule["for"],
        summary=rule["annotations"]["summary"],
        runbook=rule["annotations"]["runbook_url"],
    )
    for rule in yaml.safe_load(rules())["groups"][0]["rules"]
)
