"""Plans, steps and reports of moves as JSON."""

from typing import Any

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.checkpoint.client import verdict_name
from twinlog.cli.configsync.client import flow_name
from twinlog.cli.moves.plan_outcome import action, staying


def step_as_json(step: pb2.MoveStep) -> dict[str, Any]:
    """One step as JSON."""
    return {
        "step": step.name,
        "state": pb2.StepState.Name(step.state).removeprefix("STEP_STATE_"),
        "message": step.message,
        "at": step.at.ToJsonString(),
        "records_left": step.records_left if step.HasField("records_left") else None,
    }


def event_as_json(
    event: pb2.RunFailoverResponse | pb2.RunFailbackResponse | pb2.WatchMoveResponse,
) -> dict[str, Any]:
    if event.HasField("step"):
        return step_as_json(event.step)
    report = event.report
    return {
        "run_id": report.run_id,
        "already_done": report.already_done,
        "started": report.started.ToJsonString(),
        "finished": report.finished.ToJsonString(),
        "left_behind": list(report.left_behind),
        "complete": not (report.left_behind or staying(report.plan)),
        "plan": plan_as_json(report.plan),
    }


def plan_as_json(plan: pb2.MovePlan) -> dict[str, Any]:
    """The plan as JSON."""
    return {
        "flow": flow_name(plan.flow),
        "from": plan.from_cluster,
        "to": plan.to_cluster,
        "from_reachable": plan.from_reachable,
        "records_not_copied": plan.records_not_copied if plan.HasField("records_not_copied") else None,
        "estimated_seconds": (
            plan.estimated.ToTimedelta().total_seconds() if plan.HasField("estimated") else None
        ),
        "counting": plan.counting,
        "at_most_not_copied": plan.at_most_not_copied if plan.HasField("at_most_not_copied") else None,
        "partitions": [
            {
                "group": entry.group,
                "from_topic": entry.from_partition.topic,
                "to_topic": entry.to_partition.topic if entry.HasField("to_partition") else None,
                "partition": entry.from_partition.partition,
                "from_offset": entry.from_offset if entry.HasField("from_offset") else None,
                "to_offset": entry.to_offset if entry.HasField("to_offset") else None,
                "present_offset": entry.present_offset if entry.HasField("present_offset") else None,
                "verdict": verdict_name(entry.verdict),
                "action": action(entry),
                "message": entry.message,
            }
            for entry in plan.partitions
        ],
        "backlog": [
            {
                "topic": entry.partition.topic,
                "partition": entry.partition.partition,
                "records_not_copied": (
                    entry.records_not_copied if entry.HasField("records_not_copied") else None
                ),
                "counting": entry.counting,
                "at_most": entry.at_most if entry.HasField("at_most") else None,
                "message": entry.message,
            }
            for entry in plan.backlog
        ],
        "fenced_topics": list(plan.fenced_topics),
        "write_grants": list(plan.write_grants),
        "last": last_as_json(plan.last) if plan.HasField("last") else None,
        "warnings": list(plan.warnings),
        "blockers": list(plan.blockers),
    }


def last_as_json(last: pb2.LastMove) -> dict[str, Any]:
    """The recorded move as JSON."""
    return {
        "run_id": last.run_id,
        "kind": last.kind,
        "finished": last.finished,
        "steps": list(last.steps),
        "by": last.by or None,
        "started": last.started.ToJsonString(),
        "aborted": last.aborted,
        "left_behind": list(last.left_behind),
        "complete": last.finished and not last.aborted and not last.left_behind,
        "fenced_topics": list(last.fenced_topics),
        "groups_on_target": last.groups_on_target if last.HasField("groups_on_target") else None,
    }
