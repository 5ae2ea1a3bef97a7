"""Moves follow the rules that configsync has stored, while it is down or another process owns the flow."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog.policy.internal_topics import configsync_topic
from twinlog.testing.brokers import eventually
from twinlog.testing.fakes.cluster import Call
from twinlog.write_blocks import fence_of, is_fence
from twinlog_checkpoint.assembly import assemble_group_syncer, assemble_moves
from twinlog_checkpoint.flow.live_rules import RulesFollower
from twinlog_checkpoint.translation.translation import Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B, B_TO_A
from unit.checkpoint.flow.live_rig import (
    FENCE,
    INVOICES,
    INVOICES_COPY,
    ORDERS,
    applied,
    live_rig,
    store_rules,
)
from unit.checkpoint.moves.move_rig import offset_of, run


async def test_the_stored_rules_select_topics_after_a_restart_while_configsync_is_down(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        await rig.follower.learn()
        await rig.fakes.do_pass(rig.parts.checkpointer)
        verdicts = {row.source: row.translation.verdict for row in rig.parts.checkpointer.table.rows()}
        assert verdicts == {ORDERS: Verdict.EXACT, INVOICES: Verdict.EXACT}
        _, report = await run(rig.served.failover, FENCE)
        assert set(filter(is_fence, rig.fakes.source.acls)) == {fence_of("invoices"), fence_of("orders")}
        assert await offset_of(rig.fakes.target, "g", INVOICES_COPY) == 20
        assert [each for each in report.left_behind if "invoices-0" in each]


async def test_no_move_runs_before_the_stored_rules_are_read(configuration: Configuration) -> None:
    """With the rules of the file alone it could leave out a topic."""
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        for work in (rig.served.failover, rig.served.failback):
            with pytest.raises(StateError, match="changed rules have not been read") as refused:
                await run(work, FENCE)
            assert refused.value.reason == "MOVE_BLOCKED"
        assert rig.fakes.source.acls == set()
        await rig.take_over()
        await run(rig.served.failover, FENCE)
        assert fence_of("invoices") in rig.fakes.source.acls


async def test_a_new_leader_that_shows_less_of_the_rules_for_a_moment_is_asked_again(
    configuration: Configuration,
) -> None:
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        rules_partition = TopicPartition(configsync_topic("A"), 0)

        def show_nothing(call: Call) -> None:
            if call.arguments["partition"] == rules_partition:
                for name, value in {"records": [], "next_offset": 0, "high_watermark": 0}.items():
                    object.__setattr__(call.result, name, value)

        undo = rig.fakes.target.intercept("fetch", show_nothing, after=True)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.follower.decisions.run(stop), name="decisions")
            tasks.create_task(rig.follower.run(stop), name="follower")
            await eventually(lambda: "returned no records" in rig.follower.problem)
            undo()
            await eventually(lambda: not rig.follower.problem)
            stop.set()
        assert rig.parts.entry.topics.selects("invoices")


def with_secret(tmp_path: Path, secret: Path) -> Configuration:
    """The file of `configuration`, with a secret that is in a file of its own."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"{file.read_text()}config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"B.ssl.key.password = ${{file:{secret}:password}}\n"
    )
    return load(file, environ={})


@pytest.mark.usefixtures("configuration")
async def test_no_move_runs_while_the_stored_rules_cannot_be_used(tmp_path: Path) -> None:
    """The rules of the file apply for the moment, and they leave out a topic."""
    secret, away = tmp_path / "secrets.properties", tmp_path / "away"
    secret.write_text("password = planted\n")
    configuration = with_secret(tmp_path, secret)
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        secret.rename(away)
        await rig.take_over()
        for work in (rig.served.failover, rig.served.failback):
            with pytest.raises(StateError, match=f"changed rules do not apply yet: .*{secret}") as refused:
                await run(work, FENCE)
            assert refused.value.reason == "MOVE_BLOCKED"
        assert rig.fakes.source.acls == set()
        away.rename(secret)
        await applied(rig.follower)
        await run(rig.served.failover, FENCE)
        assert fence_of("invoices") in rig.fakes.source.acls


async def test_no_failback_runs_before_the_stored_rules_of_the_reverse_flow_are_read(
    two_way: Configuration,
) -> None:
    """Another process owns the reverse flow, so its checkpointer does not run here."""
    async with live_rig(two_way, configsync_knows=(), reads_stored_rules=True) as rig:
        source, target = rig.fakes.source, rig.fakes.target
        target.add_topic("payments")
        await store_rules(source, {"topics": "payments"}, of="B")
        reverse = rig.fakes.reverse_parts()
        follower = RulesFollower(
            configuration=two_way,
            decisions=rig.follower.decisions,
            checkpointer=reverse.checkpointer,
            syncer=assemble_group_syncer(reverse),
        )
        reverse.checkpointer.learn_rules = follower.learn
        flows = {A_TO_B: rig.parts, B_TO_A: replace(reverse, rules=follower)}
        served = assemble_moves(flows, rig.fakes.around())[A_TO_B]
        served.failback.drain_look_seconds = served.failback.planner.rate_seconds = 0
        await rig.take_over()
        await run(served.failover)
        with pytest.raises(StateError, match="B->A: the changed rules have not been read") as refused:
            await run(served.failback, FENCE)
        assert refused.value.reason == "MOVE_BLOCKED"
        assert target.acls == set()
        await applied(follower)
        await run(served.failback, FENCE)
        assert set(filter(is_fence, target.acls)) == {fence_of("payments")}


@pytest.mark.parametrize("is_owner", [True, False, None])
async def test_only_the_owner_of_a_flow_puts_rules_aside_because_of_its_file(
    configuration: Configuration, is_owner: bool | None
) -> None:
    """The file of the process that set the rule, and still runs the flow, has "sales"."""
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "invoices"}, replaced={"topics": "sales"})
        rig.follower.is_owner = lambda: is_owner
        await rig.follower.learn()
        assert rig.parts.entry.topics.selects("invoices") is not bool(is_owner)


async def test_a_stored_record_that_cannot_be_read_stops_moves_until_it_is_gone(
    configuration: Configuration,
) -> None:
    """The message has the remedy, and checkpoints are written meanwhile."""
    async with live_rig(configuration, configsync_knows=(), reads_stored_rules=True) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"}, version=2)
        await rig.take_over()
        assert rig.fakes.checkpoints()
        with pytest.raises(StateError, match=f"delete {configsync_topic('A')} on B") as refused:
            await run(rig.served.failover, FENCE)
        assert refused.value.reason == "MOVE_BLOCKED"
        await rig.fakes.target.delete_topics([configsync_topic("A")])
        await applied(rig.follower)
        await run(rig.served.failover, FENCE)
        assert set(filter(is_fence, rig.fakes.source.acls)) == {fence_of("orders")}


async def test_a_standby_that_takes_over_follows_rules_that_were_stored_since_it_started(
    configuration: Configuration,
) -> None:
    """configsync is down for both: the owner before heard of the change, and stored rules are all it left."""
    async with live_rig(configuration, configsync_knows=()) as rig:
        await store_rules(rig.fakes.target, {"topics": "orders"})
        await rig.follower.learn()
        await store_rules(rig.fakes.target, {"topics": "orders, invoices"})
        await rig.follower.learn()
        assert rig.parts.entry.topics.selects("invoices")
        assert not rig.follower.problem
