"""What is wrong with one flow or one cluster, grouped by its cause. Pure."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from twinlog.cli.common.names import counted
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.rows import ClusterRow, FlowRow, Note
from twinlog.cli.verdict.issues import SEVERITY, Issue, Level, bad, remedy, worst
from twinlog.kafka.outage import WAITS_FOR_BROKERS
from twinlog.kafka.reasons import REFUSALS

# What is wrong with a cluster: one issue for it, whatever follows from it. Pure.

FOLLOWS_FROM_CLUSTER = (
    frozenset(
        {
            *("BACKOFF", "STALLED", "WAITING", "STARTING", "NOT_READY", "NO_TASK", "FETCH_UNANSWERED"),
            *("TARGET_SLOW", "GROUPS_NOT_TRANSLATED", "SOURCE_UNREADABLE", "TARGET_UNREADABLE"),
            *("MOVES_UNKNOWN", "HEARTBEAT_MISSING", "PATH_UNKNOWN", "LAG_UNKNOWN", "FLOW_NOT_READY"),
            "PEER_TIMEOUT",
        }
    )
    | WAITS_FOR_BROKERS
)
"""What a flow says while one of its clusters is away, because of that."""
_FOLLOWS_FROM_BROKER = FOLLOWS_FROM_CLUSTER.difference(
    ("WAITING", "STARTING", "NOT_READY", "NO_TASK", "FLOW_NOT_READY", "PEER_TIMEOUT")
)
"""What a flow says while some brokers of a cluster do not answer, because of that."""
_UNANSWERED = WAITS_FOR_BROKERS - {"NOT_ENOUGH_REPLICAS", "HIGH_WATERMARK_BEHIND"}
_KINDS = (
    ("authentication failed", ("AUTHENTICATION", "SASL", "credentials")),
    ("TLS failed", ("TLS", "SSL", "certificate")),
    ("connection refused", ("Errno 111", "refused")),
    ("unknown host name", ("Errno -2", "Errno -3", "Name or service", "getaddrinfo", "resolve")),
    ("timed out", ("TIMEOUT", "timed out", "no answer within", "TimeoutError")),
)


def is_symptom_of_cluster(reason: str, row: ClusterRow) -> bool:
    """Whether what a flow says follows from its cluster: no service reaches it, or brokers of it are
    silent."""
    if row.is_away:
        return reason in FOLLOWS_FROM_CLUSTER or any(reason == note.reason for note in row.notes)
    return bool(row.silent_brokers) and reason in _FOLLOWS_FROM_BROKER


def cause_of(reason: str, rows: Iterable[ClusterRow]) -> str:
    """The alias of the first of these clusters that what a flow says follows from; empty for none."""
    return next((row.alias for row in rows if is_symptom_of_cluster(reason, row)), "")


def cluster_issues(
    row: ClusterRow, flows: Sequence[FlowRow], symptoms: Iterable[Issue], services: int, file: str
) -> list[Issue]:
    """`flows`: those with this cluster at an end; `services`: how many there are."""
    own = [_in_part(row, reason, notes, flows, file) for reason, notes in _by_reason(row.notes).items()]
    if not row.outage:
        return own
    follow = [each for each in own if is_symptom_of_cluster(each.reason, row)]
    others = [each for each in own if each not in follow]
    return [*others, _outage(row, flows, list(symptoms), follow, services, file)]


def _in_part(
    row: ClusterRow, reason: str, notes: Sequence[Note], flows: Sequence[FlowRow], file: str
) -> Issue:
    """Some services reach the cluster."""
    told = f"{', '.join(note.service for note in notes)}: {notes[0].message}"
    held = tuple(each.flow for each in flows)
    return bad(row.alias, reason, told, remedy(reason, file=file), flows=held)


def _outage(
    row: ClusterRow,
    flows: Sequence[FlowRow],
    symptoms: Sequence[Issue],
    own: Sequence[Issue],
    services: int,
    file: str,
) -> Issue:
    """`own`: what services say of the cluster itself."""
    follow, more = [*symptoms, *own], len(own)
    reason = "BROKER_SILENT"
    so, seen, goes_on, said = "", "", "", _told_by(own)
    if row.is_away:
        first, *others = sorted(row.notes, key=lambda note: note.service)
        so = f": {failure_kind(first.reason, first.message)} ({_who(row, services)}{_since(row)})"
        goes_on = "" if first.reason in REFUSALS else ". Twinlog continues by itself"
        said = tuple(f"{note.service}: {note.message}" for note in (first, *others))
        reason, more = first.reason, len(others)
    elif (by := sorted(set().union(*row.silent_brokers.values()))) != sorted(row.seen_by):
        seen = f" (seen by {', '.join(by)})"
    blocks, told = row.outage.judged(row.alias, so=so, waits=any(each.stops for each in follow))
    return Issue(
        level=Level.BAD if blocks else max((Level.WARN, worst(follow)), key=SEVERITY.index),
        about=row.alias,
        reason=reason,
        message=f"{told}{seen}{_waits(flows) if blocks else ''}{goes_on}",
        stops=blocks,
        flows=tuple(each.flow for each in flows) if blocks else (),
        command=remedy(reason, file=file),
        symptoms=len(symptoms) + more,
        details=(*said, *_told_by(symptoms)) if row.is_away else (*_told_by(symptoms), *said),
    )


def _told_by(issues: Iterable[Issue]) -> tuple[str, ...]:
    return tuple(f"{each.about}: {each.reason}: {each.message}" for each in issues)


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
    wait = every - sum(row.partitions.get(state, 0) for row in flows for state in (RUNNING, *_BY_THEMSELVES))
    if not wait:
        return ""
    return f". {wait:,} of {every:,} partitions wait; nothing is lost while the source keeps its records"


RUNNING = "RUNNING"
DISABLED = "HEARTBEATS_DISABLED"
_PAUSED, _WAITS = "PAUSED", "WAITING"
_BY_THEMSELVES = (_PAUSED, "FAULTED")
"""States of partitions that no cluster that is away holds: they are told beside it."""
_AS_CONFIGURED = frozenset(
    {"NO_TOPICS", "NO_TOPICS_SELECTED", DISABLED, "NOT_REPLICATED", "FAILED_OVER", kinds.STANDS_BY}
)
"""Reasons that say that there is nothing to move, nothing to prove it by, another process that does it, or
groups that were moved, so that nothing is deleted."""
_MAY_END = frozenset(
    {_PAUSED, _WAITS, kinds.STARTING, "BACKOFF", "TOPICS_WAITING", "NOT_READY", "THROTTLED", "QUOTA"}
)
"""Reasons that are warnings; all others are problems."""
_SLOW, _STAND = "TARGET_SLOW", ("STALLED", "FAULTED")
"""Slowness is a problem once a partition has made no progress for `twinlog.stalled.seconds`."""
_LEFT = {
    kinds.GAPS: Level.BAD,
    kinds.DIFFERS: Level.BAD,
    kinds.FOREIGN: Level.BAD,
    kinds.MOVE: Level.WARN,
    kinds.OPEN_TRANSACTION: Level.WARN,
    kinds.SHARED_COPY: Level.WARN,
}
"""What is in force and no order of somebody's."""
_UNREADABLE = ("SOURCE_UNREADABLE", "TARGET_UNREADABLE")
"""Verdicts on offsets of groups, by the end of the flow that does not tell: no plan moves them."""
_OF_NO_COPY = frozenset(
    {
        *("GROUPS_NOT_TRANSLATED", kinds.HEARTBEAT_MISSING, "PATH_UNKNOWN", "LAG_UNKNOWN", kinds.STARTING),
        *_UNREADABLE,
    }
)
"""What other services say of a flow that copies nothing."""


def flow_issues(row: FlowRow, file: str = "", *, source_answers: bool = True) -> list[Issue]:
    """`source_answers`: otherwise it is known why nobody tells of the copy."""
    issues = _caused(row, [*_of_notes(row, file), *_of_states(row), *_unknown(row, file)])
    issues += _in_force(row)
    if row.falls_behind_per_second:
        told = f"the lag grows by {row.falls_behind_per_second:,.0f} records each second"
        issues.append(_of(row, Level.WARN, "FALLING_BEHIND", told, "twinlog partitions {flow}", stops=False))
    if row.records is None and source_answers and not any(each.stops for each in issues):
        issues.append(_of(row, Level.BAD, "NOT_COPIED", "no source service has this flow"))
    return issues


def partitions(count: int) -> str:
    return counted(count, "partition")


def _of_notes(row: FlowRow, file: str) -> list[Issue]:
    """One issue for each reason, whichever services say it."""
    by_reason: dict[str, list[Note]] = {}
    for note in row.notes:
        if note.reason == kinds.HEARTBEAT_MISSING and row.holds_heartbeats:
            continue
        by_reason.setdefault(note.reason, []).append(note)
    found = []
    for reason, notes in by_reason.items():
        notes.sort(key=lambda note: (note.service != "source", note.service))
        is_note = reason in _AS_CONFIGURED or (
            row.path == "ALIVE" and all(note.service == "heartbeat" for note in notes)
        )
        level, waits = Level.NOTE if is_note else _level(reason), reason == kinds.STARTING and not is_note
        is_short = reason == _SLOW and not any(row.partitions.get(state) for state in _STAND)
        level = Level.WARN if is_short else level
        told = f"{', '.join(note.service for note in notes)}: {notes[0].message}"
        command = remedy(reason, flow=row.flow, file=file)
        found.append(_of(row, level, reason, told, command, stops=not (is_note or is_short), waits=waits))
    return found


def _of_states(row: FlowRow) -> list[Issue]:
    as_it_should = {RUNNING, _WAITS} if row.stands_by("source") else {RUNNING}
    still = {state: count for state, count in row.partitions.items() if count and state not in as_it_should}
    return [
        _paused(row, count) if state == _PAUSED else _state(row, state, count)
        for state, count in sorted(still.items())
    ]


def _state(row: FlowRow, state: str, count: int) -> Issue:
    told = f"{partitions(count)} {'is' if count == 1 else 'are'} {state}"
    return _of(row, _level(state), state, told, "twinlog partitions {flow} --trouble")


def _paused(row: FlowRow, count: int) -> Issue:
    """With the command that ends it, if it is one pause."""
    found, pauses = _state(row, _PAUSED, count), [each for each in row.in_force if each.kind == kinds.PAUSE]
    command = pauses[0].command if len(pauses) == 1 else found.command
    scopes = ", ".join(each.about.removeprefix(f"{row.flow} ") for each in pauses if each.about != row.flow)
    message = f"{found.message}: {scopes}" if scopes else found.message
    return replace(found, message=message, command=command, in_force=bool(pauses))


def _unknown(row: FlowRow, file: str) -> list[Issue]:
    found = []
    if row.path == "UNKNOWN" and not any(note.service == "heartbeat" for note in row.notes):
        told = "the heartbeat service does not know whether heartbeats arrive"
        command = remedy("PATH_UNKNOWN", flow=row.flow, file=file)
        found.append(_of(row, Level.BAD, "PATH_UNKNOWN", told, command))
    if row.partitions_of_unknown_lag or (row.records is not None and row.lag_records is None):
        count = row.partitions_of_unknown_lag or 0
        told = f"the lag of {partitions(count)} is not known" if count else "its positions are not known"
        found.append(_of(row, Level.BAD, "LAG_UNKNOWN", told, "twinlog partitions {flow}"))
    source, _, target = row.flow.partition("->")
    for reason, alias in zip(_UNREADABLE, (source, target), strict=True):
        if unread := row.groups.get(reason):
            told = f"{counted(unread, 'offset')} of groups cannot be read on {alias} now"
            found.append(_of(row, Level.BAD, reason, told, "twinlog groups {flow}", stops=False))
    return found


def _of(row: FlowRow, level: Level, reason: str, told: str, command: str = "", **more: Any) -> Issue:
    """`{flow}` in the command is the flow."""
    command = command.replace("{flow}", shlex.quote(row.flow))
    return bad(more.pop("about", row.flow), reason, told, command, level=level, **more)


def _caused(row: FlowRow, issues: Sequence[Issue]) -> list[Issue]:
    """The source service says of its partitions why they do not run: the number of those that do not is no
    issue of its own. What other services say of a flow that copies nothing follows from that."""
    reasons = {note.reason for note in row.notes if note.service == "source"} - _AS_CONFIGURED
    cause = next((each for each in issues if each.reason in reasons), None)
    nothing = not row.partitions.get(RUNNING) and not row.stands_by("source")
    states = cause is not None
    if cause is None and any(
        each.reason == kinds.STARTING and each.service != "heartbeat" for each in row.notes
    ):
        cause = next(each for each in issues if each.reason == kinds.STARTING)
    if cause is None:
        return list(issues)
    from_cluster = cause.reason in FOLLOWS_FROM_CLUSTER | _FOLLOWS_FROM_BROKER
    apart = {*_BY_THEMSELVES} if from_cluster else {_PAUSED}

    def follows(each: Issue) -> bool:
        if each is cause or each.level == Level.NOTE or each.reason in apart:
            return False
        if each.reason in row.partitions:
            return states
        if cause.reason == "QUOTA" and each.reason == kinds.HEARTBEAT_MISSING:
            return True
        return each.reason in _OF_NO_COPY and (nothing or cause.reason == kinds.STARTING)

    swallowed = [each for each in issues if follows(each)]
    whole = replace(
        cause,
        level=worst((cause, *(each for each in swallowed if each.reason in row.partitions))),
        symptoms=len(swallowed),
        details=tuple(f"{each.reason}: {each.message}" for each in swallowed),
    )
    if cause.reason == kinds.STARTING:
        whole = replace(whole, level=Level.WARN)
    return [whole if each is cause else each for each in issues if each not in swallowed]


def waiting_for_brokers(issues: Sequence[Issue]) -> list[Issue]:
    """Before a look at the cluster names the brokers that are silent, what waits for them in a flow is one
    issue: what the source service says of the copy, if it does. Replicas may stay behind while every broker
    answers: nothing else follows from these."""
    waiting = [each for each in issues if each.stops and each.reason in _UNANSWERED]
    if not waiting:
        return list(issues)
    cause = next((each for each in waiting if each.message.startswith("source")), waiting[0])
    follow = [each for each in issues if each is not cause and each.reason in _FOLLOWS_FROM_BROKER]
    whole = replace(
        cause,
        symptoms=cause.symptoms + len(follow) + sum(each.symptoms for each in follow),
        details=(*cause.details, *_told_by(follow), *(told for each in follow for told in each.details)),
    )
    return [whole if each is cause else each for each in issues if each not in follow]


def _in_force(row: FlowRow) -> list[Issue]:
    found = []
    for each in row.in_force:
        waits, flows = each.kind == kinds.WAITING, () if each.about == row.flow else (row.flow,)
        level = Level.WARN if waits else _LEFT.get(each.kind, Level.NOTE)
        reason = "TOPICS_WAITING" if waits else each.kind
        more = {"about": each.about, "stops": waits, "in_force": True, "flows": flows}
        if each.kind != kinds.PAUSE:
            found.append(_of(row, level, reason, each.message, each.command, **more))
    return found


def _level(reason: str) -> Level:
    return Level.WARN if reason in _MAY_END else Level.BAD
