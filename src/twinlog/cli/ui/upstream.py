"""Asks the four services for all browsers together. A service that is away is a row; what was known of it
stays.
"""

import asyncio
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.call import Services, pause_seconds
from twinlog.cli.common.names import shown_seconds
from twinlog.cli.status.query import query_status
from twinlog.cli.status.rows import SERVING, FlowRow, Status
from twinlog.cli.status.view import Writing, producers_of
from twinlog.cli.ui.feed import (
    Feed,
    Row,
    gap_rows,
    group_rows,
    move_rows,
    partition_key,
    partition_row,
    path_rows,
    roles,
    shared_owners,
)
from twinlog.cli.verdict.flows import partitions
from twinlog.cli.verdict.issues import SEVERITY, Issue, Level, Verdict, worst
from twinlog.cli.verdict.moving import (
    Drain,
    LagHistory,
    Sample,
    fences,
    overall,
    readiness,
    until_the_slowest,
)
from twinlog.cli.verdict.verdict import verdict_of
from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.service.waiting import wait_or_stop

# How a flow is doing, in one word, and the head of the page: both from the one verdict. Pure.

CATCHING_UP_SECONDS = 30.0
"""The lag of a busy flow goes up and down all the time: a younger one is no backlog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    level: Level
    word: str
    """`Copying`, `Falling behind`: for people."""
    issues: Sequence[Issue] = field(default_factory=tuple)
    """Of the flow itself, the worst first."""
    notes: Sequence[Issue] = field(default_factory=tuple)
    """What services say of it and nobody has to act on, besides what is in force."""


def flow_health(row: FlowRow, verdict: Verdict) -> Health:
    pressing = [each for each in verdict.pressing if each.concerns(row.flow)]
    silent = [Level.WARN] if _is_silent(row) else []
    return Health(
        level=max([worst(pressing), *silent], key=SEVERITY.index),
        word=_word(row, pressing),
        issues=[each for each in pressing if "->" in each.about],
        notes=[
            each
            for each in verdict.issues
            if each.concerns(row.flow) and each.level == Level.NOTE and not each.in_force
        ],
    )


def head(verdict: Verdict, flows: int) -> dict[str, Any]:
    """For the head of the page and the tab: level, title, and what is pressing, the worst first."""
    title = verdict.counts or (f"All {flows} flows are healthy" if flows > 1 else "Healthy")
    pressing = verdict.pressing
    return {"level": worst(pressing), "title": title, "issues": [asdict(each) for each in pressing]}


def _is_silent(row: FlowRow) -> bool:
    """Whether nobody tells of its copy."""
    return row.records is None and not row.stands_by("source")


def _word(row: FlowRow, pressing: Sequence[Issue]) -> str:
    level = worst(pressing)
    if row.is_paused:
        return "Paused"
    if level == Level.BAD:
        return "In trouble"
    if any(each.reason == "FALLING_BEHIND" for each in pressing):
        return "Falling behind"
    if level == Level.WARN:
        return "Needs attention"
    if _is_silent(row):
        return "Not known"
    if row.stands_by("source"):
        return "On standby"
    if row.lag_records and (row.lag_seconds or 0.0) > CATCHING_UP_SECONDS:
        return "Catching up"
    return "Idle" if producers_of(row).state == Writing.SILENT else "Copying"


# What somebody asks first who moves applications: do producers still write to the source, are both ends
# equal, did groups resume on the target? Pure.

_JUST_NOW_SECONDS = 2.0
VERIFY_EACH_5_MIN = "twinlog.verify.interval.seconds = 300"
GOOD, BAD, UNKNOWN, NEUTRAL = "good", "bad", "unknown", "neutral"


@dataclass(frozen=True, slots=True)
class Fact:
    question: str
    answer: str
    """A word or two."""
    detail: str
    tone: str = NEUTRAL
    """GOOD, BAD, UNKNOWN; NEUTRAL where an answer is neither."""
    command: str = ""
    """What changes or explains it: a command, or a line of the file."""


def facts(row: FlowRow) -> list[Fact]:
    source, _, target = row.flow.partition("->")
    return [_producers(row, source), _both_ends(row), _resumed(row, target)]


def _producers(row: FlowRow, source: str) -> Fact:
    question = f"Do producers still write to {source}?"
    found = producers_of(row)
    match found.state:
        case Writing.WRITE:
            return Fact(question, "Yes", f"last record {_ago(found.seconds or 0)}")
        case Writing.SILENT if found.seconds is None:
            return Fact(question, "No", "no record since the source service started")
        case Writing.SILENT:
            return Fact(question, "No", f"last record {_ago(found.seconds or 0)}")
        case Writing.UNKNOWN if found.seconds is None:
            return Fact(question, "Unknown", f"{source} has not been watched for a minute yet", UNKNOWN)
        case Writing.UNKNOWN:
            return Fact(question, "Unknown", f"{source} was last read {_ago(found.seconds or 0)}", UNKNOWN)
        case Writing.UNTOLD:
            return Fact(question, "Unknown", "the source service does not say", UNKNOWN)


def _both_ends(row: FlowRow) -> Fact:
    question = "Are both ends equal?"
    verify = f"twinlog verify {shlex.quote(row.flow)}"
    equal, total = row.proofs.get("EQUAL", 0), sum(row.partitions.values())
    if different := row.proofs.get("DIFFERENT"):
        verb = "differs" if different == 1 else "differ"
        return Fact(question, "No", f"{partitions(different)} {verb} from the source", BAD, verify)
    if not row.proofs and row.records is None:
        return Fact(question, "Unknown", "the source service does not say", UNKNOWN)
    if not row.proofs:
        return Fact(question, "Not checked", "turn it on:", command=VERIFY_EACH_5_MIN)
    if equal < total:
        told = f"{equal:,} of {partitions(total)} compared, all equal" if equal else "being compared"
        return Fact(question, "Not all compared", told, UNKNOWN, verify)
    age = row.proven_age_seconds
    told = f"{partitions(total)} compared"
    if age is not None:
        told += " just now" if age < _JUST_NOW_SECONDS else f", the oldest {_ago(age)}"
    return Fact(question, "Yes", told, GOOD)


def _resumed(row: FlowRow, target: str) -> Fact:
    question = f"Have groups resumed on {target}?"
    if row.group_count is None:
        return Fact(question, "Unknown", "the checkpoint service does not say", UNKNOWN)
    if row.groups.get("TARGET_UNREADABLE", 0):
        return Fact(question, "Unknown", f"{target} cannot be read", UNKNOWN)
    active, total = row.groups.get("ACTIVE_ON_TARGET", 0), sum(row.groups.values())
    if not active:
        return Fact(question, "No", f"no group has members on {target}")
    told = f"groups with members on {target} read {active:,} of {partitions(total)}"
    return Fact(question, "Yes" if active == total else "Some", told)


def _ago(seconds: float) -> str:
    return "just now" if seconds < _JUST_NOW_SECONDS else f"{shown_seconds(seconds)} ago"


TABLES = (
    *("page", "services", "flows", "clusters", "partitions", "groups", "gaps", "paths", "moves", "feeds"),
    "history",
)
STATUS_SECONDS = 2.0
DETAILS_SECONDS = 5.0
LISTS_SECONDS = 2.0
CALL_SECONDS = 5.0
KEPT_SAMPLES = 150
"""How many samples a sparkline has: five minutes."""
KEPT_CHANGES = 12
"""How many changes of what is wrong the page shows."""


@dataclass(slots=True)
class RecentChanges:
    """What has become wrong or was ordered, and what is over, since the page was started. Pure."""

    changes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    """From the oldest to the newest."""
    _holds: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _processes: dict[str, int] = field(default_factory=dict)

    def note(self, status: Status, verdict: Verdict, now_ms: int, *, answered: bool) -> None:
        """While a service does not answer (`answered`), nothing is known to be over."""
        holds = {} if answered else dict(self._holds)
        for row in status.flows.values():
            for each in row.in_force:
                if each.by:
                    holds[each.about, each.kind] = (NEUTRAL, f"{each.message} by {each.by}")
        holds |= {(each.about, each.reason): (each.level, each.message) for each in verdict.pressing}
        for (about, reason), (level, message) in {**self._holds, **holds}.items():
            begins = (about, reason) in holds
            if begins != ((about, reason) in self._holds):
                self._add(now_ms, about, reason, begins=begins, level=level, message=message)
        self._holds = holds
        for service in status.services:
            known = self._processes.get(service.name)
            if service.pid is not None and known not in (None, service.pid):
                told = f"started again: process {service.pid} after {known}"
                self._add(now_ms, service.name, "STARTED", begins=True, level=NEUTRAL, message=told)
            if service.pid is not None:
                self._processes[service.name] = service.pid

    def _add(self, at_ms: int, about: str, reason: str, **more: Any) -> None:
        self.changes.append({"at_ms": at_ms, "about": about, "reason": reason, **more})


@dataclass(slots=True)
class Upstream:
    """Fills a feed until `stop`."""

    _endpoints: Mapping[str, str]
    _open_to: Callable[[str, str], grpc.aio.Channel]
    """Opens a channel to a service by its name and endpoint, and may raise ConfigError."""
    _feed: Feed
    _clock: Clock
    _same_services: str = ""
    """The options with which a command asks the same services."""
    _lags: dict[str, LagHistory] = field(default_factory=dict)
    _history: dict[str, deque[list[float | int | None]]] = field(default_factory=dict)
    _told_ms: int = 0
    """When a service answered last."""
    _journal: RecentChanges = field(default_factory=RecentChanges)

    async def run(self, stop: asyncio.Event) -> None:
        """Ends with `stop`. Raises ConfigError for certificates and tokens that are not usable."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._status(stop), name="ui status"),
                *(group.create_task(self._follow(each, stop), name=f"ui {each.table}") for each in _FOLLOWED),
            ]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _status(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            status = await query_status(self._endpoints, self._open_to, timeout_seconds=CALL_SECONDS)
            self._show(status)
            await wait_or_stop(stop, STATUS_SECONDS)

    def _show(self, status: Status) -> None:
        feed, verdict, now_ms = self._feed, verdict_of(status), self._clock.now_ms()
        answered = any(row.health == SERVING for row in status.services)
        if answered:
            self._told_ms = now_ms
        self._journal.note(
            status, verdict, now_ms, answered=all(row.health == SERVING for row in status.services)
        )
        flows = {name: self._flow(flow, verdict) for name, flow in status.flows.items()}
        page = {"as_of_ms": now_ms, "told_ms": self._told_ms, "changes": list(self._journal.changes)}
        page |= {"every_seconds": STATUS_SECONDS, "same_services": self._same_services}
        feed["page"].put("page", page | head(verdict, len(status.flows)))
        services = {}
        for row in status.services:
            owners = shared_owners(row, status.flows)
            services[row.name] = {**asdict(row), "roles": roles(row, status.flows), "owners": owners}
        feed["services"].replace(services)
        if not answered:
            return  # What was known of clusters and flows stays.
        feed["clusters"].replace({alias: asdict(row) for alias, row in status.clusters.items()})
        feed["flows"].replace(flows)
        feed["history"].replace({name: [*self._history[name]] for name in status.flows})

    def _drain(self, row: FlowRow) -> Drain:
        lags = self._lags.setdefault(row.flow, LagHistory())
        drain = lags.add(Sample(self._clock.monotonic(), row.lag_records))
        return until_the_slowest(drain, row.caught_up_in_seconds)

    def _flow(self, row: FlowRow, verdict: Verdict) -> dict[str, Any]:
        drain = self._drain(row)
        samples = self._history.setdefault(row.flow, deque(maxlen=KEPT_SAMPLES))
        delay = row.delay_seconds if row.path == "ALIVE" else None
        sample = [round(self._clock.now_ms() / 1000), row.records_per_second, row.lag_records, delay]
        sample += [row.bytes_per_second, row.lag_seconds]
        samples.append(sample)
        checks = readiness(row, verdict, drain)
        return {
            **asdict(row),
            "sample": sample,
            "drain": asdict(drain),
            "readiness": overall(checks),
            "checks": [asdict(check) for check in checks],
            "fences": fences(row),
            "facts": [asdict(fact) for fact in facts(row)],
            "health": asdict(flow_health(row, verdict)),
        }

    async def _follow(self, followed: "_Followed", stop: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time
        endpoint = self._endpoints[followed.service]
        async with Services(open_to=lambda name: self._open_to(name, endpoint), seconds=CALL_SECONDS) as at:
            while not stop.is_set():
                began = now()
                await self._ask(followed, at)
                await wait_or_stop(stop, pause_seconds(followed.seconds, took=now() - began))

    async def _ask(self, followed: "_Followed", at: Services) -> None:
        told: dict[str, object] = {"live": True, "reason": "", "message": ""}
        try:
            self._feed[followed.table].replace(followed.as_rows(await followed.ask(at)))
        except TwinlogError as error:
            told = {"live": False, "reason": error.reason, "message": str(error)}
        self._feed["feeds"].put(followed.feed or followed.table, told)


@dataclass(frozen=True, slots=True)
class _Followed:
    """A table of the page that one method of a service fills."""

    table: str
    service: str
    ask: Callable[[Services], Awaitable[Any]]
    as_rows: Callable[[Any], Mapping[str, Row]]
    seconds: float = DETAILS_SECONDS
    feed: str = ""
    """How the page calls it; "" = as the table."""


_FOLLOWED: Final = (
    _Followed(
        *("partitions", "source", lambda at: at.source.ListPartitions(source.ListPartitionsRequest())),
        lambda told: {partition_key(each): partition_row(each) for each in told.partitions},
        *(LISTS_SECONDS, "source"),
    ),
    _Followed(
        *("groups", "checkpoint", lambda at: at.checkpoint.ListGroups(checkpoint.ListGroupsRequest())),
        lambda told: group_rows(told.groups),
        *(LISTS_SECONDS, "checkpoint"),
    ),
    _Followed("gaps", "source", lambda at: at.source.ListGaps(source.ListGapsRequest()), gap_rows),
    _Followed(
        *("moves", "checkpoint", lambda at: at.checkpoint.ListMoves(checkpoint.ListMovesRequest())),
        move_rows,
    ),
    _Followed(
        *("paths", "heartbeat", lambda at: at.heartbeat.GetTopology(heartbeat.GetTopologyRequest())),
        path_rows,
    ),
)
