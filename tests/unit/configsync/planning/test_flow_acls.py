"""ACLs through a flow's passes: only differences, ownership in the registry, removals, refusals."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog_configsync.model.reasons import SyncReason
from twinlog_configsync.model.schedule import Scope
from unit.configsync.configsync_rig import READ_ORDERS, ConfigSyncRig, make_flow

COPY = replace(READ_ORDERS, resource_name="A.orders")
DENY_ORDERS = replace(READ_ORDERS, permission="DENY")
FOREIGN = replace(COPY, principal="User:operator")
ACLS = [Scope.TOPICS, Scope.ACLS]


@pytest.fixture
def flow(tmp_path: Path) -> ConfigSyncRig:
    flow = make_flow(tmp_path, {"twinlog.sync.topic.acls.mode": "read-only"})
    flow.source.add_topic("orders")
    flow.source.acls.add(READ_ORDERS)
    return flow


async def test_only_differences_are_sent_and_foreign_acls_stay(flow: ConfigSyncRig) -> None:
    flow.target.acls.add(FOREIGN)
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, FOREIGN}
    sent: list[object] = []
    flow.target.intercept("create_acls", lambda call: sent.extend(call.arguments["bindings"]))
    flow.target.intercept("delete_acls", lambda call: sent.extend(call.arguments["bindings"]))
    await flow.refresh(ACLS)
    assert sent == []


async def test_removals_are_followed_after_a_restart_too_but_only_of_what_was_made(
    flow: ConfigSyncRig,
) -> None:
    flow.target.acls.add(FOREIGN)
    await flow.refresh(ACLS)
    flow.restart()
    flow.source.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == {FOREIGN}


async def test_no_acl_is_taken_away_after_a_source_that_lost_everything(flow: ConfigSyncRig) -> None:
    await flow.refresh(ACLS)
    await flow.source.delete_topics(["orders"])
    flow.source.acls.clear()
    await flow.refresh([Scope.ACLS])
    flow.source.add_topic("new")
    flow.source.acls.add(replace(READ_ORDERS, resource_name="new"))
    flow.restart()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, replace(COPY, resource_name="A.new")}
    plan, _ = await flow.commands.preview(ACLS)
    assert any("kept, SOURCE_LOST" in str(action) for action in plan.actions)


async def test_a_binding_that_was_there_before_is_never_taken_away(flow: ConfigSyncRig) -> None:
    flow.target.acls.add(COPY)
    await flow.refresh(ACLS)
    flow.source.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY}


ANY_GROUP = replace(READ_ORDERS, resource_type="GROUP", resource_name="*")
BILLING = replace(ANY_GROUP, resource_name="billing")


async def test_a_pattern_of_groups_is_written_out_for_those_that_the_source_has(flow: ConfigSyncRig) -> None:
    flow.source.acls.add(ANY_GROUP)
    flow.source.set_group("billing")
    flow.target.set_group("ledger")
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, BILLING}


async def test_a_group_that_moved_away_from_the_source_keeps_its_rights(flow: ConfigSyncRig) -> None:
    flow.source.acls.add(ANY_GROUP)
    flow.source.set_group("billing")
    await flow.refresh(ACLS)
    flow.source.kafka.groups.delete("billing")
    flow.restart()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, BILLING}
    flow.source.acls.discard(ANY_GROUP)
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY}


async def test_groups_that_cannot_be_listed_take_no_right_away(flow: ConfigSyncRig) -> None:
    flow.source.acls.add(ANY_GROUP)
    flow.source.set_group("billing")
    await flow.refresh(ACLS)

    def fail(_call: Call) -> None:
        raise TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")

    flow.source.intercept("list_groups", fail)
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, BILLING}
    assert flow.sync.status.scopes[Scope.ACLS].reason == "KAFKA_TIMEOUT"


async def test_a_new_topic_need_not_wait_for_its_rights(tmp_path: Path) -> None:
    """A pattern is written out for it with the next pass, not an interval of ACLs (600 s) later."""
    settings = {"twinlog.sync.topic.acls.mode": "read-only", "refresh.topics.interval.seconds": "0.1"}
    flow = make_flow(tmp_path, settings)
    flow.source.add_topic("orders")
    flow.source.acls.add(replace(READ_ORDERS, resource_name="*"))
    async with asyncio.TaskGroup() as group:
        group.create_task(flow.sync.run(flow.stop), name="flow")
        await eventually(lambda: COPY in flow.target.acls)
        flow.source.add_topic("users")
        flow.clock.advance(1)
        await eventually(lambda: replace(COPY, resource_name="A.users") in flow.target.acls)
        flow.stop.set()


async def test_mode_mm2_never_deletes(tmp_path: Path) -> None:
    flow = make_flow(tmp_path)
    flow.source.acls.add(READ_ORDERS)
    await flow.refresh(ACLS)
    flow.source.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY}


async def make_acls_and_lose_the_target(flow: ConfigSyncRig) -> None:
    """It makes them, goes away before it says so, and comes back."""

    def die(_call: Call) -> None:
        flow.target.take_away()

    undo = flow.target.intercept("create_acls", die, after=True)
    with pytest.raises(TransientKafkaError):
        await flow.refresh(ACLS)
    undo()
    flow.target.bring_back()


async def test_a_crash_between_making_and_knowing_loses_no_ownership(flow: ConfigSyncRig) -> None:
    await make_acls_and_lose_the_target(flow)
    assert flow.target.acls == {COPY}
    flow.restart()
    flow.source.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == set()


async def test_a_target_that_died_while_making_loses_no_ownership_either(flow: ConfigSyncRig) -> None:
    await make_acls_and_lose_the_target(flow)
    await flow.refresh(ACLS)
    flow.source.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == set()


async def test_what_somebody_removed_is_made_again_and_counted_as_drift(flow: ConfigSyncRig) -> None:
    await flow.refresh(ACLS)
    flow.target.acls.clear()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY}
    assert flow.sync.status.scopes[Scope.ACLS].drift_reverted == 1


async def test_a_refused_denial_holds_back_the_allowance_that_it_limits(flow: ConfigSyncRig) -> None:
    flow.source.acls.add(DENY_ORDERS)
    refusal = FatalKafkaError("an ACL for the cluster is missing", reason="CLUSTER_UNAUTHORIZED", code=31)

    def refuse(call: Call) -> None:
        for binding in call.result:
            if binding.permission == "DENY":
                flow.target.acls.discard(binding)
                call.result[binding] = refusal

    undo = flow.target.intercept("create_acls", refuse, after=True)
    await flow.refresh(ACLS)
    assert flow.target.acls == set()
    status = flow.sync.status.scopes[Scope.ACLS]
    assert (status.reason, status.pending_changes) == (SyncReason.CHANGES_REFUSED, 2)
    undo()
    await flow.refresh(ACLS)
    assert flow.target.acls == {COPY, replace(COPY, permission="DENY")}
    assert flow.sync.status.scopes[Scope.ACLS].reason == ""


@pytest.mark.parametrize("side", ["source", "target"])
async def test_without_an_authorizer_there_is_nothing_to_do_and_topics_go_on(
    tmp_path: Path, side: str
) -> None:
    flow = make_flow(
        tmp_path,
        source=FakeCluster("A", authorizer=side != "source"),
        target=FakeCluster("B", authorizer=side != "target"),
    )
    flow.source.add_topic("orders")
    await flow.refresh(ACLS)
    assert "A.orders" in flow.target.topics
    status = flow.sync.status.scopes[Scope.ACLS]
    assert status.reason == SyncReason.NO_AUTHORIZER
    assert not flow.sync.status.failed(Scope.ACLS)


async def test_acls_that_cannot_be_read_stop_nothing_else(flow: ConfigSyncRig) -> None:
    def refuse(_call: Call) -> None:
        raise FatalKafkaError("an ACL for the cluster is missing", reason="CLUSTER_UNAUTHORIZED", code=31)

    flow.source.intercept("describe_acls", refuse)
    await flow.refresh(ACLS)
    assert "A.orders" in flow.target.topics
    assert flow.sync.status.scopes[Scope.ACLS].reason == "CLUSTER_UNAUTHORIZED"
    assert flow.sync.status.failed(Scope.ACLS)
