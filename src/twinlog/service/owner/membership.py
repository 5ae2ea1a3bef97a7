"""A process's membership among those that own the flows to one cluster, for one service.

Each member says which flows it can own and has (`assignment`), and learns from the table of the group's
leader which ones are its own. What it loses it gives back once its work has ended, and says so by joining
again; only then another one gets it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from twinlog.clock import Clock
from twinlog.config import Service
from twinlog.errors import ConflictError, KafkaError, NotFoundError, TransientKafkaError
from twinlog.kafka.ports import KafkaCluster, Pulse, Seat, never_gone
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow
from twinlog.policy.internal_topics import election_group, owners_group
from twinlog.service.owner.assignment import Announcement, Assignment, Offer, Part, Reach, Why, assign, serves
from twinlog.service.owner.lease import NO_ELECTION, FlowLease
from twinlog.service.owner.name import OwnerName
from twinlog.service.runtime import Backoff
from twinlog.service.waiting import finish_or_cancel, wait_for_any
from twinlog.telemetry.logging import RepeatLimiter

STEPS_PER_SESSION: Final = 4
"""A step without an answer leaves time for another, even on a busy machine."""
_SESSIONS_TO_JOIN: Final = 3
"""How long the group waits for a member that lives and does not join: longer than for one that is silent, so
that waiting for that one costs nobody its flows."""
_LOAD_SECONDS: Final = 300.0
_LOAD_FACTOR: Final = 4
"""Loads are looked at so often, and told anew when they are so many times as large or small as they were."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    lease: FlowLease
    megabytes_per_second: Callable[[], float]
    reach: Callable[[], Reach]


class Membership:
    """All is for one event loop."""

    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        service: str,
        group: str,
        name: Callable[[], OwnerName],
        session_seconds: float,
        clock: Clock,
        backoff: Backoff,
        mark: str = "",
        is_gone: Callable[[str], bool] = never_gone,
    ) -> None:
        """`name` identifies this process to people and callers. Connects nothing yet."""
        self._group = group
        self._service = service
        self._rebalance_seconds = _SESSIONS_TO_JOIN * session_seconds
        self._member = cluster.member(
            group,
            assign=assign,
            session_seconds=session_seconds,
            rebalance_seconds=self._rebalance_seconds,
            mark=mark,
            is_gone=is_gone,
        )
        self._name = name
        self._session_seconds = session_seconds
        self._clock = clock
        self._backoff = backoff
        self._limiter = RepeatLimiter(interval_seconds=60.0)
        self._flows: dict[str, _Served] = {}
        self._id = ""
        self._table = Assignment()
        self._since: dict[str, int] = {}
        """The generations since which this process has its flows."""
        self._said: Mapping[str, Offer] = {}
        self._weighed_at = 0.0
        """When the loads were looked at last."""
        self._wishes: dict[str, str] = {}
        """Names of the processes to which an operator moves flows from here."""
        self._steady_at = 0.0
        self._earlier: Mapping[str, str] = {}
        """Who has the flows of this process by the way of earlier releases; empty = nobody."""
        self._joins = asyncio.Event()
        self._joins.set()
        self._is_joining = False
        self._soon = asyncio.Event()
        self._stops = False
        self._is_void = False
        """Others may have got the flows of the table since this process was a member."""

    def add(
        self,
        lease: FlowLease,
        *,
        megabytes_per_second: Callable[[], float] = lambda: 0.0,
        reach: Callable[[], Reach] = lambda: Reach.FINE,
    ) -> None:
        """Let this process be the owner of a flow, too. Before `run`."""
        self._flows[str(lease.flow)] = _Served(
            lease=lease, megabytes_per_second=megabytes_per_second, reach=reach
        )
        lease.on_idle = self._soon.set

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: be a member until `stop`; then let the guarded loops end, and leave."""
        try:
            async with asyncio.TaskGroup() as tasks:
                joining = tasks.create_task(self._keep_joining(stop), name=f"join {self._group}")
                while not stop.is_set() or self._is_at_work():
                    self._stops = stop.is_set()
                    seconds = await self._step(stop)
                    self._soon.clear()
                    events = (self._soon,) if self._stops else (self._soon, stop)
                    await wait_for_any(*events, seconds=seconds)
                joining.cancel()
        finally:
            await self._member.withdraw()

    def serves(self, flow: Flow) -> bool:
        return str(flow) in self._flows

    def owners(self) -> list["FlowOwner"]:
        """Who owns the flows of this process, as far as it knows."""
        return [self._owner_of(flow, served.lease.flow) for flow, served in self._flows.items()]

    def move(self, flow: Flow, to: str, *, dry_run: bool) -> "FlowsMoved":
        """Hand a flow that this process owns over to the one that is called so, and leave it there. Raises
        StateError (as the lease's refusal), NotFoundError (REPLICA_UNKNOWN), ConflictError
        (REPLICA_OWNS, REPLICA_LOST_SOURCE)."""
        lease, part = self._flows[str(flow)].lease, self._part(str(flow))
        refusal = lease.refusal()
        if refusal is not None:
            raise refusal
        able = {member: OwnerName.parse(self._table.names[member]) for member in part.able}
        found = [member for member, name in able.items() if to in name.called]
        if len(found) != 1 or lease.works_alone:
            known = ", ".join(sorted(name.process for name in able.values())) or "none"
            raise NotFoundError(
                f"{flow}: {'more than one process' if len(found) > 1 else 'no process'} that can own it is"
                f" called {to!r}; there are: {known}",
                reason="REPLICA_UNKNOWN",
                metadata={"flow": str(flow)},
            )
        (chosen,) = found
        move = FlowsMoved(process=able[self._id].process, to=able[chosen].process)
        if chosen == self._id:
            raise ConflictError(f"{flow} is owned by {move.to} already", reason="REPLICA_OWNS")
        if chosen in part.lost:
            raise ConflictError(
                f"{move.to} does not reach {flow.source}, or its file does not copy it: mend its way there"
                " (`twinlog status` of that process says what is wrong), or name another process",
                reason="REPLICA_LOST_SOURCE",
            )
        if not dry_run:
            self._wishes[str(flow)] = self._table.names[chosen]
            self._soon.set()
        return move

    def owned(self) -> list[Flow]:
        """The flows that this process owns now."""
        return [each.lease.flow for each in self._flows.values() if each.lease.is_owner()]

    def _owner_of(self, name: str, flow: Flow) -> "FlowOwner":
        part, names = self._part(name), {**self._table.names, "": ""}
        owner = OwnerName.parse(names[part.owner])
        return FlowOwner(
            flow=flow,
            process=owner.process,
            address=owner.address,
            moves_to=OwnerName.parse(names[part.to]).process,
            why=Why.IN_DOUBT if part.owner and self._flows[name].lease.is_owner() is None else part.why,
            able=tuple(sorted(OwnerName.parse(names[member]).process for member in part.able)),
            megabytes_per_second=part.megabytes_per_second,
        )

    async def _keep_joining(self, stop: asyncio.Event) -> None:
        while not stop.is_set() or self._is_at_work():
            await self._joins.wait()
            self._joins.clear()
            self._is_joining = True
            try:
                seat = await finish_or_cancel(self._member.join(self._announced), stop=stop)
                if seat is None:
                    return
                self._take(seat)
            except KafkaError as error:
                self._failed(await self._leave_to_others(error))
                await wait_for_any(stop, seconds=self._backoff.next())
                self._joins.set()
            finally:
                self._is_joining = False
            self._soon.set()

    async def _step(self, stop: asyncio.Event) -> float:
        """Give a sign of life, and tell the leases what it confirms. Returns the seconds to the next one."""
        asked_at = self._clock.monotonic()
        try:
            pulse = await finish_or_cancel(self._member.beat(), stop=stop)
            if pulse is Pulse.SEATED:
                self._backoff.reset()
                self._steady_at = asked_at
            # Whoever does not join in time is put out, so what the pulse confirms ends before that.
            until = self._steady_at + self._rebalance_seconds - self._session_seconds
            confirmed_at = min(asked_at, until) if pulse in (Pulse.SEATED, Pulse.WAITED_FOR) else None
            self._tell(confirmed_at)
            await finish_or_cancel(self._look_around(), stop=stop)
            self._tell(confirmed_at)
        except KafkaError as error:
            self._failed(await self._leave_to_others(error))
            return self._backoff.next()
        if not self._is_joining and (pulse is not Pulse.SEATED or self._has_news()):
            self._joins.set()
        return self._session_seconds / STEPS_PER_SESSION

    async def _look_around(self) -> None:
        """Look whether processes of earlier releases have the flows of this one, and for dead ones."""
        groups = {
            election_group(self._service, served.lease.flow): flow
            for flow, served in self._flows.items()
            if self._part(flow).owner == self._id != ""
        }
        found = await self._member.others(groups)
        self._earlier = {
            flow: found[group][0].decode(errors="replace") if found.get(group) else ""
            for group, flow in groups.items()
        }

    def _take(self, seat: Seat) -> None:
        try:
            self._table = Assignment.parse(seat.assignment)
        except ValueError as error:
            raise TransientKafkaError(
                f"{self._group}: another process tells nothing that this release understands ({error})",
                reason="WIRE_FORMAT",
            ) from error
        self._id, self._is_void = seat.member, False
        own = {flow for flow, part in self._table.parts.items() if part.owner == self._id}
        self._since = {flow: self._since.get(flow, seat.generation) for flow in own}
        names = set(self._table.names.values())
        self._wishes = {flow: to for flow, to in self._wishes.items() if flow in own and to in names}

    def _tell(self, confirmed_at: float | None) -> None:
        if confirmed_at is None or self._is_void:
            return
        for flow, served in self._flows.items():
            part = self._part(flow)
            is_own = part.owner == self._id
            if not part.owner or (is_own and flow not in self._earlier):
                continue
            earlier = self._earlier[flow] if is_own else ""
            name = OwnerName.parse(self._table.names[part.to or part.owner])
            served.lease.learn(
                leads=is_own and not part.to and not earlier,
                owner=earlier or str(name.with_rules(part.rules)),
                asked_at=confirmed_at,
            )

    async def _leave_to_others(self, refused: KafkaError) -> KafkaError:
        """Whoever may not be a member, but may see those that are, leaves them their flows. Returns why
        nobody knows more."""
        if refused.reason not in NO_ELECTION:
            return refused
        asked_at = self._clock.monotonic()
        try:
            said = (await self._member.others((self._group,))).get(self._group, ())
        except KafkaError as error:
            return error
        if b"" in said:
            return TransientKafkaError(f"{self._group} changes its members", reason="STARTING")
        members = sorted(map(Announcement.parse, said), key=lambda member: member.name)
        if self._id and any(member.name == str(self._name()) for member in members):
            return refused  # Its session lasts, so nobody has got what it has.
        for flow, served in self._flows.items():
            offers = {member.name: member.flows[flow] for member in members if flow in member.flows}
            if offers:
                owner = max(offers, key=lambda name: offers[name].held)
                name = OwnerName.parse(owner).with_rules(offers[owner].rules)
                served.lease.learn(leads=False, owner=str(name), asked_at=asked_at)
        return refused

    def _failed(self, error: KafkaError) -> None:
        for served in self._flows.values():
            served.lease.failed(error)
        left_out = self._limiter.admit(error.reason, now=self._clock.monotonic())
        if left_out is not None:
            is_trouble = not all(served.lease.is_loading for served in self._flows.values())
            (_log.warning if is_trouble else _log.info)(
                "flow_owner_unknown",
                flows=sorted(self._flows),
                group=self._group,
                reason=error.reason,
                message=str(error),
                left_out=left_out,
                works_on_alone=any(served.lease.works_alone for served in self._flows.values()),
            )

    def _announced(self, kept: bool) -> bytes:
        self._is_void |= not kept
        self._said, self._weighed_at = self._offers(with_loads=True), self._clock.monotonic()
        flows = {flow: offer for flow, offer in self._said.items() if offer.held >= 0 or not self._stops}
        return Announcement(name=str(self._name()), kept=kept, flows=flows).to_bytes()

    def _offers(self, *, with_loads: bool) -> dict[str, Offer]:
        return {flow: self._offer(flow, served, with_loads) for flow, served in self._flows.items()}

    def _offer(self, flow: str, served: _Served, with_load: bool) -> Offer:
        part = self._part(flow)
        owns, wish = part.owner == self._id != "", self._wishes.get(flow, "")
        # A lease that still says "owner" may begin new work at any time.
        holds = not served.lease.is_idle or (owns and (not part.to or served.lease.is_owner() is True))
        to = wish or (self._table.names.get(part.to, "") if owns else "")
        rate = part.megabytes_per_second
        return Offer(
            rules=served.lease.rules,
            megabytes_per_second=round(served.megabytes_per_second()) if owns and with_load else rate,
            reach=served.reach(),
            held=self._since.get(flow, 0) if holds else -1,
            to=to,
            why=Why.BY_HAND if wish else part.why if owns else "",
        )

    def _part(self, flow: str) -> Part:
        return self._table.parts.get(flow, _NOBODYS)

    def _has_news(self) -> bool:
        """Whether the others have to hear something. Loads alone do not matter often."""
        now_at = self._clock.monotonic()
        is_late = now_at - self._weighed_at >= _LOAD_SECONDS
        if is_late:
            self._weighed_at = now_at
        for flow, now in self._offers(with_loads=is_late).items():
            said = self._said.get(flow)
            if (
                said is None
                or (now.held < 0 <= said.held)
                or now.to != said.to
                or (now.reach == Reach.LOST) != (said.reach == Reach.LOST)
            ):
                return True
            less, more = sorted((1 + now.megabytes_per_second, 1 + said.megabytes_per_second))
            if is_late and more >= _LOAD_FACTOR * less:
                return True
        return False

    def _is_at_work(self) -> bool:
        return any(not served.lease.is_idle for served in self._flows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsMoved:
    """A flow's hand-over by hand; processes as people know them."""

    process: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOwner:
    """Who owns a flow, and why; processes as people know them. Empty while it is not known."""

    flow: Flow
    process: str
    address: str
    moves_to: str
    why: str
    able: tuple[str, ...]
    megabytes_per_second: int


_NOBODYS: Final = Part("", "", "", "", 0, ())


async def services_of(target: KafkaCluster, flow: Flow) -> list[str]:
    """The services of which a process owns the flow or could own it. Raises KafkaError."""
    found: list[str] = []
    for service in map(str, Service):
        group, earlier = owners_group(service, flow.target), election_group(service, flow)
        for name, members in (await target.describe_groups((group, earlier))).items():
            if isinstance(members, KafkaError):
                if members.reason != KafkaReason.GROUP_UNKNOWN:
                    raise members
            elif (name == earlier and members.member_count) or any(
                serves(each, flow) for each in members.members
            ):
                found.append(service)
    return found
