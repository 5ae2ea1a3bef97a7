"""The verdict on everything that the services told: `twinlog status`, `--check`, the live page and the plans
of moves all show this one. Pure.

Issues are grouped by their cause before they are counted: of a cluster that no service reaches, of brokers
that do not answer, or of a flow that copies nothing, everything that follows from it is a symptom.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from twinlog.cli.status.rows import SERVING, ServiceRow, Status, works_here
from twinlog.cli.verdict.flows import cause_of, cluster_issues, flow_issues, waiting_for_brokers
from twinlog.cli.verdict.issues import Issue, Level, Verdict, bad, remedy, worst_first

EVERYTHING = "twinlog"
"""What an issue is about that concerns all of it."""


def verdict_of(status: Status) -> Verdict:
    file = known_file(status)
    if status.services and all(row.health != SERVING for row in status.services):
        return Verdict(issues=[_no_service(status.services, file)])
    issues = _services(status, file)
    swallowed: dict[str, list[Issue]] = {alias: [] for alias in status.clusters}
    for name, row in sorted(status.flows.items()):
        own: list[Issue] = []
        for issue in flow_issues(row, file, source_answers=_answers(status, "source")):
            ends = [status.clusters[alias] for alias in _ends(name) if alias in status.clusters]
            ends.sort(key=lambda row: not row.is_away)
            cause = cause_of(issue.reason, ends)
            (swallowed[cause] if cause else own).append(issue)
        issues += waiting_for_brokers(own)
    for alias, cluster in sorted(status.clusters.items()):
        held = [row for name, row in sorted(status.flows.items()) if alias in _ends(name)]
        issues += cluster_issues(cluster, held, swallowed.get(alias, ()), len(status.services), file)
    if not status.flows and not issues:
        issues.append(bad(EVERYTHING, "NO_FLOWS", "no service has a flow"))
    return Verdict(issues=worst_first(issues))


def standing_by(status: Status) -> list[str]:
    """The flows that another process copies."""
    services = [row for row in status.services if row.name == "source"]
    return [
        name
        for name, row in sorted(status.flows.items())
        if not all(works_here(service, row) for service in services)
    ]


def known_file(status: Status) -> str:
    """The properties file of the services that answered, else the one that was given; empty if they run with
    several."""
    files = {row.config for row in status.services if row.config}
    return files.pop() if len(files) == 1 else "" if files else status.asked_file or ""


def of_services(issues: Iterable[Issue], flow: str) -> list[Issue]:
    """Those about no single flow, without clusters that only other flows need."""
    return [each for each in issues if "->" not in each.about and (not each.flows or each.concerns(flow))]


def _ends(flow: str) -> tuple[str, str]:
    source, _, target = flow.partition("->")
    return source, target


def _answers(status: Status, service: str) -> bool:
    return any(row.name == service and row.health == SERVING for row in status.services)


def _services(status: Status, file: str) -> list[Issue]:
    issues = [_service(row, file) for row in status.services if row.health != SERVING or row.reason]
    told = (
        "the port is open to other machines without TLS or without authentication: twinlog.insecure is true"
    )
    open_ = [row.name for row in status.services if row.security == "insecure"]
    return [*issues, *(bad(name, "INSECURE", told, level=Level.NOTE, stops=False) for name in open_)]


def _service(row: ServiceRow, file: str) -> Issue:
    told = row.message or f"the service at {row.endpoint} does not serve"
    command = remedy(row.reason, file=file) if row.health == SERVING else ""
    return bad(row.name, row.reason or row.health, told, command)


def _no_service(rows: Sequence[ServiceRow], file: str) -> Issue:
    """Whatever else was known of them is old: this is the only thing to act on."""
    first = _service(rows[0], file)
    told = tuple(f"{row.name}: {row.message or row.health}" for row in rows)
    command = remedy("NO_SERVICE", file=file)
    where = "" if command else ": `twinlog run FILE` starts them, --config FILE names their addresses"
    return replace(
        first,
        about=EVERYTHING,
        message=f"no service answers (of {len(rows)}): they do not run, or elsewhere{where}",
        command=command,
        symptoms=len(rows) - 1,
        details=told,
    )
