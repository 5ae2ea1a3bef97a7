"""Whether the groups of a flow may be moved now, check by check. Pure."""

import shlex
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten

from twinlog.cli.common.location import SERVICES
from twinlog.cli.common.names import counted, shown_seconds
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.rows import FlowRow, Status
from twinlog.cli.verdict.flows import DISABLED, FOLLOWS_FROM_CLUSTER, partitions
from twinlog.cli.verdict.issues import Issue, Verdict
from twinlog.cli.verdict.verdict import of_services, verdict_of
from twinlog.kafka.reasons import no_answer

# How fast a backlog drains, from samples of the lag. Pure.

WINDOW_SECONDS = 60.0
SHORTEST_SECONDS = 5.0
"""Over less than this nothing is said."""

DRAINED, DRAINING, LOSING, STEADY, UNKNOWN = "DRAINED", "DRAINING", "LOSING", "STEADY", "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    state: str
    """DRAINED (lag 0), DRAINING, LOSING (the lag grows), STEADY, UNKNOWN."""
    records_per_second: float | None = None
    """By which the lag becomes smaller; negative: larger."""
    seconds_left: float | None = None
    """Until the lag is 0; None unless DRAINING."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    """Seconds of a monotonic clock."""
    lag: int | None
    """None: it was not known."""


def drain_of(samples: Iterable[Sample]) -> Drain:
    """By the first and the last known lag of the last minute.

    >>> drain_of([Sample(0.0, 1000), Sample(10.0, 500)])
    Drain(state='DRAINING', records_per_second=50.0, seconds_left=10.0)
    """
    told = list(samples)
    if not told or told[-1].lag is None:
        return Drain(state=UNKNOWN)
    newest = told[-1]
    if newest.lag == 0:
        return Drain(state=DRAINED)
    first = next(each for each in told if each.lag is not None and newest.at - each.at <= WINDOW_SECONDS)
    seconds = newest.at - first.at
    if first.lag is None or newest.lag is None or seconds < SHORTEST_SECONDS:
        return Drain(state=UNKNOWN)
    rate = (first.lag - newest.lag) / seconds
    if rate > 0:
        return Drain(state=DRAINING, records_per_second=rate, seconds_left=newest.lag / rate)
    return Drain(state=LOSING if rate < 0 else STEADY, records_per_second=rate)


def until_the_slowest(drain: Drain, seconds: float | None) -> Drain:
    """With the seconds that the source service tells, if it does, as `twinlog status` shows them: all
    partitions together may drain faster than the one that takes longest."""
    return replace(drain, seconds_left=seconds) if drain.state == DRAINING and seconds else drain


class LagHistory:
    """The samples that `drain_of` may need, of one flow."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> Drain:
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_SECONDS:
            self._samples.popleft()
        return drain_of(self._samples)


def drain_told(row: FlowRow) -> Drain:
    """By one answer of the source service, where there are no samples."""
    if row.lag_records == 0:
        return Drain(state=DRAINED)
    if row.falls_behind_per_second:
        return Drain(state=LOSING, records_per_second=-row.falls_behind_per_second)
    if row.caught_up_in_seconds is not None:
        return Drain(state=DRAINING, seconds_left=row.caught_up_in_seconds)
    return Drain(state=UNKNOWN)


GO, WAIT, NO_GO = "GO", "WAIT", "NO_GO"
_FOLLOWS = "follows"
"""NO_GO, because of what another check tells."""

TRANSLATED = frozenset({"EXACT", "PRESERVED", "BEFORE_START", "UP_TO_DATE", "FLOOR", "MAPPED"})
"""Verdicts with which a group has a place on the target. FLOOR and MAPPED repeat records, and lose none."""
_AS_THEY_ARE = frozenset({"ACTIVE_ON_TARGET", "NOT_REPLICATED"})
"""Verdicts on offsets that a move leaves as they are, and that nobody has to mend."""
_PROBLEMS_NAMED = 3
_LINE = 100
"""In characters."""
ANSWER = "Services and clusters answer"
_NO_DIFFERENCE = "No difference of a copy is known"
_BEHIND = "Nothing waits behind a transaction of the source"
_UNFINISHED = "No earlier move is unfinished"
MOVABLE = "The checkpoint service can move the groups"
BACKLOG, GROUPS = "The backlog is copied", "Groups have offsets on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that has to hold before a move."""

    title: str
    verdict: str
    """GO, WAIT (it becomes so by itself), NO_GO (somebody has to act)."""
    message: str
    command: str = ""
    """What shows more of it, or mends it; empty with GO."""
    follows: bool = False
    """It is NO_GO because of what another check tells, and no reason of its own."""


def readiness(row: FlowRow, verdict: Verdict, drain: Drain, blockers: Collection[str] = ()) -> list[Check]:
    """In the order in which a person would look. What is NO_GO because of a service or a cluster that does
    not answer follows from it, as what `blockers` of a plan tell: each cause is one reason."""
    services = of_services(verdict.stopping, row.flow)
    own = [
        each
        if each.about == row.flow
        else replace(each, message=f"it waits: {_cause(each.message)}", command="")
        for each in verdict.stopping
        if each.concerns(row.flow)
    ]
    starts = bool(own) and all(each.waits for each in own)
    stands = bool(own) and not starts

    def unknown(service: str) -> str:
        # While a flow starts, nobody has to act on what is not known yet.
        causes = [each for each in services if each.about == service or each.about not in SERVICES]
        return WAIT if starts else _not_told(causes)

    source = None if row.records is not None else unknown("source")
    losses = source if row.gaps_known else unknown("source")
    moves = None if row.group_count is not None and row.moves_known else unknown("checkpoint")
    running, differing = partitions(sum(row.partitions.values())), (kinds.DIFFERS, kinds.FOREIGN)
    found = [
        _answer(services, blockers),
        _problems(
            "Everything moves", own, [each.about != row.flow for each in own], f"{running} without a problem"
        ),
        _lag(row, drain, unknown("source"), _FOLLOWS if stands else WAIT),
        _groups(row, unknown("checkpoint")),
        _in_force(row, "Losses are dealt with", (kinds.GAPS,), _lost(row), "losses", losses),
        _in_force(row, _NO_DIFFERENCE, differing, _compared(row), "differences of copies", source),
        _in_force(
            row, _BEHIND, (kinds.OPEN_TRANSACTION,), "none stays open", "open transactions", source, WAIT
        ),
        # `run` continues it, or takes its place; while it runs, the plan is blocked.
        _in_force(row, _UNFINISHED, (kinds.MOVE,), "none", "unfinished moves", moves, WAIT),
        _heartbeats(row, WAIT if row.holds_heartbeats else unknown("heartbeat")),
    ]
    return list(map(_decided, found))


def checks_of(status: Status, kind: str, flow: str, blockers: Collection[str] = ()) -> list[Check]:
    """What all services say for or against a move, besides the `blockers` of its plan, which knows its groups
    better. A failback is not held up by the state of the copy, which groups leave, unless it has records that
    only it has."""
    verdict, row = verdict_of(status), status.flows.get(flow)
    services = of_services(verdict.stopping, flow)
    answer = _answer(services, blockers)
    if row is None:
        return [_decided(answer)]
    if kind == "failback":
        unknown = None if row.records is not None else _not_told(services)
        what, good = "writes of other producers into copies", "no other write is known"
        title = "Only Twinlog wrote into the copies"
        written = _in_force(row, title, (kinds.FOREIGN,), good, what, unknown)
        return [_decided(answer), _decided(written)]
    checks = readiness(row, verdict, drain_told(row), blockers)
    return [check for check in checks if not check.title.startswith(GROUPS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """What the checkpoint service's own plan says that decides for or against a move."""

    command: str
    """That shows the plan."""
    blockers: Sequence[str]
    records: int | None
    """Not copied; None: not known."""
    at_most: int | None
    why: str
    """Why it is not known."""
    seconds: float | None
    """Until they are, at the present pace."""
    groups: int
    active: Mapping[str, int]
    """Groups that still have members, by the cluster where they have them."""
    leaves: str
    """The cluster that they leave."""
    away: bool
    """Whether it does not answer."""
    unread: str = ""
    """Which offsets cannot be read or translated now, and why."""


def plan_checks(plan: PlanFacts) -> list[Check]:
    return [_plan(plan), _plan_backlog(plan)]


def with_plan(checks: Sequence[Check], plan: Sequence[Check]) -> list[Check]:
    """The plan knows the backlog better, unless something keeps that from draining. What blocks the move
    itself comes first, because it says what to do."""
    stuck = {check.title: check for check in checks if check.verdict == NO_GO}
    better = [
        replace(check, verdict=NO_GO, follows=True)
        if check.title in stuck and check.verdict == WAIT
        else check
        for check in plan
        if check.title not in stuck or stuck[check.title].follows
    ]
    named = {check.title for check in better}
    found = [*(check for check in checks if check.title not in named), *better]
    return sorted(
        found, key=lambda check: not (check in better and check.verdict == NO_GO and not check.follows)
    )


def against(checks: Sequence[Check]) -> list[Check]:
    """What stands against the move, without what only names the cause of another check again."""
    found = [check for check in checks if check.verdict != GO]
    causes = [_cause(check.message) for check in found if not check.follows]
    return [check for check in found if not (check.follows and any(each in check.message for each in causes))]


def verdict_words(checks: Sequence[Check], *, briefly: bool = False) -> str:
    """The verdict in one line: `WAIT: 12 records are not copied yet`. `briefly`: of a check that tells at
    length, only the cause."""
    verdict = overall(checks)
    if verdict == GO:
        return "GO"
    of_it = [check for check in checks if check.verdict == verdict]
    causes = [check for check in of_it if not check.follows] or of_it
    told = list(dict.fromkeys(_brief(check.message) if briefly else check.message for check in causes))
    more = f"; and {len(told) - _PROBLEMS_NAMED} more" if len(told) > _PROBLEMS_NAMED else ""
    return f"{verdict_word(verdict)}: {'; '.join(told[:_PROBLEMS_NAMED])}{more}"


def _brief(message: str) -> str:
    """As it is where it fits a line."""
    return message if len(message) <= _LINE else shorten(_cause(message), _LINE, placeholder=" …")


def verdict_word(verdict: str) -> str:
    return verdict.replace("_", "-")


def overall(checks: Sequence[Check]) -> str:
    """NO_GO if one says so, else WAIT if one does, else GO."""
    verdicts = {check.verdict for check in checks}
    return next((verdict for verdict in (NO_GO, WAIT) if verdict in verdicts), GO)


def fences(row: FlowRow) -> list[str]:
    """What keeps writers out, in words."""
    return [each.message for each in row.in_force if each.kind == kinds.FENCE]


def _decided(check: Check) -> Check:
    return replace(check, verdict=NO_GO, follows=True) if check.verdict == _FOLLOWS else check


def _not_told(causes: Sequence[Issue]) -> str:
    """The verdict on what is not known because of these."""
    if not causes:
        return NO_GO
    return WAIT if all(each.waits for each in causes) else _FOLLOWS


def _answer(services: Sequence[Issue], blockers: Collection[str]) -> Check:
    return _problems(ANSWER, services, [_is_told(each, blockers) for each in services], "all of them")


def _is_told(issue: Issue, blockers: Collection[str]) -> bool:
    """Whether a blocker tells the same, with what to do about it."""
    words = no_answer(issue.about, issue.reason), _cause(issue.message)
    return any(each.startswith(words) or issue.message.startswith(each) for each in blockers)


def _cause(message: str) -> str:
    """Without what follows from it, and what to do about it."""
    return message.partition(";")[0]


def _problems(title: str, problems: Sequence[Issue], told_elsewhere: Sequence[bool], good: str) -> Check:
    """`told_elsewhere`: for each problem whether another check tells its cause."""
    if not problems:
        return Check(title=title, verdict=GO, message=good)
    told = "; ".join(map(_in_words, problems[:_PROBLEMS_NAMED]))
    more = len(problems) - _PROBLEMS_NAMED
    command = next((each.command for each in problems if each.command), "twinlog status")
    message = f"{told}; and {more} more" if more > 0 else told
    follows = [known for each, known in zip(problems, told_elsewhere, strict=True) if not each.waits]
    verdict = WAIT if not follows else _FOLLOWS if all(follows) else NO_GO
    return Check(title=title, verdict=verdict, message=message, command=command)


def _in_words(issue: Issue) -> str:
    names_itself = "->" in issue.about or issue.about in issue.message
    return issue.message if names_itself else f"{issue.about}: {issue.message}"


def _lag(row: FlowRow, drain: Drain, unknown: str, without_pace: str) -> Check:
    title = BACKLOG
    command = f"twinlog partitions {shlex.quote(row.flow)}"
    if row.lag_records is None:
        return Check(title=title, verdict=unknown, message="the lag is not known", command=command)
    if row.lag_records == 0:
        return Check(title=title, verdict=GO, message="the lag is 0")
    told = counted(row.lag_records, "record")
    if drain.state == LOSING and drain.records_per_second is not None:
        told = f"{told} left, and {-drain.records_per_second:,.0f} more each second"
        return Check(title=title, verdict=unknown, message=told, command=command)
    if drain.state == DRAINING and drain.seconds_left is not None:
        told = f"{told} left, about {shown_seconds(drain.seconds_left)}"
        return Check(title=title, verdict=WAIT, message=told, command=command)
    return Check(title=title, verdict=without_pace, message=f"{told} left, no estimate yet", command=command)


def _groups(row: FlowRow, unknown: str) -> Check:
    title = f"{GROUPS} {row.flow.partition('->')[2]}"
    command = f"twinlog groups {shlex.quote(row.flow)}"
    if row.group_count is None:
        return Check(title=title, verdict=unknown, message="the groups are not known", command=command)
    without = {verdict: count for verdict, count in row.groups.items() if verdict not in TRANSLATED and count}
    if not without:
        all_of = "1 group" if row.group_count == 1 else f"all {row.group_count:,} groups"
        return Check(title=title, verdict=GO, message=all_of if row.group_count else "there are no groups")
    told = ", ".join(f"{counted(count, 'offset')} {verdict}" for verdict, count in sorted(without.items()))
    if without.keys() <= _AS_THEY_ARE:
        return Check(title=title, verdict=GO, message=told)
    verdict = unknown if without.keys() <= FOLLOWS_FROM_CLUSTER else NO_GO
    return Check(title=title, verdict=verdict, message=told, command=command)


def _in_force(
    row: FlowRow,
    title: str,
    of: Sequence[str],
    good: str,
    what: str,
    unknown: str | None,
    otherwise: str = NO_GO,
) -> Check:
    """`unknown`: the verdict where nobody tells `what`; None: it is told."""
    if unknown is not None:
        told = f"{what} are not known"
        return Check(title=title, verdict=unknown, message=told, command="twinlog status")
    found = [each for each in row.in_force if each.kind in of]
    if not found:
        return Check(title=title, verdict=GO, message=good)
    told = "; ".join(each.message for each in found)
    return Check(title=title, verdict=otherwise, message=told, command=found[0].command)


def _lost(row: FlowRow) -> str:
    if not row.lost_acknowledged:
        return "none is recorded"
    by = ", ".join(row.lost_acknowledged_by)
    return f"{row.lost_acknowledged:,} source offsets are lost, acknowledged by {by}"


def _compared(row: FlowRow) -> str:
    """A proof needs continuous verification."""
    equal, total = row.proofs.get("EQUAL", 0), sum(row.partitions.values())
    if not equal:
        return f"not compared: `twinlog verify {shlex.quote(row.flow)}` does"
    return f"{equal:,} of {partitions(total)} compared, all equal"


def _heartbeats(row: FlowRow, unknown: str) -> Check:
    title = "Heartbeats arrive"
    if row.path == "ALIVE":
        delay = "" if row.delay_seconds is None else f"after {row.delay_seconds:.2f} s"
        return Check(title=title, verdict=GO, message=delay)
    said = {note.reason: note.message for note in row.notes if note.service == "heartbeat"}
    if DISABLED in said:
        return Check(title=title, verdict=GO, message=said[DISABLED])
    told = "the heartbeat service does not say" if row.path is None else f"the path is {row.path}"
    return Check(title=title, verdict=unknown, message=told, command="twinlog topology")


def _plan(plan: PlanFacts) -> Check:
    title = MOVABLE
    if plan.blockers:
        told = "; ".join(plan.blockers)
        return Check(title=title, verdict=NO_GO, message=told, command=plan.command)
    groups = "1 group" if plan.groups == 1 else f"{plan.groups:,} groups"
    told = "; ".join(
        f"{count:,} of {groups} {'has' if count == 1 else 'have'} members on {alias}: stop"
        f" {'its consumers, or it is' if count == 1 else 'their consumers, or they are'} not moved"
        for alias, count in plan.active.items()
        if count
    )
    if plan.unread:
        return Check(title=title, verdict=NO_GO, message=plan.unread, command=plan.command)
    if told:
        return Check(title=title, verdict=WAIT, message=told, command=plan.command)
    return Check(title=title, verdict=GO, message="nothing blocks the plan")


def _plan_backlog(plan: PlanFacts) -> Check:
    if plan.records == 0:
        return Check(title=BACKLOG, verdict=GO, message="every record is copied")
    if plan.away and not plan.blockers:
        # No run waits for records of a cluster that does not answer.
        return Check(title=BACKLOG, verdict=GO, message=f"what {plan.leaves} still has is accepted as lost")
    if plan.records is None:
        known = "an unknown number of" if plan.at_most is None else f"at most {plan.at_most:,}"
        told = f"{known} records are not copied yet{f': {plan.why}' if plan.why else ''}"
        return Check(title=BACKLOG, verdict=WAIT, message=told, command=plan.command)
    count = "1 record is" if plan.records == 1 else f"{plan.records:,} records are"
    left = "" if plan.seconds is None else f", about {shown_seconds(plan.seconds)}"
    return Check(title=BACKLOG, verdict=WAIT, message=f"{count} not copied yet{left}", command=plan.command)
