"""Every alert fires in its scenario and in no other: promtool runs the rules on series made up here."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deploy.observability.files import files, rules

from integration.observability.prometheus_tools import tool
from unit.deploy.alerts import ALERTS
from unit.deploy.compose_files import OBSERVABILITY, merged
from unit.deploy.wheels import PROJECT

SERVICES = ("source", "checkpoint", "heartbeat", "configsync")
FLOW = 'twinlog_source_cluster="A", twinlog_target_cluster="B"'
TOPIC = f'{FLOW}, messaging_destination_name="A.orders"'
MINUTES = 180
BEHIND = f'twinlog_replication_behind{{{FLOW}, twinlog_state="RUNNING", error_type=""}}'
RUNNING = f'twinlog_replication_partitions{{{FLOW}, twinlog_state="RUNNING"}}'
RECORDS = f"twinlog_replication_records_total{{{TOPIC}}}"
HEARTBEATS = f'twinlog_replication_records_total{{{FLOW}, messaging_destination_name="A.heartbeats"}}'
SYNCS = (
    f'twinlog_offset_sync_records_total{{{FLOW}, messaging_destination_name="mm2-offset-syncs.B.internal"}}'
)
ALIVE, SILENT, UNKNOWN = (
    f'twinlog_heartbeat_path{{{FLOW}, twinlog_state="{state}"}}' for state in ("ALIVE", "SILENT", "UNKNOWN")
)
AGE = f"twinlog_heartbeat_age_seconds{{{FLOW}}}"
CHECKPOINT_AGE = f"twinlog_checkpoint_age_seconds{{{FLOW}}}"
CHECKPOINT_OVERDUE = f"twinlog_checkpoint_overdue_seconds{{{FLOW}}}"
READABLE = f"twinlog_offset_sync_readable{{{FLOW}}}"


def ready(service: str) -> str:
    return f'twinlog_service_ready{{twinlog_service="{service}", instance="{service}:1", job="twinlog"}}'


def owner(service: str) -> str:
    return f'twinlog_flow_owner{{{FLOW}, twinlog_service="{service}"}}'


HEALTHY: Mapping[str, str] = {
    **{f'up{{job="twinlog", instance="{service}:1"}}': f"1x{MINUTES}" for service in SERVICES},
    **{ready(service): f"1x{MINUTES}" for service in SERVICES},
    **{owner(service): f"1x{MINUTES}" for service in SERVICES},
    **{
        f'twinlog_flow_owner_changes_total{{{FLOW}, twinlog_service="{service}"}}': f"1x{MINUTES}"
        for service in SERVICES
    },
    'twinlog_cluster_reachable{twinlog_cluster="A"}': f"1x{MINUTES}",
    'twinlog_cluster_reachable{twinlog_cluster="B"}': f"1x{MINUTES}",
    RECORDS: f"0+6000x{MINUTES}",
    HEARTBEATS: f"0+60x{MINUTES}",
    f"twinlog_replication_source_end{{{TOPIC}}}": f"0+6000x{MINUTES}",
    SYNCS: f"0+60x{MINUTES}",
    BEHIND: f"3x{MINUTES}",
    RUNNING: f"12x{MINUTES}",
    f"twinlog_replication_overdue_seconds{{{FLOW}}}": f"0.4x{MINUTES}",
    f'twinlog_replication_throttled{{{FLOW}, twinlog_end="source"}}': f"0x{MINUTES}",
    f'twinlog_replication_throttled{{{FLOW}, twinlog_end="target"}}': f"0x{MINUTES}",
    f'twinlog_verified_differences{{{TOPIC}, twinlog_kind="MISSING"}}': f"0x{MINUTES}",
    ALIVE: f"1x{MINUTES}",
    SILENT: f"0x{MINUTES}",
    CHECKPOINT_AGE: f"20x{MINUTES}",
    CHECKPOINT_OVERDUE: f"0x{MINUTES}",
    READABLE: f"1x{MINUTES}",
    f'twinlog_checkpoint_partitions{{{FLOW}, twinlog_verdict="EXACT"}}': f"40x{MINUTES}",
    f'twinlog_checkpoint_partitions{{{FLOW}, twinlog_verdict="FLOOR"}}': f"0x{MINUTES}",
    f'twinlog_configsync_drift{{{FLOW}, twinlog_resource_type="configs"}}': f"0x{MINUTES}",
    'twinlog_certificate_expiry_seconds{instance="source:1"}': f"7776000x{MINUTES}",
    'twinlog_certificate_lifetime_seconds{instance="source:1"}': f"31536000x{MINUTES}",
    'twinlog_token_expiry_seconds{instance="source:1", twinlog_cluster="B"}': f"600x{MINUTES}",
    'twinlog_token_lifetime_seconds{instance="source:1", twinlog_cluster="B"}': f"3600x{MINUTES}",
    'twinlog_token_failing{instance="source:1", twinlog_cluster="B"}': f"0x{MINUTES}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is otherwise than in the healthy deployment, and what fires after `at`; None removes a series."""

    fires: frozenset[str]
    series: Mapping[str, str | None] = field(default_factory=dict)
    at: str = "2h30m"


SCENARIOS: Mapping[str, Scenario] = {
    "all is well": Scenario(fires=frozenset()),
    "a replica is down": Scenario(
        fires=frozenset({"TwinlogServiceDown"}),
        series={'up{job="twinlog", instance="source:2"}': f"0x{MINUTES}"},
    ),
    "nobody scrapes a heartbeat service": Scenario(
        fires=frozenset({"TwinlogServiceDown"}),
        series={
            ready("heartbeat"): None,
            owner("heartbeat"): None,
            ALIVE: None,
            SILENT: None,
        },
    ),
    "a service does not work at its flows": Scenario(
        fires=frozenset({"TwinlogServiceNotReady"}), series={ready("configsync"): f"0x{MINUTES}"}
    ),
    "a cluster is away": Scenario(
        fires=frozenset({"TwinlogClusterUnreachable"}),
        series={'twinlog_cluster_reachable{twinlog_cluster="B"}': f"0x{MINUTES}"},
    ),
    "nothing is copied": Scenario(
        fires=frozenset({"TwinlogNothingCopied"}), series={RECORDS: f"500x{MINUTES}"}
    ),
    "nothing was ever copied": Scenario(fires=frozenset({"TwinlogNothingCopied"}), series={RECORDS: None}),
    "the source service shows nothing": Scenario(
        fires=frozenset({"TwinlogNothingCopied"}), series={owner("source"): None}
    ),
    "everything is copied and nobody writes": Scenario(
        fires=frozenset(), series={RECORDS: f"500x{MINUTES}", BEHIND: None}
    ),
    "what is left is held back on purpose": Scenario(
        fires=frozenset(),
        series={
            RECORDS: f"500x{MINUTES}",
            BEHIND: None,
            f'twinlog_replication_behind{{{FLOW}, twinlog_state="WAITING", error_type="DELAYED"}}': (
                f"9x{MINUTES}"
            ),
        },
    ),
    "the flow is paused": Scenario(
        fires=frozenset({"TwinlogPausedLong"}),
        series={
            RECORDS: f"500x{MINUTES}",
            BEHIND: None,
            f'twinlog_replication_behind{{{FLOW}, twinlog_state="PAUSED", error_type="PAUSED"}}': "9x180",
            RUNNING: None,
            f'twinlog_replication_partitions{{{FLOW}, twinlog_state="PAUSED"}}': f"12x{MINUTES}",
            ALIVE: f"0x{MINUTES}",
            SILENT: f"1x{MINUTES}",
        },
    ),
    "the copy is late": Scenario(
        fires=frozenset({"TwinlogLagOverRpo"}),
        series={f"twinlog_replication_overdue_seconds{{{FLOW}}}": f"301x{MINUTES}"},
    ),
    "no heartbeat arrives": Scenario(
        fires=frozenset({"TwinlogDelaySilent"}),
        series={ALIVE: f"0x{MINUTES}", SILENT: f"1x{MINUTES}"},
    ),
    "heartbeats cannot be read on the target": Scenario(
        fires=frozenset({"TwinlogDelaySilent"}),
        series={ALIVE: f"0x{MINUTES}", UNKNOWN: f"1x{MINUTES}", AGE: f"10+60x{MINUTES}"},
    ),
    "heartbeats are switched off": Scenario(
        fires=frozenset(), series={ALIVE: f"0x{MINUTES}", UNKNOWN: f"1x{MINUTES}"}
    ),
    "a partition stands": Scenario(
        fires=frozenset({"TwinlogPartitionStalled"}),
        series={f'twinlog_replication_partitions{{{FLOW}, twinlog_state="STALLED"}}': f"1x{MINUTES}"},
    ),
    "a partition is faulted": Scenario(
        fires=frozenset({"TwinlogPartitionFaulted"}),
        series={f'twinlog_replication_partitions{{{FLOW}, twinlog_state="FAULTED"}}': f"1x{MINUTES}"},
    ),
    "records were lost, and nobody has acknowledged it": Scenario(
        fires=frozenset({"TwinlogDataLost"}),
        series={f'twinlog_replication_gaps{{{TOPIC}, error_type="RETENTION"}}': "_x140 12x40"},
    ),
    "records were lost, and somebody has acknowledged it": Scenario(
        fires=frozenset(),
        series={f'twinlog_replication_gaps{{{TOPIC}, error_type="RETENTION"}}': "12x140 _x40"},
    ),
    "somebody else wrote into a copy, and nobody has acknowledged it": Scenario(
        fires=frozenset({"TwinlogForeignWriter"}),
        series={f"twinlog_replication_foreign_open{{{TOPIC}}}": f"3x{MINUTES}"},
    ),
    "somebody else wrote into a copy, and somebody has acknowledged it": Scenario(
        fires=frozenset(), series={f"twinlog_replication_foreign_open{{{TOPIC}}}": "3x140 _x40"}
    ),
    "the copy differs": Scenario(
        fires=frozenset({"TwinlogCopyDiffers"}),
        series={f'twinlog_verified_differences{{{TOPIC}, twinlog_kind="MISSING"}}': f"1x{MINUTES}"},
    ),
    "offsets were translated long ago": Scenario(
        fires=frozenset({"TwinlogCheckpointsStalled"}), series={CHECKPOINT_OVERDUE: f"0+60x{MINUTES}"}
    ),
    "offsets are translated once an hour": Scenario(
        fires=frozenset(), series={CHECKPOINT_AGE: f"0+60x{MINUTES}"}
    ),
    "offsets were never translated": Scenario(
        fires=frozenset({"TwinlogCheckpointsStalled"}),
        series={CHECKPOINT_AGE: None, CHECKPOINT_OVERDUE: None},
    ),
    "another process translates": Scenario(
        fires=frozenset(),
        series={CHECKPOINT_AGE: None, CHECKPOINT_OVERDUE: None, owner("checkpoint"): f"0x{MINUTES}"},
    ),
    "offset syncs cannot be read": Scenario(
        fires=frozenset({"TwinlogOffsetSyncsStale"}), series={READABLE: f"0x{MINUTES}"}
    ),
    "no offset syncs are written": Scenario(
        fires=frozenset({"TwinlogOffsetSyncsStale"}), series={SYNCS: f"60x{MINUTES}"}
    ),
    "offset syncs are off": Scenario(fires=frozenset(), series={SYNCS: None}),
    "offsets are not exact for long": Scenario(
        fires=frozenset({"TwinlogOffsetsNotExact"}),
        series={f'twinlog_checkpoint_partitions{{{FLOW}, twinlog_verdict="FLOOR"}}': f"2x{MINUTES}"},
    ),
    "offsets are not exact for a moment": Scenario(
        fires=frozenset(),
        series={f'twinlog_checkpoint_partitions{{{FLOW}, twinlog_verdict="FLOOR"}}': "0x140 2x40"},
    ),
    "somebody fights Twinlog": Scenario(
        fires=frozenset({"TwinlogDriftFightsBack"}),
        series={
            f'twinlog_configsync_changes_total{{{FLOW}, twinlog_resource_type="config",'
            ' twinlog_outcome="drift_reverted"}': f"0+1x{MINUTES}"
        },
    ),
    "the target refuses changes": Scenario(
        fires=frozenset({"TwinlogTargetOutOfStep"}),
        series={f'twinlog_configsync_drift{{{FLOW}, twinlog_resource_type="configs"}}': f"4x{MINUTES}"},
    ),
    "the owner changes again and again": Scenario(
        fires=frozenset({"TwinlogOwnerFlapping"}),
        series={f'twinlog_flow_owner_changes_total{{{FLOW}, twinlog_service="source"}}': f"0+1x{MINUTES}"},
    ),
    "a certificate is near its end": Scenario(
        fires=frozenset({"TwinlogCertificateExpires"}),
        series={'twinlog_certificate_expiry_seconds{instance="source:1"}': f"86400x{MINUTES}"},
    ),
    "the certificate of a login is near its end": Scenario(
        fires=frozenset({"TwinlogCertificateExpires"}),
        series={
            'twinlog_login_certificate_expiry_seconds{twinlog_cluster="B"}': f"86400x{MINUTES}",
            'twinlog_login_certificate_lifetime_seconds{twinlog_cluster="B"}': f"31536000x{MINUTES}",
        },
    ),
    "certificates of a day are renewed twice a day": Scenario(
        fires=frozenset(),
        series={
            'twinlog_certificate_expiry_seconds{instance="source:1"}': f"43200x{MINUTES}",
            'twinlog_certificate_lifetime_seconds{instance="source:1"}': f"86400x{MINUTES}",
            'twinlog_login_certificate_expiry_seconds{twinlog_cluster="B"}': f"43200x{MINUTES}",
            'twinlog_login_certificate_lifetime_seconds{twinlog_cluster="B"}': f"86400x{MINUTES}",
        },
    ),
    "a token is near its end": Scenario(
        fires=frozenset({"TwinlogTokenExpires"}),
        series={
            'twinlog_token_expiry_seconds{instance="source:1", twinlog_cluster="B"}': f"300x{MINUTES}",
            'twinlog_token_lifetime_seconds{instance="source:1", twinlog_cluster="B"}': f"3600x{MINUTES}",
        },
    ),
    "a token of a year is near its end": Scenario(
        fires=frozenset({"TwinlogTokenExpires"}),
        series={
            'twinlog_token_expiry_seconds{instance="source:1"}': f"{13 * 86400}x{MINUTES}",
            'twinlog_token_lifetime_seconds{instance="source:1"}': f"{365 * 86400}x{MINUTES}",
        },
    ),
    "no new token is to be had": Scenario(
        fires=frozenset({"TwinlogTokenExpires"}),
        series={'twinlog_token_failing{instance="source:1", twinlog_cluster="B"}': f"1x{MINUTES}"},
    ),
    "the target throttles": Scenario(
        fires=frozenset({"TwinlogTargetThrottles"}),
        series={f'twinlog_replication_throttled{{{FLOW}, twinlog_end="target"}}': f"1x{MINUTES}"},
    ),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    return tool("promtool")


def test_the_files_are_generated_from_the_code() -> None:
    for name, text in files().items():
        assert (PROJECT / "deploy" / name).read_text() == text, ".venv/bin/python -m deploy.observability"


def test_every_alert_has_a_scenario_of_its_own() -> None:
    assert {name for scenario in SCENARIOS.values() for name in scenario.fires} == {
        alert.name for alert in ALERTS
    }


def test_every_alert_says_what_is_wrong_how_long_and_where_to_read_on() -> None:
    for alert in ALERTS:
        assert alert.held
        assert alert.summary
        assert alert.runbook.endswith(f"/alerts.html#{alert.name.lower()}")


def test_promtool_finds_nothing_wrong_with_the_rules(promtool: str) -> None:
    file = PROJECT / "deploy/prometheus/alerts.yaml"
    outcome = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert f"{len(ALERTS)} rules found" in outcome.stdout


def test_every_alert_fires_in_its_scenario_and_in_no_other(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(rules())
    cases = tmp_path / "cases.json"
    cases.write_text(
        json.dumps(
            {
                "rule_files": ["alerts.yaml"],
                "evaluation_interval": "1m",
                "tests": [_case(name, scenario) for name, scenario in SCENARIOS.items()],
            }
        )
    )
    outcome = subprocess.run([promtool, "test", "rules", cases], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def _case(name: str, scenario: Scenario) -> dict[str, object]:
    series = {**HEALTHY, **scenario.series}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": series_name, "values": values}
            for series_name, values in series.items()
            if values is not None
        ],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": scenario.at,
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(scenario.fires)
                ],
            }
        ],
    }


def test_promtool_finds_nothing_wrong_with_prometheus_of_compose(promtool: str, tmp_path: Path) -> None:
    shipped = PROJECT / "deploy/prometheus"
    for name in ("prometheus.yaml", "alerts.yaml"):
        (tmp_path / name).write_text((shipped / name).read_text())
    outcome = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_prometheus_of_compose_is_given_options_that_it_has() -> None:
    helped = subprocess.run([tool("prometheus"), "--help"], capture_output=True, text=True, check=True)
    options = {word.partition("=")[0] for word in merged(OBSERVABILITY, "prometheus")["command"]}
    assert {option for option in options if option not in helped.stdout + helped.stderr} == set()
