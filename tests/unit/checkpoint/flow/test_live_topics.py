"""Topics that a changed rule adds to a running flow, or removes from it: every part follows the rules of
now."""

from dataclasses import replace

import pytest

from twinlog.config import Configuration
from twinlog.moves.record import Step
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.moves.planning.plan import MoveAction, MoveOptions
from unit.checkpoint.flow.live_rig import (
    COPIED,
    FENCE,
    INVOICES,
    INVOICES_COPY,
    ORDERS,
    ORDERS_COPY,
    RECORDS,
    WRITER,
    live_rig,
)
from unit.checkpoint.moves.move_rig import offset_of, run
from unit.checkpoint.moves.test_sync_after_moves import run_until


async def test_a_failover_fences_and_waits_for_a_topic_that_a_live_rule_added(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration) as rig:
        rig.fakes.source.acls = {WRITER}
        rig.change_rules({"topics": "orders, invoices"})
        await rig.fakes.do_pass(rig.parts.checkpointer)
        plan = await rig.served.failover.plan(MoveOptions(fence=True, grant_write=True))
        assert plan.fenced_topics == ["invoices", "orders"]
        assert [each.resource_name for each in plan.write_grants] == ["A.invoices"]
        assert {each.partition: each.records_not_copied for each in plan.backlog} == {
            INVOICES: RECORDS - COPIED,
            ORDERS: 0,
        }
        _, report = await run(rig.served.failover, FENCE)
        assert {fence_of("invoices"), fence_of("orders")} <= rig.fakes.source.acls
        assert [each for each in report.left_behind if "invoices-0" in each]


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_topic_that_left_the_rules_since_keeps_no_fence_and_no_grant(
    configuration: Configuration, is_cut: bool
) -> None:
    async with live_rig(configuration) as rig:
        rig.fakes.source.acls = {WRITER}
        rig.change_rules({"topics": "orders, invoices"})
        if is_cut:
            await run_until(rig.served.failover.run(FENCE), Step.FENCE)
        else:
            await run(rig.served.failover, replace(FENCE, grant_write=True))
            assert rig.fakes.target.acls
        assert fence_of("invoices") in rig.fakes.source.acls
        rig.change_rules({"topics": "orders"})
        if is_cut:
            await rig.served.failover.abort("ann")
        else:
            await run(rig.served.failback)
        assert (rig.fakes.source.acls, rig.fakes.target.acls) == ({WRITER}, set())


async def test_a_topic_that_configsync_has_not_noticed_yet_is_fenced_and_waited_for(
    configuration: Configuration,
) -> None:
    """A rule has just added it, or it has just been created: its records are not copied."""
    async with live_rig(configuration, configsync_knows=("orders",)) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        _, report = await run(rig.served.failover, FENCE)
        assert set(filter(is_fence, rig.fakes.source.acls)) == {fence_of("invoices"), fence_of("orders")}
        assert [each for each in report.left_behind if "invoices-0" in each]


async def test_a_failback_translates_a_topic_that_a_live_rule_added(configuration: Configuration) -> None:
    async with live_rig(configuration) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        await rig.fakes.do_pass(rig.parts.checkpointer)
        await run(rig.served.failover)
        rig.fakes.target.set_group("g", {ORDERS_COPY: 95, INVOICES_COPY: 30})
        _, report = await run(rig.served.failback)
        assert {each.from_partition: each.action for each in report.plan.partitions} == {
            ORDERS_COPY: MoveAction.WRITE,
            INVOICES_COPY: MoveAction.WRITE,
        }
        assert report.left_behind == []
        assert await offset_of(rig.fakes.source, "g", INVOICES) == 30


async def test_a_topic_that_a_live_rule_removed_is_neither_fenced_nor_waited_for(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=()) as rig:
        rig.change_rules({"topics": "orders, invoices"})
        rig.change_rules({})
        _, report = await run(rig.served.failover, FENCE)
        assert set(filter(is_fence, rig.fakes.source.acls)) == {fence_of("orders")}
        assert [each.partition for each in report.plan.backlog] == [ORDERS]
