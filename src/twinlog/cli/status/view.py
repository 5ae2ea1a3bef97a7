"""How `twinlog status` looks: tables for people, one document for programs. Pure."""

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from twinlog.cli.common.output import Column
from twinlog.cli.common.pasteable import document
from twinlog.cli.source.partition_rows import shown_catch_up, shown_seconds
from twinlog.cli.status.deployment import deployment_lines
from twinlog.cli.status.producers import State, producers_of
from twinlog.cli.status.rows import ClusterRow, FlowRow, InForce, ServiceRow, Status
from twinlog.cli.verdict.issues import Issue, Verdict
from twinlog.cli.verdict.verdict import verdict_of

UNKNOWN = "-"
"""Shown in place of what no service told."""
NOT_KNOWN = "?"
"""Shown in place of what a service was asked for and does not know now."""

SERVICE_COLUMNS = (
    Column(title="SERVICE"),
    Column(title="ENDPOINT"),
    Column(title="HEALTH"),
    Column(title="READY"),
    Column(title="VERSION"),
)
FLOW_COLUMNS = (
    Column(title="FLOW"),
    Column(title="TOPICS", spare=3),
    Column(title="PARTITIONS"),
    Column(title="RECORDS/S", right=True, spare=1),
    Column(title="MB/S", right=True, spare=4),
    Column(title="LAG", right=True),
    Column(title="BEHIND", right=True),
    Column(title="CAUGHT UP", right=True, spare=3),
    Column(title="LAST COPIED", right=True),
    Column(title="DELAY", right=True, spare=2),
    Column(title="GROUPS", spare=5),
    Column(title="PROOF", spare=6),
    Column(title="PRODUCERS", spare=7),
)
IN_FORCE_COLUMNS = (
    Column(title="IN FORCE"),
    Column(title="ON"),
    Column(title="WHAT"),
)
CLUSTER_COLUMNS = (Column(title="CLUSTER"), Column(title="REACHABLE"))
ISSUE_COLUMNS = (Column(title="ABOUT"), Column(title="REASON"), Column(title="MESSAGE"))


def as_json(status: Status) -> dict[str, Any]:
    """The stable document of `-o json`: times in seconds, sizes in bytes, null where nothing is known."""
    verdict = verdict_of(status)
    return {
        "verdict": {
            "level": verdict.level,
            "line": verdict.line,
            "issues": [document(each) for each in verdict.issues],
        },
        "asked": {"config": status.asked_file},
        "services": [document(row) for row in status.services],
        "flows": [document(row) for row in _sorted_flows(status)],
        "clusters": [document(row) for row in _sorted_clusters(status)],
    }


def deployment(status: Status) -> list[str]:
    """Which deployment answered, in lines for people."""
    return deployment_lines(status.services, asked_file=status.asked_file, own_host=socket.gethostname())


def check_as_json(
    problems: Sequence[Issue], waiting: Sequence[Issue] = (), standing_by: Sequence[str] = ()
) -> dict[str, Any]:
    """What `--check` adds to the document. `standing_by`: flows that another process copies."""
    return {
        "ok": not problems and not waiting,
        "problems": [document(each) for each in problems],
        "waiting": [document(each) for each in waiting],
        "standing_by": list(standing_by),
    }


def check_lines(
    problems: Sequence[Issue], standing_by: Sequence[str] = (), warnings: str = "", *, verbose: bool = False
) -> list[str]:
    """One line for each thing that is wrong, or not yet as it should be; else one, with the `warnings`."""
    if problems:
        return [line for each in problems for line in _issue_lines(each, verbose=verbose)]
    others = f"on standby here, copied by another process: {', '.join(standing_by)}" if standing_by else ""
    return ["; ".join(each for each in ("everything moves", others, warnings) if each)]


def _issue_lines(issue: Issue, *, verbose: bool) -> list[str]:
    told = with_command(issue.message, issue.command)
    return [f"{issue.about}: {issue.reason}: {told}", *details(issue, verbose=verbose)]


def details(issue: Issue, *, verbose: bool) -> list[str]:
    """What the services said themselves, below the line of an issue."""
    return [f"    {each}" for each in issue.details] if verbose else []


def service_cells(row: ServiceRow) -> Sequence[str]:
    ready = UNKNOWN if row.ready is None else "yes" if row.ready else "no"
    return row.name, row.endpoint, row.health, ready, row.version or UNKNOWN


def flow_cells(row: FlowRow) -> Sequence[str]:
    return (
        row.flow,
        _topics(row.topics),
        _counts(row.partitions),
        _number(row.records_per_second),
        UNKNOWN if row.bytes_per_second is None else f"{row.bytes_per_second / 1e6:,.1f}",
        _lag(row),
        UNKNOWN if row.records is None and row.lag_seconds is None else shown_seconds(row.lag_seconds),
        _caught_up(row),
        _ago(row.last_copied_age_seconds),
        _delay(row),
        _groups(row),
        _proof(row),
        _producers(row),
    )


def cluster_cells(row: ClusterRow) -> Sequence[str]:
    answers = {service: seen for service, seen in row.seen_by.items() if seen is not None}
    if not answers:
        return row.alias, UNKNOWN
    if all(answers.values()):
        silent = ", ".join(map(str, sorted(row.silent_brokers)))
        return row.alias, f"yes, but for broker {silent}" if silent else "yes"
    if not any(answers.values()):
        return row.alias, "no"
    return row.alias, "not by " + ", ".join(service for service, seen in answers.items() if not seen)


def issue_cells(verdict: Verdict) -> list[Sequence[str]]:
    """What is not as it should be, the worst first, besides what is in force."""
    return [
        (each.about, each.reason, with_command(each.message, each.command))
        for each in verdict.issues
        if not each.in_force
    ]


def _sorted_flows(status: Status) -> list[FlowRow]:
    return [status.flows[name] for name in sorted(status.flows)]


def _sorted_clusters(status: Status) -> list[ClusterRow]:
    return [status.clusters[alias] for alias in sorted(status.clusters)]


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{count} {state.lower()}" for state, count in sorted(counts.items()) if count]
    return ", ".join(shown) or UNKNOWN


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def in_force_cells(status: Status) -> list[Sequence[str]]:
    """What holds until somebody acts: pauses, limits, changed rules, waiting topics, gaps."""
    return [
        (each.kind, each.about, _in_force(each)) for row in _sorted_flows(status) for each in row.in_force
    ]


def _in_force(each: InForce) -> str:
    by = f", by {each.by}" if each.by else ""
    since = f" since {each.since}" if each.since else ""
    return with_command(f"{each.message}{by}{since}", each.command)


def with_command(message: str, command: str) -> str:
    """A message that names a command itself needs no other."""
    return f"{message} (`{command}`)" if command and "`twinlog " not in message else message


def _topics(counts: Mapping[str, int]) -> str:
    if not counts:
        return UNKNOWN
    others = {state: count for state, count in counts.items() if state != "READY" and count}
    ready = str(counts.get("READY", 0))
    return f"{ready} ({_counts(others)})" if others else ready


def _lag(row: FlowRow) -> str:
    """Where it is not known, what was known last and when."""
    if row.lag_records is not None or row.last_known_lag_records is None:
        return _number(row.lag_records)
    if row.source_ends_age_seconds is None:
        return NOT_KNOWN
    return f"{NOT_KNOWN} ({row.last_known_lag_records:,} {_ago(row.source_ends_age_seconds)})"


def _caught_up(row: FlowRow) -> str:
    if row.records is None and row.lag_records is None:
        return UNKNOWN
    return shown_catch_up(row.caught_up_in_seconds)


def _ago(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{shown_seconds(seconds)} ago"


LOG_ENDS = "LOG_ENDS"


def _delay(row: FlowRow) -> str:
    if row.path == "SILENT":
        age = "" if row.heartbeat_age_seconds is None else f" {row.heartbeat_age_seconds:.0f} s"
        return f"silent{age}"
    if row.delay_seconds is None:
        return UNKNOWN
    delay = f"{row.delay_seconds:.2f} s"
    if row.delay_basis == LOG_ENDS:
        return f"{delay} by log ends"
    if row.path == "ALIVE" or row.heartbeat_age_seconds is None:
        return delay
    return f"{NOT_KNOWN} ({delay} {_ago(row.heartbeat_age_seconds)})"


def _producers(row: FlowRow) -> str:
    found = producers_of(row)
    match found.state:
        case State.WRITE:
            return "write"
        case State.SILENT:
            return "silent" if found.seconds is None else f"silent {shown_seconds(found.seconds)}"
        case State.UNKNOWN:
            return NOT_KNOWN
        case State.UNTOLD:
            return UNKNOWN


def _proof(row: FlowRow) -> str:
    """What the standing proof says of partitions, and how old the oldest of it is."""
    if not row.proofs:
        return UNKNOWN
    age = "" if row.proven_age_seconds is None else f", {_ago(row.proven_age_seconds)}"
    return f"{_counts(row.proofs)}{age}"


def _groups(row: FlowRow) -> str:
    if row.group_count is None:
        return UNKNOWN
    return f"{row.group_count} ({_counts(row.groups)})" if row.groups else str(row.group_count)
