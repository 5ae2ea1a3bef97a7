"""The record of moves is read with care: it says which ACLs Twinlog changes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import StateError, WireFormatError
from twinlog.kafka.ports import AclBinding
from twinlog.model import TopicPartition
from twinlog.write_blocks import fence_of
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord, MoveState
from twinlog_checkpoint.journal.record_format import (
    MovedGroup,
    decode_group,
    decode_record,
    encode_group,
    encode_record,
)
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, move_rig, run

RECORD = MoveRecord(
    run_id="r",
    kind=MoveKind.FAILOVER,
    state=MoveState.DONE,
    groups=(),
    by="ann",
    started_ms=1,
    finished_ms=2,
    fences=(fence_of(ORIGIN.topic),),
    chain="r",
)
NOT_FENCES = {
    "allow": replace(fence_of("orders"), permission="ALLOW"),
    "cluster": replace(fence_of("kafka-cluster"), resource_type="CLUSTER", operation="ALL"),
    "somebody": replace(fence_of("orders"), principal="User:mallory"),
    "prefix": replace(fence_of("or"), pattern_type="PREFIXED"),
}


async def put(rig: MoveRig, record: MoveRecord) -> None:
    await rig.served.failover.journal.store(record)


@pytest.mark.parametrize("binding", NOT_FENCES.values(), ids=NOT_FENCES)
@pytest.mark.parametrize("place", ["fences", "former_fences"])
async def test_an_acl_that_is_no_fence_is_refused_and_never_created_or_deleted(
    binding: AclBinding, place: str
) -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        there = {binding, fence_of("theirs")}
        for cluster in (rig.logs.source, rig.logs.target):
            cluster.acls |= there
        await put(rig, MoveRecord(**{**_fields(RECORD), "fences": (), place: (binding,)}))
        for work in (rig.served.failover, rig.served.failback):
            for options in (NO_WAIT, MoveOptions(wait_seconds=0, fence=True)):
                with pytest.raises(WireFormatError) as refused:
                    await run(work, options)
                assert refused.value.reason == "FENCE_NOT_OURS"
        assert rig.logs.source.acls == rig.logs.target.acls == there


async def test_a_fence_on_a_topic_that_is_not_the_flows_is_refused_while_it_is_in_force() -> None:
    foreign = fence_of("mm2-configs.B.internal")
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        rig.logs.source.acls = {foreign, fence_of(ORIGIN.topic)}
        await put(rig, replace(RECORD, fences=(foreign, fence_of(ORIGIN.topic))))
        with pytest.raises(StateError, match="mm2-configs") as refused:
            await run(rig.served.failback)
        assert refused.value.reason == "FENCE_NOT_OURS"
        assert foreign in rig.logs.source.acls
        rig.logs.source.acls.remove(foreign)
        await run(rig.served.failback)
        assert rig.logs.source.acls == set()


async def test_a_fence_that_is_only_on_record_is_not_raised_by_a_run() -> None:
    async with move_rig() as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        await put(rig, replace(RECORD, fences=(fence_of("unheard-of"),), state=MoveState.RUNNING))
        await run(rig.served.failover, MoveOptions(wait_seconds=0, fence=True))
        assert rig.logs.source.acls == {fence_of(ORIGIN.topic)}


def test_a_record_of_an_earlier_release_is_read_and_its_groups_are_looked_at_again() -> None:
    _, value, _ = encode_record(A_TO_B, RECORD)
    old = json.loads(value)
    del old["aborted"], old["chain"]
    old |= {"moved": ["g"], "stood_at": {"g": 7}, "final_offsets": [["orders", 0, 9]]}
    record = decode_record(json.dumps(old).encode())
    assert record.moved == ("g",)
    assert not record.moved_from(MoveKind.FAILOVER)


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
def test_a_damaged_record_is_a_typed_error(change: dict[str, Any]) -> None:
    _, value, _ = encode_record(A_TO_B, RECORD)
    with pytest.raises(WireFormatError) as refused:
        decode_record(json.dumps({**json.loads(value), **change}).encode())
    assert refused.value.reason == "WIRE_FORMAT"


@given(st.binary(), st.binary())
def test_any_bytes_are_a_record_or_a_typed_error(key: bytes, value: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_record(value)
    assert decode_group(A_TO_B, key, value) is None


@given(
    st.text(),
    st.dictionaries(st.tuples(st.text(), st.integers(0, 1 << 31)), st.integers(0, (1 << 63) - 1), max_size=5),
)
def test_a_group_is_read_as_it_was_written(group: str, places: dict[tuple[str, int], int]) -> None:
    offsets = {TopicPartition(topic, number): offset for (topic, number), offset in places.items()}
    moved = MovedGroup(group=group, chain="chain", stood_at=offsets, left_at=offsets)
    key, value = encode_group(A_TO_B, moved)
    assert decode_group(A_TO_B, key, value) == moved


def _fields(record: MoveRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in MoveRecord.__dataclass_fields__}
