"""A plan of a move, and what happens to it."""

from collections.abc import Callable

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.moves.plan_outcome import actions_by_group, plan_facts
from twinlog.cli.verdict.moving import Check, plan_checks

FLOW = types_pb2.Flow(source="A", target="B")


def partition(group: str, action: "pb2.MoveAction.ValueType") -> pb2.MovePartition:
    return pb2.MovePartition(
        group=group,
        from_partition=types_pb2.TopicPartition(topic="orders", partition=0),
        to_partition=types_pb2.TopicPartition(topic="A.orders", partition=0),
        from_offset=7,
        to_offset=9,
        verdict=pb2.VERDICT_EXACT,
        action=action,
    )


def a_plan(change: Callable[[pb2.MovePlan], object] = lambda plan: None) -> pb2.MovePlan:
    plan = pb2.MovePlan(
        flow=FLOW,
        from_cluster="A",
        to_cluster="B",
        from_reachable=True,
        partitions=[partition("g", pb2.MOVE_ACTION_WRITE)],
        records_not_copied=0,
    )
    change(plan)
    return plan


def gone(plan: pb2.MovePlan) -> None:
    plan.from_reachable = False
    plan.ClearField("records_not_copied")


def behind(plan: pb2.MovePlan) -> None:
    plan.records_not_copied = 40
    plan.estimated.FromMilliseconds(8000)


def stuck(plan: pb2.MovePlan) -> None:
    plan.records_not_copied = 40


def cut(plan: pb2.MovePlan) -> None:
    plan.last.CopyFrom(pb2.LastMove(run_id="r1", kind="failover", steps=["CHECK", "FENCE"], by="ann"))
    plan.fenced_topics.append("orders")


def checks(change: Callable[[pb2.MovePlan], object] = lambda plan: None) -> list[Check]:
    plan = a_plan(change)
    return plan_checks(plan_facts(plan, actions_by_group(plan), "failover"))
