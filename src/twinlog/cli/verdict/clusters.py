"""What is wrong with a cluster: one issue for it, whatever follows from it. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from twinlog.cli.status.rows import ClusterRow, FlowRow, Note
from twinlog.cli.verdict.issues import Issue, Level, bad, remedy
from twinlog.kafka.ports import Outage
from twinlog.kafka.reasons import REFUSALS, no_answer

FOLLOWS_FROM_CLUSTER = frozenset(
    {
        *("BACKOFF", "STALLED", "WAITING", "STARTING", "NOT_READY", "NO_TASK", "FETCH_UNANSWERED"),
        *("TARGET_SLOW", "GROUPS_NOT_TRANSLATED", "SOURCE_UNREADABLE", "TARGET_UNREADABLE"),
        *("MOVES_UNKNOWN", "HEARTBEAT_MISSING", "PATH_UNKNOWN", "LAG_UNKNOWN", "FLOW_NOT_READY"),
        *("KAFKA_UNAVAILABLE", "KAFKA_TIMEOUT", "LEADER_UNAVAILABLE", "COORDINATOR_UNAVAILABLE"),
        *("PEER_TIMEOUT",),
    }
)
"""What a flow says while one of its clusters is away, because of that."""
_KINDS = (
    ("authentication failed", ("AUTHENTICATION", "SASL", "credentials")),
    ("TLS failed", ("TLS", "SSL", "certificate")),
    ("connection refused", ("Errno 111", "refused")),
    ("unknown host name", ("Errno -2", "Errno -3", "Name or service", "getaddrinfo", "resolve")),
    ("timed out", ("TIMEOUT", "timed out", "no answer within", "TimeoutError")),
)


def is_symptom_of_cluster(issue: Issue, away: ClusterRow) -> bool:
    """Whether an issue of a flow follows from its cluster, which no service reaches."""
    return issue.reason in FOLLOWS_FROM_CLUSTER or any(issue.reason == note.reason for note in away.notes)


def cluster_issues(
    row: ClusterRow, flows: Sequence[FlowRow], symptoms: Iterable[Issue], services: int, file: str
) -> list[Issue]:
    """`flows`: those with this cluster at an end; `services`: how many there are."""
    if not row.is_away:
        return [
            *(_in_part(row, reason, notes, flows, file) for reason, notes in _by_reason(row.notes).items()),
            *_silent(row),
        ]
    first = min(row.notes, key=lambda note: note.service)
    swallowed = list(symptoms)
    said = tuple(f"{note.service}: {note.message}" for note in sorted(row.notes, key=lambda n: n.service))
    told = (
        f"{no_answer(row.alias, first.reason)}: {failure_kind(first.reason, first.message)}"
        f" ({_who(row, services)}{_since(row)}){_waits(flows)}"
    )
    more = {
        "flows": tuple(each.flow for each in flows),
        "symptoms": len(row.notes) - 1 + len(swallowed),
        "details": said + tuple(f"{each.about}: {each.reason}: {each.message}" for each in swallowed),
    }
    found = bad(row.alias, first.reason, told, remedy(first.reason, file=file), **more)
    if first.reason in REFUSALS:
        return [found]
    return [replace(found, message=f"{found.message}. Twinlog continues by itself")]


def _in_part(
    row: ClusterRow, reason: str, notes: Sequence[Note], flows: Sequence[FlowRow], file: str
) -> Issue:
    """Some services reach the cluster."""
    told = f"{', '.join(note.service for note in notes)}: {notes[0].message}"
    held = tuple(each.flow for each in flows)
    return bad(row.alias, reason, told, remedy(reason, file=file), flows=held)


def _silent(row: ClusterRow) -> Iterator[Issue]:
    if not row.silent_brokers:
        return
    by = sorted({service for services in row.silent_brokers.values() for service in services})
    outage = Outage(
        brokers=frozenset(row.silent_brokers),
        without_leader=row.partitions_without_leader,
        under_replicated=row.partitions_under_replicated,
    )
    told = outage.told(row.alias) + ("" if by == sorted(row.seen_by) else f" (seen by {', '.join(by)})")
    yield bad(row.alias, "BROKER_SILENT", told, level=Level.WARN, stops=False)


def failure_kind(reason: str, message: str) -> str:
    """What kind of failure keeps a cluster away.

    >>> failure_kind("KAFKA_UNAVAILABLE", "no broker can be reached ([Errno 111] Connect call failed)")
    'connection refused'
    """
    text = f"{reason} {message}"
    return next(
        (kind for kind, signs in _KINDS if any(sign in text for sign in signs)), "no broker can be reached"
    )


def _by_reason(notes: Iterable[Note]) -> dict[str, list[Note]]:
    found: dict[str, list[Note]] = {}
    for note in sorted(notes, key=lambda note: (note.reason, note.service)):
        found.setdefault(note.reason, []).append(note)
    return found


def _who(row: ClusterRow, services: int) -> str:
    by = sorted(service for service, seen in row.seen_by.items() if seen is False)
    return f"all {services} services" if len(by) == services > 1 else f"by {', '.join(by)}"


def _since(row: ClusterRow) -> str:
    return f", since {row.away_since[:10]} {row.away_since[11:19]} UTC" if row.away_since else ""


def _waits(flows: Sequence[FlowRow]) -> str:
    every = sum(sum(row.partitions.values()) for row in flows)
    wait = every - sum(row.partitions.get("RUNNING", 0) for row in flows)
    if not wait:
        return ""
    return f". {wait:,} of {every:,} partitions wait; nothing is lost while the source keeps its records"
