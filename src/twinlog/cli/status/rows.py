"""What `twinlog status` knows when all services have been asked: rows of services, flows and clusters."""

import shlex
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.errors import TwinlogError
from twinlog.kafka.outage import Outage
from twinlog.policy.replication import HEARTBEATS_TOPIC

Answer = TypeVar("Answer")

DOWN = "DOWN"
PAUSE, LIMIT, RULE, MANUAL, WAITING, GAPS = "PAUSE", "LIMIT", "RULE", "MANUAL", "WAITING", "GAPS"
MOVE, MOVED, FENCE, HELD = "MOVE", "MOVED", "FENCE", "HELD"
BOTH_WAYS, DELAY, OFFSETS, TRANSFORM = "BOTH_WAYS", "DELAY", "OFFSETS", "TRANSFORM"
FOREIGN, DIFFERS = "FOREIGN", "DIFFERS"
OPEN_TRANSACTION, SHARED_COPY, SPARK_UI = "OPEN_TRANSACTION", "SHARED_COPY", "SPARK_UI"
LENT_CORES, CYCLE = "LENT_CORES", "CYCLE"
NAMED_TOPICS = 5
"""A note names so many topics at most."""
HEARTBEAT_MISSING = "HEARTBEAT_MISSING"
STARTING = "STARTING"
STANDS_BY = "OWNED_ELSEWHERE"
"""Reason of a service that leaves a flow to another process of its kind."""
SERVING = "SERVING"
NOT_LOOKED_YET = "UNKNOWN"


@dataclass(slots=True, kw_only=True)
class ServiceRow:
    name: str
    endpoint: str
    health: str = DOWN
    """SERVING, NOT_SERVING, or DOWN when it does not answer."""
    ready: bool | None = None
    """Whether it works at all of its flows, or stands by for them; None: it does not say."""
    version: str = ""
    security: str = ""
    """How its port is protected: "loopback", "insecure", or which of "tls" and "authenticated" it has, with a
    comma."""
    host: str = ""
    """Where the process runs that answered, `pid` and `config` of it; empty while it did not."""
    pid: int | None = None
    config: str = ""
    """The properties file that it runs with, on that host."""
    reason: str = ""
    message: str = ""


@dataclass(slots=True, kw_only=True)
class Note:
    service: str
    reason: str
    message: str


@dataclass(slots=True, kw_only=True)
class InForce:
    """Something that somebody ordered, or that is left of what happened, and holds until somebody acts."""

    kind: str
    """PAUSE, LIMIT, DELAY, BOTH_WAYS (topics of the same name), TRANSFORM (what it left out), RULE, MANUAL,
    WAITING (topics), GAPS, FENCE, HELD (deletions of groups), MOVE (a failover or failback that is not
    finished), MOVED (groups that work on the target), FOREIGN (somebody else wrote into copies), DIFFERS
    (copies, by the standing proof), OFFSETS (copies that lost the source's), OPEN_TRANSACTION (on the source;
    partitions stand still behind it), SHARED_COPY (groups have no place in copies that two flows write),
    LENT_CORES (of other processes), CYCLE (topics that are not copied for their names), SPARK_UI."""
    about: str
    message: str
    by: str | None = None
    since: str | None = None
    """RFC 3339."""
    command: str = ""
    """What shows more of it, or ends it."""


@dataclass(slots=True, kw_only=True)
class Owner:
    """Which process of a service owns a flow."""

    flow: str
    service: str
    process: str
    why: str
    moves_to: str
    processes: int
    """How many can own it."""


@dataclass(slots=True, kw_only=True)
class FlowRow:
    """None and empty = the service that knows did not say."""

    flow: str
    topics: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    records: int | None = None
    bytes: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    """Age of the oldest record that is not copied."""
    caught_up_in_seconds: float | None = None
    """Until nothing is left to copy, at the present pace; None: it cannot be told."""
    last_known_lag_records: int | None = None
    """What was known last of each partition; see `source_ends_as_of`."""
    partitions_of_unknown_lag: int | None = None
    source_ends_as_of: str | None = None
    """RFC 3339: when the end of a source log was read that was read longest ago."""
    source_ends_age_seconds: float | None = None
    source_written_at: str | None = None
    """RFC 3339: when producers wrote to the source last, by the growth of its logs since the service
    started; heartbeats do not count."""
    source_written_age_seconds: float | None = None
    source_watched_age_seconds: float | None = None
    """For how long the ends of all logs of the source have been watched."""
    last_copied_at: str | None = None
    """RFC 3339: when the target acknowledged records last, since the service started."""
    last_copied_age_seconds: float | None = None
    last_copied_record_age_seconds: float | None = None
    """By the record's own timestamp."""
    exactly_once: bool | None = None
    path: str | None = None
    """ALIVE, SILENT or UNKNOWN: what heartbeats say."""
    delay_seconds: float | None = None
    delay_basis: str | None = None
    """What the delay was measured by: HEARTBEATS, or LOG_ENDS where no heartbeats can be written."""
    heartbeat_age_seconds: float | None = None
    groups: dict[str, int] = field(default_factory=dict)
    """Partitions of groups by the verdict on their offsets."""
    group_count: int | None = None
    proofs: dict[str, int] = field(default_factory=dict)
    """Partitions by what the standing proof says: EQUAL, DIFFERENT, INCOMPLETE; empty where it is off."""
    proven_at: str | None = None
    """RFC 3339: when the oldest of these proofs was found; None while a partition has none."""
    proven_age_seconds: float | None = None
    gaps_known: bool = True
    """False: the ledger of what is lost could not be read."""
    lost_acknowledged: int = 0
    """Source offsets of acknowledged gaps."""
    lost_acknowledged_by: list[str] = field(default_factory=list)
    moves_known: bool = True
    """False: the record of failovers could not be read."""
    foreign_records: int | None = None
    """Records of others that the copier found in copies since the service started, or since somebody
    acknowledged them."""
    falls_behind_per_second: float = 0.0
    """By how many records a second the lag of partitions grows that run, are not delayed on purpose, and
    have been behind for long."""
    owners: list[Owner] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    in_force: list[InForce] = field(default_factory=list)

    def add_note(self, service: str, reason: str, message: str) -> None:
        """Nothing without a reason."""
        if reason:
            self.notes.append(Note(service=service, reason=reason, message=message))

    def hold(self, kind: str, message: str, command: str = "", **more: str | None) -> None:
        """Add what holds, `about` the whole flow if it is not given; `{flow}` in the command is the flow."""
        told = command.replace("{flow}", shlex.quote(self.flow))
        what: dict[str, Any] = {"about": self.flow, **more}
        self.in_force.append(InForce(kind=kind, message=message, command=told, **what))

    def stands_by(self, service: str) -> bool:
        """Another process of this service works at the flow."""
        return any(note.service == service and note.reason == STANDS_BY for note in self.notes)

    @property
    def is_paused(self) -> bool:
        """The whole flow, heartbeats with it."""
        return any(each.kind == PAUSE and each.about == self.flow for each in self.in_force)

    @property
    def heartbeats(self) -> str:
        """Their topic, as pauses and `in_force` name it."""
        return f"{self.flow} {HEARTBEATS_TOPIC}"

    @property
    def holds_heartbeats(self) -> "InForce | None":
        """What does: a pause of the whole flow or of their topic, or that their topic waits."""
        scopes = {
            PAUSE: (self.flow, self.heartbeats, f"{self.heartbeats}-0"),
            WAITING: (self.heartbeats,),
        }
        return next((each for each in self.in_force if each.about in scopes.get(each.kind, ())), None)


def works_here(service: ServiceRow, row: FlowRow) -> bool:
    """Whether the process that answered owns the flow, as far as it is known; else it stands by for it."""
    told = next((each.process for each in row.owners if each.service == service.name), "")
    if not told or service.pid is None:
        return not row.stands_by(service.name)
    return told.startswith(f"{service.host}:") and told.endswith(f", process {service.pid}")


@dataclass(slots=True, kw_only=True)
class ClusterRow:
    alias: str
    seen_by: dict[str, bool | None] = field(default_factory=dict)
    """By service; None when it has not looked yet."""
    away_since: str | None = None
    """RFC 3339: since when a service that does not reach it has not, the earliest of them."""
    notes: list[Note] = field(default_factory=list)
    silent_brokers: dict[int, list[str]] = field(default_factory=dict)
    """By node id, the services that get no answer from it, while others answer."""
    broker_addresses: dict[int, str] = field(default_factory=dict)
    """Where each of these is (`host:port`), as far as a service knows; with negative ids those of a cluster
    that a service never reached."""
    partitions_without_leader: int = 0
    """As the service tells it that may see most of them; while a broker is silent."""
    partitions_under_replicated: int = 0

    @property
    def is_away(self) -> bool:
        """No service that has looked reaches it."""
        looked = [seen for seen in self.seen_by.values() if seen is not None]
        return bool(looked) and not any(looked)

    @property
    def outage(self) -> Outage:
        """False where every service reaches it and all brokers."""
        if self.is_away:
            met = {each: at for each, at in self.broker_addresses.items() if each >= 0}
            reason = min(self.notes, key=lambda note: note.service).reason
            return Outage(reason=reason, brokers=met or self.broker_addresses)
        return Outage(
            brokers={each: self.broker_addresses.get(each, "") for each in self.silent_brokers},
            without_leader=self.partitions_without_leader,
            under_replicated=self.partitions_under_replicated,
        )

    @property
    def outage_words(self) -> str:
        """What is wrong, and which brokers to start."""
        so = f" ({self.notes[0].message})" if self.is_away else ""
        return self.outage.judged(self.alias, so=so).words

    def add_outage(self, service: str, status: types_pb2.ClusterStatus) -> None:
        """A service tells it for each of its flows."""
        for node_id in status.silent_brokers:
            services = self.silent_brokers.setdefault(node_id, [])
            if service not in services:
                services.append(service)
        self.broker_addresses |= {each: at for each, at in status.broker_addresses.items() if at}
        self.partitions_without_leader = max(self.partitions_without_leader, status.partitions_without_leader)
        self.partitions_under_replicated = max(
            self.partitions_under_replicated, status.partitions_under_replicated
        )


@dataclass(slots=True, kw_only=True)
class Status:
    services: list[ServiceRow]
    asked_file: str | None = None
    """The properties file that said where the services are, with links resolved; None = the default ports."""
    flows: dict[str, FlowRow] = field(default_factory=dict)
    clusters: dict[str, ClusterRow] = field(default_factory=dict)

    @property
    def all_serving(self) -> bool:
        return all(row.health == SERVING for row in self.services)

    def flow(self, message: types_pb2.Flow) -> FlowRow:
        name = f"{message.source}->{message.target}"
        return self.flows.setdefault(name, FlowRow(flow=name))

    def add_clusters(self, service: str, statuses: Iterable[types_pb2.ClusterStatus]) -> None:
        for status in statuses:
            row = self.clusters.setdefault(status.alias, ClusterRow(alias=status.alias))
            if status.reason == NOT_LOOKED_YET:
                row.seen_by.setdefault(service, None)
                continue
            row.seen_by[service] = status.reachable
            row.add_outage(service, status)
            if not status.reachable and not any(note.service == service for note in row.notes):
                row.notes.append(Note(service=service, reason=status.reason, message=status.message))
            if not status.reachable and status.HasField("since"):
                since = shown_stamp(status.since)
                row.away_since = since if row.away_since is None else min(since, row.away_since)


def outages(service: str, clusters: Iterable[types_pb2.ClusterStatus]) -> list[ClusterRow]:
    """The clusters with brokers that do not answer this service; those of which none does come first."""
    seen = Status(services=[])
    seen.add_clusters(service, clusters)
    found = [row for row in seen.clusters.values() if row.outage]
    return sorted(found, key=lambda row: not row.is_away)


async def asked(
    call: Awaitable[Answer], rows: Iterable[FlowRow], service: str, otherwise: str
) -> Answer | None:
    """The answer, or None and a note with each row: what else is known of them stands."""
    try:
        return await call
    except TwinlogError as error:
        for row in rows:
            row.add_note(service, error.reason, f"{otherwise}: {error}")
        return None


def shown_stamp(stamp: Timestamp) -> str:
    """RFC 3339."""
    return stamp.ToJsonString()


def age_seconds(stamp: Timestamp, now_ms: int) -> float:
    return max(0.0, (now_ms - stamp.ToMilliseconds()) / 1000)
