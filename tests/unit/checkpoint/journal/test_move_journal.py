"""The record of moves is read with care, because it says which ACLs Twinlog changes; that of the last release
is converted."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import StateError, TransientKafkaError, WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import Flow, TopicPartition
from twinlog.moves.earlier import EarlierPart
from twinlog.moves.record import Certainty, GroupOffsets, Home, MoveKind, Moves, MoveState, Run, Step
from twinlog.moves.stored import RUN, Key, MovesCodec, Row, moves_of, rows_of
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.journal import MoveJournal, moves_table
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.running.run_record import given_up
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, move_rig, run
from unit.checkpoint.moves.test_write_grants import rule

JOURNALS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "golden" / "journals-0.1.0.json").read_text()
)
"""What random moves left in the topic, as release 0.1.0 wrote it, and what it read from that."""
RUN_OF_A = Run(
    run_id="r",
    kind=MoveKind.FAILOVER,
    state=MoveState.DONE,
    groups=("g",),
    by="me",
    started_ms=1,
    finished_ms=2,
    done=(Step.CHECK, Step.DONE),
    left_behind=("why",),
    on_target=True,
)
MOVES = Moves(
    flow=A_TO_B,
    run=RUN_OF_A,
    homes={
        "g": Home(where="B", run="r", stood_at={ORIGIN: 7}, left_at={COPY: 9}),
        "h": Home(where="A", run="r", certainty=Certainty.BEGUN),
    },
    fences={"A": {ORIGIN.topic: "r"}},
    grants={rule(COPY.topic): "r"},
)
CODEC = MovesCodec(A_TO_B)
EARLIER = {
    "format": 1,
    "run_id": "r",
    "kind": "failover",
    "state": "DONE",
    "groups": [],
    "by": "ann",
    "started_ms": 1,
    "finished_ms": 2,
    "done": [],
    "fences": [],
    "former_fences": [],
    "moved": [],
}
"""The fields that the first build wrote."""
NOT_FENCES = {
    "allow": replace(fence_of("orders"), permission="ALLOW"),
    "cluster": replace(fence_of("kafka-cluster"), resource_type="CLUSTER", operation="ALL"),
    "somebody": replace(fence_of("orders"), principal="User:mallory"),
    "prefix": replace(fence_of("or"), pattern_type="PREFIXED"),
}


def journal_on(cluster: FakeCluster) -> MoveJournal:
    return MoveJournal(flow=A_TO_B, table=moves_table(A_TO_B, cluster, replication_factor=1))


def as_fields(binding: AclBinding) -> dict[str, str]:
    return {name: getattr(binding, name) for name in AclBinding.__dataclass_fields__}


async def put(cluster: FakeCluster, records: list[tuple[bytes, bytes]]) -> None:
    topic = journal_on(cluster).topic
    if topic not in cluster.topics:
        cluster.add_topic(topic, configs={"cleanup.policy": "compact"})
    async with cluster.writer() as writer:
        for key, value in records:
            await writer.append(TopicPartition(topic, 0), key=key, value=value)


async def put_earlier(cluster: FakeCluster, **fields: object) -> None:
    key, _ = CODEC.encode((RUN,), None)
    await put(cluster, [(key, json.dumps({**EARLIER, **fields}).encode())])


async def test_the_journal_keeps_what_it_is_told_and_no_more() -> None:
    cluster = FakeCluster("B")
    assert await journal_on(cluster).load() == Moves(flow=A_TO_B)
    journal = journal_on(cluster)
    await journal.store(MOVES)
    assert await journal_on(cluster).load() == MOVES
    less = replace(MOVES, homes={}, fences={}, grants={})
    await journal.store(less)
    assert await journal_on(cluster).load() == less


def test_what_was_moved_before_a_failback_of_every_group_is_over() -> None:
    """Also if the process was killed before it had removed the rows."""
    over = replace(MOVES, run=replace(RUN_OF_A, kind=MoveKind.FAILBACK, on_target=False))
    there = Home(where="A", run="r", stood_at={COPY: 9}, certainty=Certainty.BEGUN)
    rows = rows_of(replace(over, homes={**MOVES.homes, "back": there}))
    assert moves_of(A_TO_B, rows).homes == {"back": replace(there, certainty=Certainty.SURE)}


async def test_a_fence_on_a_topic_that_is_not_the_flows_is_refused_while_it_is_in_force() -> None:
    foreign = fence_of("mm2-configs.B.internal")
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.logs.source.acls = {foreign, fence_of(ORIGIN.topic)}
        fences = {"A": {foreign.resource_name: "r", ORIGIN.topic: "r"}}
        await rig.served.failover.journal.store(replace(MOVES, fences=fences))
        with pytest.raises(StateError, match="mm2-configs") as refused:
            await run(rig.served.failback)
        assert refused.value.reason == "FENCE_NOT_OURS"
        assert "--deny-principal 'User:twinlog-fence A->B " in str(refused.value)
        assert foreign in rig.logs.source.acls
        rig.logs.source.acls.remove(foreign)
        await run(rig.served.failback)
        assert rig.logs.source.acls == set()


async def test_a_fence_that_is_only_on_record_is_not_raised_by_a_run(rig: MoveRig) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    cut = replace(RUN_OF_A, state=MoveState.RUNNING)
    await rig.served.failover.journal.store(
        replace(MOVES, run=cut, homes={}, fences={"A": {"unheard-of": "r"}})
    )
    await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
    assert set(filter(is_fence, rig.logs.source.acls)) == {fence_of(ORIGIN.topic)}


@pytest.mark.parametrize("key", [(RUN,), ("TwinlogMovedGroup", "g"), ("TwinlogFence", "A", "orders")])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"format":99}', "WIRE_VERSION"),
        (b'{"format":3}', "WIRE_"),
        (b"{}", "WIRE_FORMAT"),
        (b"\xff", "WIRE_FORMAT"),
        (b"[" * 100_000, "WIRE_FORMAT"),
    ],
)
async def test_a_record_that_cannot_be_read_is_a_typed_error(key: Key, value: bytes, reason: str) -> None:
    cluster = FakeCluster("B")
    await put(cluster, [(CODEC.encode(key, None)[0], value)])
    with pytest.raises(WireFormatError) as refused:
        await journal_on(cluster).load()
    assert refused.value.reason.startswith(reason)


@given(st.binary(), st.binary())
def test_any_bytes_are_a_row_of_another_or_a_typed_error(key: bytes, value: bytes) -> None:
    assert CODEC.decode_key(key) is None
    with pytest.raises(WireFormatError):
        CODEC.decode_value((RUN,), value)


TEXTS = st.text(max_size=5)
PLACES = st.dictionaries(
    st.tuples(TEXTS, st.integers(0, 1 << 31)).map(lambda place: TopicPartition(*place)),
    st.integers(0, (1 << 63) - 1),
    max_size=3,
)
ROWS = st.one_of(
    st.tuples(
        st.tuples(st.just("TwinlogMovedGroup"), TEXTS),
        st.builds(
            Home,
            where=TEXTS,
            run=TEXTS,
            stood_at=PLACES,
            left_at=PLACES,
            certainty=st.sampled_from(Certainty),
        ),
    ),
    st.tuples(st.tuples(st.just("TwinlogFence"), TEXTS, TEXTS), TEXTS),
    st.tuples(st.tuples(st.just("TwinlogGrant"), *[TEXTS] * 7), TEXTS),
)


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row: tuple[Key, Row]) -> None:
    key, value = CODEC.encode(*row)
    assert CODEC.decode_key(key) == row[0]
    assert MovesCodec(Flow("A", "C")).decode_key(key) is None
    assert value is not None
    assert CODEC.decode_value(row[0], value) == row[1]


# ------------------------------------------------------------------------------------- the last release


def told(homes: Mapping[str, GroupOffsets]) -> dict[str, dict[str, int]]:
    return {
        group: {str(partition): offset for partition, offset in places.items()}
        for group, places in homes.items()
    }


def named(groups: frozenset[str] | None) -> list[str] | None:
    return None if groups is None else sorted(groups)


@pytest.mark.parametrize("journal", JOURNALS, ids=range(len(JOURNALS)))
async def test_a_journal_of_the_last_release_says_the_same(journal: dict[str, Any]) -> None:
    cluster = FakeCluster("B")
    await put(cluster, [(key.encode(), value.encode()) for key, value in journal["records"]])
    kept = journal_on(cluster)
    moves = await kept.load()
    last = moves.run
    assert last is not None
    shown = [last.run_id, last.kind, last.state, last.aborted, list(last.groups), list(last.done)]
    assert shown == journal["run"]
    assert moves.on_target is journal["on_target"]
    assert named(moves.groups_on_target) == journal["groups_on_target"] or moves.interrupted
    assert journal["held"] is None or named(moves.held) == journal["held"]
    for kind in MoveKind:
        finished = told({group: home.stood_at for group, home in moves.finished(kind).items()})
        before = journal["finished"][kind]
        assert before == {group: finished.get(group) for group in before}
        if moves.on_target or kind is MoveKind.FAILBACK:
            homes = moves.moved_to(moves.enters(kind))
            found, left = journal["found_and_left"][kind]
            assert told({group: home.stood_at for group, home in homes.items()}) == found
            assert told({group: home.left_at for group, home in homes.items()}) == left
    assert {at: sorted(moves.fences.get(at, ())) for at in ("A", "B")} == journal["fenced"]
    created = moves.fences.get(moves.leaves(last.kind), {})
    assert sorted(topic for topic, by in created.items() if by == last.run_id) == journal["created"]
    assert sorted(grant.resource_name for grant in moves.grants) == journal["granted"]
    await kept.store(moves)
    assert await journal_on(cluster).load() == moves
    records = cluster.records(TopicPartition(kept.topic, 0))
    runs = [each.value or b"" for each in records if each.key == CODEC.encode((RUN,), None)[0]]
    assert json.loads(runs[-1])["format"] == 3


@pytest.mark.parametrize("killed_at", range(4))
async def test_a_conversion_that_is_killed_is_done_again(killed_at: int) -> None:
    journal = next(each for each in JOURNALS if each["fenced"]["A"] and each["held"] and each["granted"])
    cluster = FakeCluster("B")
    await put(cluster, [(key.encode(), value.encode()) for key, value in journal["records"]])
    kept = journal_on(cluster)
    moves = await kept.load()
    written = 0

    def kill(call: Call) -> None:
        nonlocal written
        written += 1
        if written > killed_at:
            raise TransientKafkaError("killed")

    undo = cluster.intercept("append", kill)
    with pytest.raises(TransientKafkaError):
        await kept.store(moves)
    undo()
    assert await journal_on(cluster).load() == moves


@pytest.mark.parametrize("binding", NOT_FENCES.values(), ids=NOT_FENCES)
@pytest.mark.parametrize("place", ["fences", "former_fences"])
async def test_an_acl_that_is_no_fence_is_refused_and_never_created_or_deleted(
    rig: MoveRig, binding: AclBinding, place: str
) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    there = {binding, fence_of("theirs")}
    for cluster in (rig.logs.source, rig.logs.target):
        cluster.acls |= there
    await put_earlier(rig.logs.target, **{place: [as_fields(binding)]})
    for work in (rig.served.failover, rig.served.failback):
        for options in (NO_WAIT, MoveOptions(wait_seconds=0, fence=True)):
            with pytest.raises(WireFormatError) as refused:
                await run(work, options)
            assert refused.value.reason == "FENCE_NOT_OURS"
    assert rig.logs.source.acls == rig.logs.target.acls == there


async def test_fences_and_grants_in_parts_become_rows_and_the_parts_go() -> None:
    cluster = FakeCluster("B")
    parts: dict[str, object] = {"p": ["orders", "users"], "q": [as_fields(*MOVES.grants)]}
    await put_earlier(cluster, format=2, fences=["p"], fences_before=[], grants=["q"], former_grants=[])
    await put(
        cluster,
        [
            (
                CODEC.encode(("TwinlogMovePart", name), None)[0],
                json.dumps({"format": 1, "items": items}).encode(),
            )
            for name, items in parts.items()
        ],
    )
    journal = journal_on(cluster)
    moves = await journal.load()
    assert (moves.fences, moves.grants) == ({"A": {"orders": "r", "users": "r"}}, MOVES.grants)
    await journal.store(moves)
    newest = {each.key: each.value for each in cluster.records(TopicPartition(journal.topic, 0))}
    assert not [key for key, value in newest.items() if b"Part" in (key or b"") and value is not None]
    lacking: dict[Key, Row] = {
        (RUN,): CODEC.decode_value((RUN,), json.dumps({**EARLIER, "format": 2, "fences": ["p"]}).encode())
    }
    with pytest.raises(WireFormatError, match="missing"):
        moves_of(A_TO_B, lacking)
    damaged: dict[Key, Row] = {("TwinlogMovePart", "p"): EarlierPart(b"\xff")}
    with pytest.raises(WireFormatError, match="damaged"):
        moves_of(A_TO_B, {**lacking, **damaged})


async def test_groups_whose_places_an_earlier_build_did_not_record_are_looked_at_again() -> None:
    cluster = FakeCluster("B")
    await put_earlier(cluster, moved=["g"])
    moves = await journal_on(cluster).load()
    assert moves.groups_on_target == moves.held == frozenset({"g"})
    assert not moves.finished(MoveKind.FAILOVER)


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"kind": "failback", "on_target": True}, None),
        ({"unfinished": None}, None),
        ({"state": "RUNNING", "groups": ["h"], "on_target": True}, {"h"}),
        ({"state": "RUNNING", "on_target": True}, None),
        ({"state": "RUNNING", "on_target": False}, set()),
        ({"unfinished": ["g"]}, {"g"}),
        ({"aborted": True, "on_target": True}, set()),
        ({"aborted": True, "on_target": True, "unfinished": ["g"]}, {"g"}),
        ({"aborted": True, "on_target": True, "unfinished": None}, None),
        ({"aborted": True, "on_target": True, "unfinished": ["g"], "groups": ["g", "h"]}, {"g"}),
    ],
)
async def test_groups_that_a_failover_may_have_moved_are_held(
    fields: dict[str, object], held: set[str] | None
) -> None:
    cluster = FakeCluster("B")
    await put_earlier(cluster, **fields)
    assert (await journal_on(cluster).load()).held == held


async def test_a_run_of_the_last_release_that_is_given_up_ends_nothing_of_runs_before_it() -> None:
    cluster = FakeCluster("B")
    groups = {"groups": ["g", "h"], "unfinished": ["g"], "unfinished_before": ["g"]}
    await put_earlier(cluster, state="RUNNING", on_target=True, **groups)
    moves = await journal_on(cluster).load()
    assert moves.held == frozenset({"g", "h"})
    over = given_up(moves, now_ms=0)
    assert over.held == frozenset({"g"})
    assert over.groups_on_target == frozenset({"g", "h"})


@pytest.mark.parametrize(
    "change",
    [
        {"groups": "g"},
        {"groups": [1]},
        {"started_ms": "now"},
        {"done": ["DANCE"]},
        {"fences": [{"resource_type": "TOPIC"}]},
        {"fences": [[]]},
        {"moved": None},
        {"run_id": 7},
        {"chains_there": "first"},
    ],
)
async def test_a_damaged_record_is_a_typed_error(change: dict[str, Any]) -> None:
    cluster = FakeCluster("B")
    await put_earlier(cluster, **change)
    with pytest.raises(WireFormatError) as refused:
        await journal_on(cluster).load()
    assert refused.value.reason == "WIRE_FORMAT"


async def test_moves_go_on_from_a_journal_of_the_last_release(rig: MoveRig) -> None:
    for group in ("g", "other"):
        rig.logs.source.set_group(group, {ORIGIN: 100})
    await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
    await _as_earlier(rig)
    _, again = await run(rig.served.failover)
    assert again.already_done
    await run(rig.served.failback)
    assert rig.logs.source.acls == set()
    assert not (await rig.served.failback.journal.load()).on_target


@pytest.mark.parametrize("before", [[], None])
async def test_a_failover_of_all_groups_that_the_last_release_began_holds_none_once_it_is_given_up(
    rig: MoveRig, before: list[str] | None
) -> None:
    """A run before it may hold them still."""
    journal = rig.served.failover.journal
    more = {"unfinished": before, "unfinished_before": before, "on_target": True}
    await put_earlier(rig.logs.target, state="RUNNING", chain="r", finished_ms=None, **more)
    assert (await journal.load()).held is None
    await rig.served.failover.abort("ann")
    moves = await journal.load()
    assert (moves.held, moves.groups_on_target) == (frozenset() if before == [] else None, None)


async def _as_earlier(rig: MoveRig) -> None:
    """Replace the record by what the last release would have written."""
    journal = rig.served.failover.journal
    moves = await journal.load()
    await rig.logs.target.delete_topics([journal.topic])
    groups = [
        (
            CODEC.encode(("TwinlogMovedGroup", group), None)[0],
            json.dumps(
                {
                    "format": 1,
                    "chain": "r",
                    "stood_at": {ORIGIN.topic: {"0": home.stood_at[ORIGIN]}},
                    "left_at": {COPY.topic: {"0": home.left_at[COPY]}},
                }
            ).encode(),
        )
        for group, home in moves.homes.items()
    ]
    await put(rig.logs.target, groups)
    fences = [as_fields(fence) for fence in moves.fenced("A")]
    await put_earlier(rig.logs.target, chain="r", fences=fences, done=["CHECK", "FENCE", "DONE"])
