"""How `twinlog status` looks: tables for people, one document for programs. Pure."""

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from twinlog.cli.common.fields import Field, Fields, table
from twinlog.cli.common.names import shown_seconds
from twinlog.cli.common.pasteable import document
from twinlog.cli.source.partitions import shown_catch_up
from twinlog.cli.status.rows import ClusterRow, FlowRow, InForce, Owner, ServiceRow, Status
from twinlog.cli.verdict.issues import Issue, Verdict
from twinlog.cli.verdict.verdict import verdict_of

Row = TypeVar("Row")

# Whether producers still write to the source of a flow, by the growth of its logs. Pure.

SILENT_SECONDS = 60.0
"""Producers that wrote no record for so long are called silent."""
KNOWN_SECONDS = 30.0
"""Ends of source logs that were read longer ago say nothing of producers now."""


class Writing(StrEnum):
    WRITE = "WRITE"
    SILENT = "SILENT"
    UNKNOWN = "UNKNOWN"
    """The ends of the source's logs cannot be read, or have not been watched for long enough."""
    UNTOLD = "UNTOLD"
    """No service tells of them."""


@dataclass(frozen=True, slots=True)
class ProducersSeen:
    state: Writing
    seconds: float | None = None
    """Since the last record came (None: not since the service started); of UNKNOWN, since the ends were
    read (None: they are)."""


def producers_of(row: FlowRow) -> ProducersSeen:
    read, written = row.source_ends_age_seconds, row.source_written_age_seconds
    if read is None:
        return ProducersSeen(Writing.UNTOLD)
    if read > KNOWN_SECONDS:
        return ProducersSeen(Writing.UNKNOWN, read)
    watched = row.source_watched_age_seconds
    if written is None and watched is not None and watched < SILENT_SECONDS:
        return ProducersSeen(Writing.UNKNOWN)
    if written is None or written > SILENT_SECONDS:
        return ProducersSeen(Writing.SILENT, written)
    return ProducersSeen(Writing.WRITE, written)


# Which deployment `twinlog status` asked: the properties file of its services, and where they are. Pure.


def deployment_lines(services: Sequence[ServiceRow], *, asked_file: str | None, own_host: str) -> list[str]:
    """A line for each deployment that answered: services of several files are no deployment, and the file
    that was given may be another one's. `asked_file`: that of --config, with links resolved, None = none was
    given; `own_host`: where that file is."""
    places: dict[tuple[str, str], list[str]] = {}
    for row in services:
        if row.config:
            places.setdefault((row.config, row.host), []).append(row.name)
    files = {config for config, _ in places}
    several = len(files) > 1
    lines = [
        f"deployment: {config} on {host}" + (f" ({', '.join(names)})" if len(places) > 1 else "")
        for (config, host), names in places.items()
    ]
    if several:
        lines.append("these services belong to different deployments: choose one with --config or --endpoint")
    elif asked_file is None and lines:
        lines[-1] += " (asked without --config FILE)"
    elif asked_file is not None and any(host == own_host for _, host in places) and asked_file not in files:
        lines.append(f"the services at the addresses in {asked_file} run with another properties file")
    return lines


UNKNOWN = "-"
"""Shown in place of what no service told."""
NOT_KNOWN = "?"
"""Shown in place of what a service was asked for and does not know now."""


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
        "flows": [document(row) for row in _sorted(status.flows)],
        "clusters": [document(row) for row in _sorted(status.clusters)],
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


def _reachable(row: ClusterRow) -> str:
    answers = {service: seen for service, seen in row.seen_by.items() if seen is not None}
    if not answers:
        return UNKNOWN
    if all(answers.values()):
        silent = ", ".join(map(str, sorted(row.silent_brokers)))
        return f"yes, but for broker {silent}" if silent else "yes"
    if not any(answers.values()):
        return "no"
    return "not by " + ", ".join(service for service, seen in answers.items() if not seen)


def _told(issue: Issue) -> str:
    return with_command(issue.message, issue.command)


def _sorted(rows: Mapping[str, Row]) -> list[Row]:
    return [rows[name] for name in sorted(rows)]


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{count} {state.lower()}" for state, count in sorted(counts.items()) if count]
    return ", ".join(shown) or UNKNOWN


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _in_force(each: InForce) -> str:
    by = f", by {each.by}" if each.by else ""
    since = f" since {each.since}" if each.since else ""
    return with_command(f"{each.message}{by}{since}", each.command)


def with_command(message: str, command: str) -> str:
    """A message that names a whole command itself needs no other.

    >>> with_command("2 changes wait for `twinlog apply`", "twinlog plan 'A->B'")
    "2 changes wait for `twinlog apply` (`twinlog plan 'A->B'`)"
    >>> with_command("`twinlog failback run 'A->B'` moves them back", "twinlog groups 'A->B'")
    "`twinlog failback run 'A->B'` moves them back"
    """
    return f"{message} (`{command}`)" if command and not _WHOLE_COMMAND.search(message) else message


_WHOLE_COMMAND = re.compile(r"`twinlog [a-z-]+ [^`]")


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
    return f"{NOT_KNOWN} ({delay}, {_ago(row.heartbeat_age_seconds)})"


def _producers(row: FlowRow) -> str:
    found = producers_of(row)
    match found.state:
        case Writing.WRITE:
            return "write"
        case Writing.SILENT:
            return "silent" if found.seconds is None else f"silent {shown_seconds(found.seconds)}"
        case Writing.UNKNOWN:
            return NOT_KNOWN
        case Writing.UNTOLD:
            return UNKNOWN


def _proof(row: FlowRow) -> str:
    """What the standing proof says of partitions, and how old the oldest of it is."""
    if not row.proofs:
        return UNKNOWN
    age = "" if row.proven_age_seconds is None else f", {_ago(row.proven_age_seconds)}"
    return f"{_counts(row.proofs)}{age}"


def _group_offsets(row: FlowRow) -> str:
    """`twinlog groups` counts groups."""
    if row.group_count is None:
        return UNKNOWN
    return _counts(row.groups) if any(row.groups.values()) else "0"


def _ready(row: ServiceRow) -> str:
    return UNKNOWN if row.ready is None else "yes" if row.ready else "no"


def _behind(row: FlowRow) -> str:
    return UNKNOWN if row.records is None and row.lag_seconds is None else shown_seconds(row.lag_seconds)


def _megabytes(row: FlowRow) -> str:
    return UNKNOWN if row.bytes_per_second is None else f"{row.bytes_per_second / 1e6:,.1f}"


SERVICE: Fields[ServiceRow] = table(
    "=name|SERVICE =endpoint|ENDPOINT =health|HEALTH",
    Field("", column="READY", text=_ready),
    "=version?|VERSION",
)
FLOW: Fields[FlowRow] = table(
    "=flow|FLOW",
    Field("", column="TOPICS", text=lambda row: _topics(row.topics), spare=3),
    Field("", column="PARTITIONS", text=lambda row: _counts(row.partitions)),
    Field("", column="RECORDS/S", text=lambda row: _number(row.records_per_second), right=True, spare=2),
    Field("", column="MB/S", text=_megabytes, right=True, spare=4),
    Field("", column="LAG", text=_lag, right=True),
    Field("", column="BEHIND", text=_behind, right=True),
    Field("", column="CAUGHT UP", text=_caught_up, right=True, spare=3),
    Field("", column="LAST COPIED", text=lambda row: _ago(row.last_copied_age_seconds), right=True),
    Field("", column="DELAY", text=_delay, right=True, spare=1),
    Field("", column="GROUP OFFSETS", text=_group_offsets, spare=5),
    Field("", column="PROOF", text=_proof, spare=6),
    Field("", column="PRODUCERS", text=_producers, spare=7),
)
OWNER: Fields[Owner] = table(
    "=flow|FLOW =service|SERVICE =process?|OWNER",
    Field(
        "",
        column="WHY",
        text=lambda owner: f"{owner.why}, moves to {owner.moves_to}".removesuffix(", moves to "),
    ),
)
CLUSTER: Fields[ClusterRow] = table("=alias|CLUSTER", Field("", column="REACHABLE", text=_reachable))
IN_FORCE: Fields[InForce] = table("=kind|IN_FORCE =about|ON", Field("", column="WHAT", text=_in_force))
ISSUE: Fields[Issue] = table("=about|ABOUT =reason|REASON", Field("", column="MESSAGE", text=_told))


def tables(status: Status, verdict: Verdict) -> list[tuple[Fields[Any], list[Any]]]:
    """Services, flows, clusters, what is in force, what else is not as it should be, and who owns what."""
    flows = _sorted(status.flows)
    return [
        (SERVICE, status.services),
        (FLOW, flows),
        (CLUSTER, _sorted(status.clusters)),
        (IN_FORCE, [each for row in flows for each in row.in_force]),
        (ISSUE, [each for each in verdict.issues if not each.in_force]),
        (OWNER, [each for row in flows for each in row.owners if each.processes > 1]),
    ]
