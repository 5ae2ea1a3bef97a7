"""Which process owns which flow: one, no other while it works, evenly, and as it was where possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.model import Flow
from twinlog.service.owner.assignment import (
    Announcement,
    Assignment,
    Offer,
    Part,
    Reach,
    Why,
    assign,
    assigned,
    serves,
)


@dataclass
class Process:
    """A member as it behaves: it keeps what it has, and gives back what the table moves elsewhere."""

    offers: dict[str, Offer]
    held: dict[str, int] = field(default_factory=dict)
    handing: dict[str, tuple[str, str]] = field(default_factory=dict)

    def said(self, name: str) -> Announcement:
        flows = {}
        for flow, offer in self.offers.items():
            to, why = self.handing.get(flow, ("", ""))
            flows[flow] = offer._replace(
                held=self.held.get(flow, -1), to=to or offer.to, why=why or offer.why
            )
        return Announcement(name=name, flows=flows)


class Group:
    """Processes that join again and again."""

    def __init__(self, **processes: Process) -> None:
        self.processes = processes
        self.generation = 0
        self.moved: list[str] = []
        self.table = Assignment()

    def join(self, *, ends_work: bool = True) -> None:
        self.generation += 1
        said = {name: process.said(name) for name, process in self.processes.items()}
        self.table = Assignment.parse(assigned(said).to_bytes())
        for name, process in self.processes.items():
            process.handing = {}
            for flow, part in self.table.parts.items():
                if part.owner == name and part.to:
                    process.handing[flow] = (part.to, part.why)
                    if ends_work:
                        process.held.pop(flow, None)
                        self.moved.append(flow)
                elif part.owner == name:
                    process.held.setdefault(flow, self.generation)
                    process.offers[flow] = process.offers[flow]._replace(why=part.why, to="")
                else:
                    process.held.pop(flow, None)
        for flow in self.table.parts:
            assert sum(flow in each.held for each in self.processes.values()) <= 1, "two have it"

    def settle(self) -> None:
        for _ in range(300):
            self.join()
            if not any(part.to for part in self.table.parts.values()) and self.is_owned:
                return
        raise AssertionError("flows move for ever")

    @property
    def is_owned(self) -> bool:
        return all(any(flow in each.held for each in self.processes.values()) for flow in self.table.parts)

    @property
    def counts(self) -> list[int]:
        return [len(process.held) for process in self.processes.values()]


def process(flows: int, **offer: object) -> Process:
    return Process({f"A{number}->B": Offer(**offer) for number in range(flows)})  # type: ignore[arg-type]


def test_three_share_twelve_flows_and_two_share_those_of_one_that_is_gone() -> None:
    group = Group(a=process(12), b=process(12), c=process(12))
    group.settle()
    assert group.counts == [4, 4, 4]
    kept = {name: set(each.held) for name, each in group.processes.items()}
    del group.processes["b"]
    group.settle()
    assert group.counts == [6, 6]
    assert not group.moved
    assert all(kept[name] <= set(each.held) for name, each in group.processes.items())


def test_one_that_is_added_gets_its_share_one_flow_at_a_time_and_nothing_else_moves() -> None:
    group = Group(a=process(12), b=process(12))
    group.settle()
    group.processes["c"] = process(12)
    while group.counts != [4, 4, 4]:
        before = len(group.moved)
        group.join()
        assert len(group.moved) <= before + 1
    assert len(group.moved) == 4
    group.settle()
    assert len(group.moved) == 4, "and none comes back"


def test_a_flow_stays_with_its_owner_until_that_says_that_it_has_ended() -> None:
    group = Group(a=process(4))
    group.settle()
    group.processes["b"] = process(4)
    for _ in range(3):
        group.join(ends_work=False)
        assert group.counts == [4, 0]
        assert [part.to for part in group.table.parts.values()].count("b") == 1
    group.settle()
    assert group.counts == [2, 2]


def test_what_one_moved_by_hand_stays_there() -> None:
    group = Group(a=process(4), b=process(4))
    group.settle()
    flow = next(iter(group.processes["a"].held))
    group.processes["a"].offers[flow] = Offer(to="b", why=Why.BY_HAND)
    group.settle()
    assert flow in group.processes["b"].held
    assert group.table.parts[flow].why == Why.BY_HAND
    assert group.counts == [2, 2], "another one came back in its place"


@pytest.mark.parametrize(
    ("gives", "why"), [({}, Why.ONLY_ONE), ({"to": "a", "why": Why.EVEN_LOAD}, Why.EVEN_LOAD)]
)
def test_what_one_works_at_before_it_was_told_so_has_a_reason_as_well(
    gives: dict[str, str], why: Why
) -> None:
    """It began in doubt; meanwhile another one may have handed the flow over to it."""
    works, other = Process({"A->B": Offer(held=0)}), Process({"A->B": Offer(**gives)})  # type: ignore[arg-type]
    table = assigned(
        {name: Announcement(name=name, flows=each.offers) for name, each in {"a": works, "b": other}.items()}
    )
    assert (table.parts["A->B"].owner, table.parts["A->B"].why) == ("a", why)


def test_a_flow_with_much_to_copy_counts_for_many() -> None:
    group = Group(a=process(6), b=process(6))
    for each in group.processes.values():
        each.offers["A0->B"] = Offer(megabytes_per_second=80)
    group.settle()
    owner = next(each for each in group.processes.values() if "A0->B" in each.held)
    assert set(owner.held) == {"A0->B"}


def test_each_gets_only_what_it_can_own_and_of_files_that_differ_the_one_of_most_comes_first() -> None:
    group = Group(a=process(2, rules="x"), b=process(2, rules="y"), c=process(2, rules="y"))
    group.processes["a"].offers["only->B"] = Offer(rules="x")
    group.settle()
    assert set(group.processes["a"].held) == {"only->B"}
    assert group.table.parts["only->B"].why == Why.ONLY_ONE
    # A move would change what is replicated, and nobody asked for that.
    alone = Group(a=process(2, rules="x"))
    alone.settle()
    alone.processes["b"] = process(2, rules="y")
    alone.settle()
    assert alone.counts == [2, 0]


def test_who_has_lost_the_source_gives_its_flows_to_one_that_has_not() -> None:
    group = Group(a=process(2), b=process(2))
    group.settle()
    group.processes["a"].offers = process(2, reach=Reach.LOST).offers
    group.settle()
    assert group.counts == [0, 2]
    group.processes["b"].offers = process(2, reach=Reach.UNKNOWN).offers
    group.settle()
    assert group.counts == [0, 2], "while the source is away for all, owners stay"
    lost_by_all = Group(a=process(1, reach=Reach.LOST))
    lost_by_all.settle()
    assert lost_by_all.counts == [1], "it has an owner that says what is wrong"


def test_of_two_that_say_they_have_it_the_one_that_was_always_there_does() -> None:
    flows = {"A->B": Offer(held=7)}
    old = Announcement(name="old", kept=False, flows=flows)
    new = Announcement(name="new", flows={"A->B": Offer(held=3)})
    assert assigned({"old": old, "new": new}).parts["A->B"].owner == "new"
    assert assigned({"old": old}).parts["A->B"].owner == "old"


def test_what_others_say_may_be_of_another_release_or_nonsense() -> None:
    mine = Announcement(name="me", flows={"A->B": Offer()})
    later = b'{"name": "later", "kept": true, "more": 1, "flows": {"A->B": ["", 0, 1, 5, "", "", "more"]}}'
    told = assign({"me": mine.to_bytes(), "x": b"\xff", "y": b"[]", "later": later}, 1)
    table = Assignment.parse(told["me"])
    assert set(told) == {"me", "x", "y", "later"}
    assert table.parts["A->B"].owner == "later"
    assert Assignment.parse(told["x"]) == table
    assert serves(later + b"\0mark", Flow("A", "B"))
    assert not serves(later, Flow("C", "B"))
    with pytest.raises(ValueError, match="no table of flows"):
        Assignment.parse(b'{"members": {}, "flows": {"A->B": [5]}}')


_FLOWS = [f"A{number}->B" for number in range(7)]
_OFFERS = st.builds(
    Offer,
    rules=st.sampled_from(["", "x"]),
    megabytes_per_second=st.integers(0, 100),
    reach=st.sampled_from(list(Reach)),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.booleans()),
        st.tuples(st.just("leave"), st.sampled_from("abcd")),
        st.tuples(
            st.just("come"),
            st.tuples(st.sampled_from("abcd"), st.dictionaries(st.sampled_from(_FLOWS), _OFFERS)),
        ),
        st.tuples(
            st.just("move"),
            st.tuples(st.sampled_from("abcd"), st.sampled_from(_FLOWS), st.sampled_from("abcd")),
        ),
    ),
    max_size=12,
)


@given(_STEPS)
def test_however_processes_come_and_go_no_two_have_a_flow_and_in_the_end_each_has_one(
    steps: list[tuple[str, object]],
) -> None:
    group = Group()
    for kind, what in steps:
        match kind, what:
            case "join", bool() as ends_work:
                group.join(ends_work=ends_work)
            case "leave", str() as name:
                group.processes.pop(name, None)
            case "come", (str() as name, dict() as offers):
                group.processes.setdefault(name, Process(dict(offers)))
            case "move", (str() as name, str() as flow, str() as to):
                here = group.processes.get(name)
                if here is not None and flow in here.held:
                    here.offers[flow] = here.offers[flow]._replace(to=to, why=Why.BY_HAND)
    group.settle()
    offered = {flow for each in group.processes.values() for flow in each.offers}
    assert set(group.table.parts) == offered
    assert group.is_owned
    _check_balance(group.table.parts, {name: each.offers for name, each in group.processes.items()})


def _check_balance(parts: Mapping[str, Part], offers: Mapping[str, Mapping[str, Offer]]) -> None:
    """No single move would help."""
    weights = {flow: 1 + part.megabytes_per_second / 8 for flow, part in parts.items()}
    loads = {
        name: sum(weights[flow] for flow, part in parts.items() if part.owner == name) for name in offers
    }
    for flow, part in parts.items():
        for name, theirs in offers.items():
            if part.why == Why.BY_HAND or flow not in theirs or theirs[flow].reach == Reach.LOST:
                continue
            if theirs[flow].rules == part.rules:
                gap = loads[part.owner] - loads[name]
                assert gap <= weights[flow] + 0.1 * sum(weights.values()) / len(loads) + 1e-9


def test_what_ten_processes_say_of_two_hundred_flows_is_small() -> None:
    """All of it goes to each process with every change of the group (docs/benchmark-scale.md)."""
    flows = [f"site{number:03}->hub" for number in range(200)]
    owned = Offer(rules="0123456789ab", megabytes_per_second=12, held=17, why=Why.LEAST_LOADED)
    said = {
        f"m-{process}": Announcement(
            name=f"source-{process}.services:17401, process 7, at source-{process}.services:17401",
            flows={flow: owned if flow in flows[process::10] else Offer(rules=owned.rules) for flow in flows},
        ).to_bytes()
        for process in range(10)
    }
    told = assign(said, 1)
    assert max(map(len, said.values())) < 9_600
    assert len(told["m-0"]) < 18_000
