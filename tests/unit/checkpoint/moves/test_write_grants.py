"""`failover run --grant-write`: who may write the originals may write the copies, until the failback."""

from dataclasses import replace

import pytest

from twinlog.errors import StateError, TransientKafkaError
from twinlog.kafka.ports import AclBinding
from twinlog.moves.record import Moves, Step
from twinlog.moves.stored import moves_of, rows_of
from twinlog.testing.fakes.cluster import Call
from twinlog.write_blocks import fence_of, holder_name, holder_of
from twinlog_checkpoint.moves.planning.plan import MoveOptions
from twinlog_checkpoint.moves.write_block import write_grants
from unit.checkpoint.checkpoint_rig import A_TO_B
from unit.checkpoint.mirrored_logs import COPY, ORIGIN
from unit.checkpoint.moves.move_rig import NO_WAIT, MoveRig, move_rig, run

GRANTING = MoveOptions(wait_seconds=0, grant_write=True)


def rule(topic: str = ORIGIN.topic, operation: str = "WRITE", **more: str) -> AclBinding:
    fields = {"pattern_type": "LITERAL", "principal": "User:app", "host": "*", "permission": "ALLOW", **more}
    return AclBinding(resource_type="TOPIC", resource_name=topic, operation=operation, **fields)


GRANT = rule(COPY.topic)


async def let_write(rig: MoveRig, *rules: AclBinding) -> None:
    rig.logs.source.set_group("g", {ORIGIN: 100})
    await rig.logs.source.create_acls(rules or [rule()])


async def test_writers_may_write_the_copies_from_the_failover_to_the_failback(rig: MoveRig) -> None:
    await let_write(rig)
    plan = await rig.served.failover.plan(GRANTING)
    assert plan.write_grants == (GRANT,)
    assert rig.logs.target.acls == set(), "a plan changes nothing"
    steps, report = await run(rig.served.failover, GRANTING)
    assert rig.logs.target.acls == {GRANT}
    assert Step.GRANT in [step.step for step in steps]
    assert report.plan.write_grants == (GRANT,)
    _, again = await run(rig.served.failover, GRANTING)
    assert again.already_done
    steps, _ = await run(rig.served.failback)
    assert rig.logs.target.acls == set()
    assert Step.REVOKE in [step.step for step in steps]
    assert rig.logs.source.acls == {rule()}


async def test_nothing_is_granted_unless_asked(rig: MoveRig) -> None:
    await let_write(rig)
    _, report = await run(rig.served.failover)
    assert rig.logs.target.acls == set()
    assert report.plan.write_grants == ()
    _, later = await run(rig.served.failover, GRANTING)
    assert rig.logs.target.acls == {GRANT}
    assert not later.already_done, "a finished failover may grant later"


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_fence_on_the_source_takes_no_grant_away(is_shared: bool) -> None:
    """Also from a writer that is anybody, and if a move of another flow holds it."""
    fence, anybody = fence_of(ORIGIN.topic), rule(principal="User:*")
    grants = {GRANT, replace(GRANT, principal="User:*")}
    async with move_rig() as rig:
        await let_write(rig, rule(), anybody)
        others = [holder_of(fence, "A->C id")] if is_shared else []
        if is_shared:
            await rig.logs.source.create_acls([fence, *others])
        await run(rig.served.failover, replace(GRANTING, fence=True))
        assert rig.logs.source.acls == {
            rule(),
            anybody,
            fence,
            holder_of(fence, holder_name(A_TO_B, await rig.logs.target.cluster_id())),
            *others,
        }
        assert rig.logs.target.acls == grants
        await run(rig.served.failback)
        assert rig.logs.target.acls == set()


async def test_a_rule_that_looks_like_a_fence_and_was_there_before_is_obeyed(rig: MoveRig) -> None:
    await let_write(rig, rule(), fence_of(ORIGIN.topic))
    for options in (GRANTING, replace(GRANTING, fence=True)):
        _, report = await run(rig.served.failover, options)
        assert rig.logs.target.acls == set()
        assert any("a DENY of the source may limit it" in warning for warning in report.plan.warnings)


async def test_a_right_that_was_there_before_stays(rig: MoveRig) -> None:
    await let_write(rig)
    await rig.logs.target.create_acls([GRANT])
    await run(rig.served.failover, GRANTING)
    await run(rig.served.failback)
    assert rig.logs.target.acls == {GRANT}


async def test_a_grant_is_recorded_before_it_is_there_so_that_none_is_forgotten(rig: MoveRig) -> None:
    await let_write(rig)

    def killed(call: Call) -> None:
        raise TransientKafkaError("killed")

    undo = rig.logs.target.intercept("create_acls", killed, after=True)
    with pytest.raises(TransientKafkaError):
        await run(rig.served.failover, GRANTING)
    undo()
    assert rig.logs.target.acls == {GRANT}
    await run(rig.served.failback)
    assert rig.logs.target.acls == set()


async def test_a_failback_that_is_cut_leaves_the_grant_to_the_next_run(rig: MoveRig) -> None:
    await let_write(rig)
    await run(rig.served.failover, GRANTING)

    def killed(call: Call) -> None:
        raise TransientKafkaError("killed")

    undo = rig.logs.target.intercept("delete_acls", killed)
    with pytest.raises(TransientKafkaError):
        await run(rig.served.failback)
    undo()
    assert rig.logs.target.acls == {GRANT}
    await run(rig.served.failback)
    assert rig.logs.target.acls == set()


async def test_a_record_takes_back_rights_to_write_copies_of_the_flow_alone() -> None:
    """Who may write the journal does not gain Twinlog's right to delete ACLs."""
    others = rule("ledger")
    async with move_rig() as rig:
        await let_write(rig)
        await rig.logs.target.create_acls([others, rule(COPY.topic, "READ")])
        await run(rig.served.failover, GRANTING)
        record = await rig.served.failover.journal.load()
        forged = replace(record, grants={**record.grants, others: "r"})
        await rig.served.failover.journal.store(forged)
        await run(rig.served.failback)
        assert rig.logs.target.acls == {others, rule(COPY.topic, "READ")}


def test_what_is_no_right_to_write_one_topic_is_no_grant_of_a_record() -> None:
    others = (rule(operation="ALL"), rule("*"), rule(permission="DENY"), rule(pattern_type="PREFIXED"))
    forged = Moves(flow=A_TO_B, grants=dict.fromkeys((GRANT, *others), "r"))
    assert moves_of(A_TO_B, rows_of(forged)).grants == {GRANT: "r"}


async def test_without_an_authorizer_nothing_is_granted() -> None:
    async with move_rig(authorizer=False) as rig:
        rig.logs.source.set_group("g", {ORIGIN: 100})
        with pytest.raises(StateError, match="A has no authorizer, so there are no rights to grant"):
            await run(rig.served.failover, GRANTING)


async def test_a_source_that_is_away_cannot_tell_who_may_write(rig: MoveRig) -> None:
    await let_write(rig)
    rig.logs.source.take_away()
    plan = await rig.served.failover.plan(replace(GRANTING, accept_loss=True))
    assert any("kafka-acls" in blocker for blocker in plan.blockers)


async def test_a_failback_grants_nothing(rig: MoveRig) -> None:
    await let_write(rig)
    await run(rig.served.failover)
    plan = await rig.served.failback.plan(replace(NO_WAIT, grant_write=True))
    assert any("is for a failover" in blocker for blocker in plan.blockers)


def test_patterns_are_written_out_for_the_copies_that_are_there() -> None:
    copies = {"orders": "A.orders", "orders-eu": "A.orders-eu", "users": "A.users"}
    source = [rule("orders", "ALL", pattern_type="PREFIXED"), rule("payroll"), rule("users", "READ")]
    grants = write_grants(source, [rule("A.orders")], copies)
    assert grants.missing == (rule("A.orders-eu"),)
    assert grants.left_out == ()


@pytest.mark.parametrize("operation", ["WRITE", "ALL", "DESCRIBE"])
def test_a_right_that_the_source_limits_is_left_out_and_said(operation: str) -> None:
    denial = rule("ord", operation, pattern_type="PREFIXED", principal="User:*", permission="DENY")
    grants = write_grants([rule("orders"), rule("users"), denial], [], {"orders": "A.o", "users": "A.users"})
    assert grants.missing == (rule("A.users"),)
    (words,) = grants.left_out
    assert "a DENY of the source may limit it (DENY User:*" in words
