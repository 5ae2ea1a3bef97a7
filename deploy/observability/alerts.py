"""The alerts of Twinlog, as rules of Prometheus. docs/alerts.md has a section for each."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

RUNBOOK = "http://127.0.0.1:8890/alerts.html"
"""Where docs/alerts.md is read, by default: on the live page. `#` and an alert's small name follow."""
RPO_SECONDS = 300
"""Recovery point objective: how old the oldest record that is not copied may be. Yours may be another."""

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
FLOW = "twinlog_source_cluster, twinlog_target_cluster"
_FLOW_WORDS = "{{ $labels.twinlog_source_cluster }}->{{ $labels.twinlog_target_cluster }}"
_TOPIC = "{{ $labels.messaging_destination_name }}"
_VALUE = "{{ $value | humanize }}"
_SECONDS = "{{ $value | humanizeDuration }}"
OF_PRODUCERS = f"and on ({FLOW}, messaging_destination_name) twinlog_replication_source_end"
"""After a metric by topic: heartbeats, which Twinlog writes itself, are left out."""
_HELD = "DELAYED|UNTIL_REACHED"
"""Reasons of partitions that wait on purpose."""
_UNTRANSLATED = "FLOOR|NO_SYNC|TOO_OLD|SOURCE_UNREADABLE|TARGET_UNREADABLE|PAST_END"


class Severity(StrEnum):
    CRITICAL = "critical"
    """Wake somebody up: what is copied is late, wrong or lost."""
    WARNING = "warning"
    """Look at it today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    name: str
    severity: Severity
    expression: str
    """PromQL; one series for each thing that is wrong."""
    held: str
    """How long it must be so: `for` of the rule."""
    summary: str
    """One line, with Prometheus' templates."""

    def runbook(self, place: str = RUNBOOK) -> str:
        return f"{place}#{self.name.lower()}"


def _grew(counter: str, *by: str) -> str:
    """What a counter grew by in an hour. It appears with the first event, which `increase` does not see."""
    return f"sum by ({', '.join([FLOW, *by])}) (\n  ({counter} - {counter} offset 1h)\n  or {counter}\n)"


def _paused(flow: str = FLOW) -> str:
    """Flows of which every partition is paused."""
    every = f"sum by ({flow}) (twinlog_replication_partitions)"
    paused = f'sum by ({flow}) (twinlog_replication_partitions{{twinlog_state="PAUSED"}})'
    return f"({paused} == {every})"


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="TwinlogServiceDown",
        severity=Severity.CRITICAL,
        expression="\nor ".join(
            [
                'up{job="twinlog"} == 0',
                *(f'absent(twinlog_service_ready{{twinlog_service="{service}"}})' for service in SERVICES),
            ]
        ),
        held="2m",
        summary="{{ $labels.twinlog_service }}{{ $labels.instance }}: a service exports no metrics",
    ),
    Alert(
        name="TwinlogServiceNotReady",
        severity=Severity.WARNING,
        expression="min by (twinlog_service, instance) (twinlog_service_ready) == 0",
        held="5m",
        summary="{{ $labels.twinlog_service }} runs and is not ready: a flow has no owner at work",
    ),
    Alert(
        name="TwinlogClusterUnreachable",
        severity=Severity.CRITICAL,
        expression="min by (twinlog_cluster) (twinlog_cluster_reachable) == 0",
        held="2m",
        summary="Cluster {{ $labels.twinlog_cluster }} does not answer a service of Twinlog",
    ),
    Alert(
        name="TwinlogNothingCopied",
        severity=Severity.CRITICAL,
        expression=(
            f"(sum by ({FLOW}) (twinlog_replication_behind"
            f'{{twinlog_state!="PAUSED", error_type!~"{_HELD}"}}) > 0)\n'
            f"unless (sum by ({FLOW}) (rate(twinlog_replication_records_total[5m]) {OF_PRODUCERS}) > 0)\n"
            'or absent(twinlog_flow_owner{twinlog_service="source"})'
        ),
        held="5m",
        summary=(
            f"{{{{ if $labels.twinlog_source_cluster }}}}{_FLOW_WORDS}: there is something to copy, and"
            " nothing has been copied for 5 minutes{{ else }}no process of Twinlog copies any flow{{ end }}"
        ),
    ),
    Alert(
        name="TwinlogLagOverRpo",
        severity=Severity.CRITICAL,
        expression=f"max by ({FLOW}) (twinlog_replication_overdue_seconds) > {RPO_SECONDS}",
        held="5m",
        summary=f"{_FLOW_WORDS}: the oldest record that is not copied is {_SECONDS} old",
    ),
    Alert(
        name="TwinlogPausedLong",
        severity=Severity.WARNING,
        expression=f'sum by ({FLOW}) (twinlog_replication_partitions{{twinlog_state="PAUSED"}}) > 0',
        held="1h",
        summary=f"{_FLOW_WORDS}: {_VALUE} partitions have been paused for an hour",
    ),
    Alert(
        name="TwinlogDelaySilent",
        severity=Severity.CRITICAL,
        expression=(
            f'(max by ({FLOW}) (twinlog_heartbeat_path{{twinlog_state="SILENT"}}) == 1)\nunless {_paused()}'
        ),
        held="30s",
        summary=f"{_FLOW_WORDS}: heartbeats are written on the source and do not arrive on the target",
    ),
    Alert(
        name="TwinlogPartitionStalled",
        severity=Severity.WARNING,
        expression=f'sum by ({FLOW}) (twinlog_replication_partitions{{twinlog_state="STALLED"}}) > 0',
        held="5m",
        summary=f"{_FLOW_WORDS}: {_VALUE} partitions have records to copy and do not move",
    ),
    Alert(
        name="TwinlogPartitionFaulted",
        severity=Severity.CRITICAL,
        expression=f'sum by ({FLOW}) (twinlog_replication_partitions{{twinlog_state="FAULTED"}}) > 0',
        held="1m",
        summary=f"{_FLOW_WORDS}: {_VALUE} partitions are FAULTED and not copied until the cause is removed",
    ),
    Alert(
        name="TwinlogDataLost",
        severity=Severity.CRITICAL,
        expression=(
            f"{_grew('twinlog_replication_lost_total', 'messaging_destination_name', 'error_type')} > 0"
        ),
        held="0s",
        summary=f"{_TOPIC}: {_VALUE} source offsets are lost ({{{{ $labels.error_type }}}})",
    ),
    Alert(
        name="TwinlogForeignWriter",
        severity=Severity.CRITICAL,
        expression=f"{_grew('twinlog_replication_foreign_total', 'messaging_destination_name')} > 0",
        held="0s",
        summary=f"{_TOPIC}: another producer wrote {_VALUE} records into this copy within an hour",
    ),
    Alert(
        name="TwinlogCopyDiffers",
        severity=Severity.CRITICAL,
        expression=(
            f"max by ({FLOW}, messaging_destination_name, twinlog_kind) (twinlog_verified_differences) > 0"
        ),
        held="1m",
        summary=f"{_TOPIC}: {_VALUE} records are {{{{ $labels.twinlog_kind }}}} in the copy",
    ),
    Alert(
        name="TwinlogCheckpointsStalled",
        severity=Severity.WARNING,
        expression=(
            f"(max by ({FLOW}) (twinlog_checkpoint_age_seconds) > 600)\n"
            f'or ((max by ({FLOW}) (twinlog_flow_owner{{twinlog_service="checkpoint"}}) == 1)'
            f" unless max by ({FLOW}) (twinlog_checkpoint_age_seconds))"
        ),
        held="5m",
        summary=f"{_FLOW_WORDS}: the offsets of groups have not been translated for 10 minutes",
    ),
    Alert(
        name="TwinlogOffsetSyncsStale",
        severity=Severity.WARNING,
        expression=(
            f"(max by ({FLOW}) (twinlog_offset_sync_readable) == 0)\n"
            f"or ((sum by ({FLOW}) (increase(twinlog_replication_records_total[15m])) > 1000)"
            f" and (sum by ({FLOW}) (increase(twinlog_offset_sync_records_total[15m])) == 0))"
        ),
        held="5m",
        summary=f"{_FLOW_WORDS}: offset syncs cannot be read, or none are written while records are copied",
    ),
    Alert(
        name="TwinlogOffsetsNotExact",
        severity=Severity.WARNING,
        expression=(
            f"max by ({FLOW}, twinlog_verdict)"
            f' (twinlog_checkpoint_partitions{{twinlog_verdict=~"{_UNTRANSLATED}"}}) > 0'
        ),
        held="1h",
        summary=f"{_FLOW_WORDS}: {_VALUE} partitions of groups are {{{{ $labels.twinlog_verdict }}}}",
    ),
    Alert(
        name="TwinlogDriftFightsBack",
        severity=Severity.WARNING,
        expression=(
            f"sum by ({FLOW}, twinlog_resource_type)"
            ' (increase(twinlog_configsync_changes_total{twinlog_outcome="drift_reverted"}[1h])) >= 3'
        ),
        held="5m",
        summary=f"{_FLOW_WORDS}: somebody changes {{{{ $labels.twinlog_resource_type }}}} of the target,"
        " and Twinlog keeps changing it back",
    ),
    Alert(
        name="TwinlogTargetOutOfStep",
        severity=Severity.WARNING,
        expression=f"max by ({FLOW}, twinlog_resource_type) (twinlog_configsync_drift) > 0",
        held="1h",
        summary=f"{_FLOW_WORDS}: {_VALUE} changes of {{{{ $labels.twinlog_resource_type }}}} are refused"
        " by the target, or wait for `twinlog apply`",
    ),
    Alert(
        name="TwinlogOwnerFlapping",
        severity=Severity.WARNING,
        expression=(
            f"max by ({FLOW}, twinlog_service) (increase(twinlog_flow_owner_changes_total[15m])) > 3"
        ),
        held="1m",
        summary=f"{_FLOW_WORDS}: its owner keeps changing ({{{{ $labels.twinlog_service }}}})",
    ),
    Alert(
        name="TwinlogCertificateExpires",
        severity=Severity.WARNING,
        expression=(
            "(min by (instance) (twinlog_certificate_expiry_seconds) < 14 * 86400)\n"
            "or (min by (twinlog_cluster) (twinlog_login_certificate_expiry_seconds) < 14 * 86400)"
        ),
        held="10m",
        summary="{{ $labels.instance }}{{ $labels.twinlog_cluster }}: the certificate of this gRPC port, or"
        f" of the login to this cluster, expires in {_SECONDS}",
    ),
    Alert(
        name="TwinlogTokenExpires",
        severity=Severity.WARNING,
        expression=(
            "(max by (instance, twinlog_cluster) (twinlog_token_failing) == 1)\n"
            "or min by (instance, twinlog_cluster) (\n"
            "  (twinlog_token_expiry_seconds < 14 * 86400)\n"
            "  and (twinlog_token_expiry_seconds < 0.1 * twinlog_token_lifetime_seconds)\n"
            ")"
        ),
        held="2m",
        summary='{{ $labels.instance }}: the token for {{ or $labels.twinlog_cluster "the other services" }}'
        " expires soon, or cannot be renewed",
    ),
    Alert(
        name="TwinlogTargetThrottles",
        severity=Severity.WARNING,
        expression=f'max by ({FLOW}) (twinlog_replication_throttled{{twinlog_end="target"}}) > 0',
        held="10m",
        summary=f"{_FLOW_WORDS}: a quota of the target slows down {_VALUE} copying tasks",
    ),
)


_WINDOW = re.compile(r"\[[0-9]+m\]")


def hastened(alert: Alert, *, held: str, window: str, rpo_seconds: int = RPO_SECONDS) -> Alert:
    """The alert with another `for`, another recovery point objective, and with `window` for each range of
    minutes: for tests that cannot wait. Ranges of hours stay."""
    expression = alert.expression.replace(f"> {RPO_SECONDS}", f"> {rpo_seconds}")
    return replace(alert, held=held, expression=_WINDOW.sub(f"[{window}]", expression))


def rules(alerts: tuple[Alert, ...] = ALERTS, *, runbook: str = RUNBOOK) -> str:
    """The file of rules that Prometheus reads; `runbook` is the address of docs/alerts.md."""
    lines = [
        "# Written by `python -m deploy.observability`: edit deploy/observability/alerts.py.",
        "groups:",
        "  - name: twinlog",
        "    rules:",
    ]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            "        expr: |",
            *(f"          {line}" for line in alert.expression.splitlines()),
            f"        for: {alert.held}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          runbook_url: {alert.runbook(runbook)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
