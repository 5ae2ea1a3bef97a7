"""Which process of a service owns which flow to a cluster: what its processes say, and what follows. Pure.

A flow stays where it is. It is given away only once its owner says that it holds it no more, so no two
processes have it. One flow moves at a time, and only where that makes the load more even by more than it
costs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from twinlog.model import Flow

_SLACK: Final = 0.1
"""Of the average load: a smaller difference is none, because loads change all the time."""
_MEGABYTES_PER_FLOW: Final = 8
"""As much load as it is to own a flow at all."""


class Why(StrEnum):
    """Why a process owns a flow, or gets it."""

    ONLY_ONE = "ONLY_ONE"
    """No other process can own it."""
    LEAST_LOADED = "LEAST_LOADED"
    """The flow had no owner, and this process had the least to do."""
    EVEN_LOAD = "EVEN_LOAD"
    """It came from a process that had more to do."""
    OUT_OF_REACH = "OUT_OF_REACH"
    """The process before cannot copy it."""
    BY_HAND = "BY_HAND"
    """An operator moved it here, and here it stays."""
    IN_DOUBT = "IN_DOUBT"
    """It was told so for the last time so long ago that another process may have it by now."""


class Reach(IntEnum):
    """Whether a process can copy a flow."""

    LOST = -1
    """It has not reached the source for long, or its file does not copy the flow: one that can is better."""
    UNKNOWN = 0
    FINE = 1


class Offer(NamedTuple):
    """What a process says of a flow that it can own."""

    rules: str = ""
    """Fingerprint of what its file selects."""
    megabytes_per_second: int = 0
    reach: int = Reach.FINE
    held: int = -1
    """The generation since which it has the flow; -1 = it does not, and works no more at it."""
    to: str = ""
    """The name of the process to which it hands the flow over."""
    why: str = ""
    """Why it has it, or hands it over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a process says of itself."""

    name: str
    kept: bool = True
    """It has been a member without interruption. What others have since then is theirs."""
    flows: Mapping[str, Offer]

    def to_bytes(self) -> bytes:
        return _written({"name": self.name, "kept": self.kept, "flows": self.flows})

    @classmethod
    def parse(cls, told: bytes) -> "Announcement":
        """What cannot be read offers nothing; fields of later releases are left out."""
        try:
            found = json.loads(told.partition(b"\0")[0])
            flows = {
                str(flow): Offer(str(rules), int(rate), int(reach), int(held), str(to), str(why))
                for flow, (rules, rate, reach, held, to, why, *_) in found["flows"].items()
            }
            return cls(name=str(found["name"]), kept=bool(found["kept"]), flows=flows)
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(name="", kept=False, flows={})


class Part(NamedTuple):
    """Who owns a flow; members by their ids."""

    owner: str
    to: str
    """Who gets it once the owner has ended its work; empty = it stays."""
    why: str
    rules: str
    """The owner's."""
    megabytes_per_second: int
    able: tuple[str, ...]
    """Who can own it."""
    lost: tuple[str, ...] = ()
    """Those of them that cannot copy it, if another one can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the leader tells every process."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Of the members, by id."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """By flow."""

    def to_bytes(self) -> bytes:
        index = {member: number for number, member in enumerate(self.names)} | {"": -1}
        parts = {
            flow: [
                *(index[part.owner], index[part.to], *part[2:5]),
                *([index[member] for member in members] for members in (part.able, part.lost)),
            ]
            for flow, part in self.parts.items()
        }
        return _written({"members": self.names, "flows": parts})

    @classmethod
    def parse(cls, told: bytes) -> "Assignment":
        """Raises ValueError."""
        try:
            found = json.loads(told)
            ids = [*found["members"], ""]
            parts = {
                flow: Part(
                    ids[owner],
                    ids[to],
                    why,
                    rules,
                    rate,
                    *(tuple(ids[each] for each in members) for members in (able, *more[:1])),
                )
                for flow, (owner, to, why, rules, rate, able, *more) in found["flows"].items()
            }
            return cls(names=found["members"], parts=parts)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"no table of flows: {error}") from error


def _written(said: Mapping[str, object]) -> bytes:
    """Without blanks: with hundreds of flows they are a sixth of it, and each change of the group sends all
    of it to every process."""
    return json.dumps(said, separators=(",", ":")).encode()


def assign(said: Mapping[str, bytes], _generation: int) -> dict[str, bytes]:
    """What a leader tells its members."""
    table = assigned({member: Announcement.parse(told) for member, told in said.items()}).to_bytes()
    return dict.fromkeys(said, table)


def assigned(members: Mapping[str, Announcement]) -> Assignment:
    """Who owns each flow."""
    ordered = sorted(members, key=lambda member: (members[member].name, member))
    offers: dict[str, dict[str, Offer]] = {}
    for member in ordered:
        for flow, offer in members[member].flows.items():
            offers.setdefault(flow, {})[member] = offer
    work = _Work(members, ordered, offers)
    free = [flow for flow in sorted(offers) if not work.keep(flow)]
    for flow in sorted(free, key=lambda flow: -work.weights[flow]):
        work.give(flow)
    if not any(part.to and part.why != Why.BY_HAND for part in work.parts.values()):
        for flow, to, why in work.moves():
            work.parts[flow] = work.parts[flow]._replace(to=to, why=why)
            break
    return Assignment(
        names={member: members[member].name for member in ordered},
        parts={flow: work.parts[flow] for flow in sorted(work.parts)},
    )


class _Work:
    """An assignment as it is made."""

    def __init__(
        self, members: Mapping[str, Announcement], ordered: list[str], offers: dict[str, dict[str, Offer]]
    ) -> None:
        self._members = members
        self._offers = offers
        lost = {
            flow: tuple(member for member, offer in its.items() if offer.reach == Reach.LOST)
            for flow, its in offers.items()
        }
        self._lost = {flow: its if len(its) < len(offers[flow]) else () for flow, its in lost.items()}
        self._ids = {members[member].name: member for member in reversed(ordered)}
        self.parts: dict[str, Part] = {}
        self.loads: dict[str, float] = dict.fromkeys(ordered, 0.0)
        self._owners = {flow: self._owner(flow) for flow in offers}
        self._rates = {
            flow: offers[flow][owner].megabytes_per_second
            if (owner := self._owners[flow])
            else max(offer.megabytes_per_second for offer in offers[flow].values())
            for flow in offers
        }
        self.weights = {flow: 1 + rate / _MEGABYTES_PER_FLOW for flow, rate in self._rates.items()}

    def keep(self, flow: str) -> bool:
        """Leave a flow with its owner, and a hand-over that has begun as it is; False if there is none."""
        owner = self._owners[flow]
        if owner:
            offer = self._offers[flow][owner]
            to = self._ids.get(offer.to, "")
            moves = to != owner and to in self._offers[flow] and to not in self._lost[flow]
            why = Why.LEAST_LOADED if offer.to and not moves else offer.why
            self._enter(flow, owner, to if moves else "", why or self._why_untold(flow, owner))
        return bool(owner)

    def _why_untold(self, flow: str, owner: str) -> str:
        """Why one has a flow that worked at it, in doubt, before the group told it so."""
        given = (each.why for each in self._offers[flow].values() if self._ids.get(each.to) == owner)
        return next(given, Why.ONLY_ONE)

    def give(self, flow: str) -> None:
        """To the process to which it is handed over, or else to the one with the least to do. Those that
        select the same as most others come first."""
        offers = self._offers[flow]
        for offer in offers.values():
            to = self._ids.get(offer.to, "")
            if to in offers:
                return self._enter(flow, to, "", offer.why)
        common = Counter(offer.rules for offer in offers.values())
        chosen = min(
            offers,
            key=lambda member: (
                member in self._lost[flow],
                -common[offers[member].rules],
                self.loads[member],
            ),
        )
        return self._enter(flow, chosen, "", Why.ONLY_ONE if len(offers) == 1 else Why.LEAST_LOADED)

    def moves(self) -> Iterator[tuple[str, str, str]]:
        """The flows that had better be elsewhere, and where, the most urgent one first."""
        for flow, part in self.parts.items():
            offers = self._offers[flow]
            fine = [member for member, offer in offers.items() if offer.reach == Reach.FINE]
            if part.owner in self._lost[flow] and fine and not part.to:
                yield flow, min(fine, key=self.loads.__getitem__), Why.OUT_OF_REACH
        rates = sum(self.weights.values()) - len(self.weights)
        slack = _SLACK * rates / max(1, len(self.loads))
        pairs = [(self.loads[heavy] - self.loads[light], heavy, light) for heavy, light in self._pairs()]
        for gap, heavy, light in sorted(pairs, key=lambda pair: -pair[0]):
            movable = [
                flow
                for flow, part in self.parts.items()
                if part.owner == heavy
                and not part.to
                and part.why != Why.BY_HAND
                and self.weights[flow] + slack < gap
                and self._is_alike(flow, heavy, light)
            ]
            if movable:
                yield min(movable, key=lambda flow: abs(gap - 2 * self.weights[flow])), light, Why.EVEN_LOAD

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for heavy in self.loads:
            for light in self.loads:
                if self.loads[heavy] - self.loads[light] > 1:
                    yield heavy, light

    def _is_alike(self, flow: str, owner: str, other: str) -> bool:
        """Whether the other would do the same, and can: a move shall change nothing."""
        offers = self._offers[flow]
        return (
            other in offers and offers[other].rules == offers[owner].rules and other not in self._lost[flow]
        )

    def _owner(self, flow: str) -> str:
        """Who has the flow; among several the one that was given it last."""
        held = {member: offer for member, offer in self._offers[flow].items() if offer.held >= 0}
        return max(held, key=lambda member: (self._members[member].kept, held[member].held), default="")

    def _enter(self, flow: str, owner: str, to: str, why: str) -> None:
        offers = self._offers[flow]
        self.loads[to or owner] += self.weights[flow]
        rules, rate = offers[owner].rules, self._rates[flow]
        self.parts[flow] = Part(owner, to, why, rules, rate, tuple(offers), self._lost[flow])


def serves(told: bytes, flow: Flow) -> bool:
    """Whether a member of a service's group can own a flow, by what it says of itself, with the mark of its
    process. A coordinator tells nothing of it while the group changes: then it may."""
    return not told or str(flow) in Announcement.parse(told).flows
