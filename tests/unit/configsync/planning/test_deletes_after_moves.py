"""Deletions of source topics while a failover runs, or is in effect: none is followed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.kafka.ports import ConfigChange
from twinlog.model import TopicPartition
from twinlog_configsync.model.reasons import SyncReason
from unit.configsync.configsync_rig import READ_ORDERS, ConfigSyncRig, make_flow
from unit.configsync.planning.test_deletes import ALL, TOPICS, copies, following_without

FIELDS = {"run_id": "r", "groups": [], "by": "", "started_ms": 0, "finished_ms": None, "done": []} | {
    "moved": [],
    "fences": [],
    "former_fences": [],
}


async def record_move(flow: ConfigSyncRig, kind: str, state: str, **more: bool) -> None:
    name = "mm2-failover.A.internal"
    if name not in flow.target.topics:
        flow.target.add_topic(name)
    async with flow.target.writer() as writer:
        await writer.append(
            TopicPartition(name, 0),
            key=b'["TwinlogMove",{"flow":"A->B"}]',
            value=json.dumps({"format": 1, "kind": kind, "state": state, **FIELDS, **more}).encode(),
        )


@pytest.mark.parametrize(
    ("kind", "state"), [("failover", "RUNNING"), ("failover", "DONE"), ("failback", "RUNNING"), ("", "")]
)
async def test_nothing_is_deleted_while_a_failover_is_under_way_or_in_effect(
    tmp_path: Path, kind: str, state: str
) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    await record_move(flow, "failover", "DONE")
    await record_move(flow, kind, state)
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    assert flow.sync.status.reason == SyncReason.FAILED_OVER
    await record_move(flow, "failback", "DONE")
    await flow.refresh(TOPICS)
    assert copies(flow) == ["A.b", "A.c"]
    assert flow.sync.status.reason == ""


async def test_what_happens_to_the_abandoned_source_does_not_reach_the_applications_on_the_target(
    tmp_path: Path,
) -> None:
    flow = make_flow(tmp_path, {"twinlog.sync.topic.acls.mode": "full"})
    flow.source.add_topic("orders", 1, {"retention.ms": "5000"})
    flow.source.acls.add(READ_ORDERS)
    await flow.refresh(ALL)
    await record_move(flow, "failover", "DONE", on_target=True)
    flow.source.acls.clear()
    flow.source.acls.add(replace(READ_ORDERS, principal="User:new"))
    await flow.source.alter_topic_configs({"orders": [ConfigChange(name="retention.ms", value="1000")]})
    for _ in range(2):
        await flow.refresh(ALL)
    copy = replace(READ_ORDERS, resource_name="A.orders")
    assert flow.target.acls == {copy, replace(copy, principal="User:new")}
    assert await flow.target_overrides("A.orders") == {"retention.ms": "5000"}
    assert flow.sync.status.reason == SyncReason.FAILED_OVER
    plan, _ = await flow.commands.preview(ALL)
    assert any(str(each).startswith("SKIP A.orders retention.ms: FAILED_OVER") for each in plan.actions)

    await record_move(flow, "failback", "DONE")
    await flow.refresh(ALL)
    assert flow.target.acls == {replace(copy, principal="User:new")}
    assert await flow.target_overrides("A.orders") == {"retention.ms": "1000"}
    assert flow.sync.status.reason == ""


@pytest.mark.parametrize("kind", ["failover", "failback"])
@pytest.mark.parametrize("on_target", [True, False])
async def test_a_move_that_was_given_up_holds_only_while_groups_may_work_on_the_target(
    tmp_path: Path, kind: str, on_target: bool
) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    await record_move(flow, kind, "RUNNING", on_target=on_target)
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert f"twinlog {kind} give-up 'A->B'" in flow.sync.status.message
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    await record_move(flow, kind, "DONE", aborted=True, on_target=on_target)
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert copies(flow) == (["A.a", "A.b", "A.c"] if on_target else ["A.b", "A.c"])
    assert flow.sync.status.reason == (SyncReason.FAILED_OVER if on_target else "")


async def test_a_failback_is_noticed_although_nothing_is_left_to_take_away(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    await record_move(flow, "failover", "DONE")
    for _ in range(2):
        await flow.refresh(TOPICS)
    assert flow.sync.status.reason == SyncReason.FAILED_OVER
    flow.source.add_topic("a")
    await flow.refresh(TOPICS)
    await record_move(flow, "failback", "DONE")
    for _ in range(2):
        await flow.refresh(TOPICS)
    assert flow.sync.status.reason == ""


async def test_records_of_moved_groups_are_not_taken_for_the_move(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    await record_move(flow, "failback", "DONE")
    async with flow.target.writer() as writer:
        for name in ("TwinlogMovedGroup", "TwinlogSource"):
            key = json.dumps([name, {"flow": "A->B", "group": "g"}]).encode()
            value = b'{"format":1,"chain":"earlier","stood_at":{}}'
            await writer.append(TopicPartition("mm2-failover.A.internal", 0), key=key, value=value)
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert copies(flow) == ["A.b", "A.c"]


async def test_a_record_of_a_failover_that_cannot_be_read_stops_deletions(tmp_path: Path) -> None:
    flow = await following_without(tmp_path, "a", grace_seconds=0)
    flow.target.add_topic("mm2-failover.A.internal")
    async with flow.target.writer() as writer:
        partition = TopicPartition("mm2-failover.A.internal", 0)
        await writer.append(partition, key=b'["TwinlogMove",{"flow":"A->B"}]', value=b"\xff")
    for _ in range(3):
        await flow.refresh(TOPICS)
    assert copies(flow) == ["A.a", "A.b", "A.c"]
    assert "cannot be read" in flow.sync.status.message
