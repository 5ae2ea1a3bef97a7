"""Plans, steps and reports of moves as JSON."""

from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.fields import Field, Fields, as_json
from twinlog.cli.moves.plan_outcome import staying

KINDS: Final = {"failover": pb2.MOVE_KIND_FAILOVER, "failback": pb2.MOVE_KIND_FAILBACK}
KIND_NAMES: Final = {number: name for name, number in KINDS.items()}

STEP: Fields[pb2.MoveStep] = (Field("step", "name"), *map(Field, ("state", "message", "at", "records_left")))
_PARTITION: Fields[pb2.MovePartition] = (
    Field("group"),
    Field("from_topic", "from_partition.topic"),
    Field("to_topic", "to_partition.topic"),
    Field("partition", "from_partition.partition"),
    *map(Field, ("from_offset", "to_offset", "present_offset", "verdict", "action", "message")),
)
_BACKLOG: Fields[pb2.TopicBacklog] = (
    Field("topic", "partition.topic"),
    Field("partition", "partition.partition"),
    *map(Field, ("records_not_copied", "counting", "at_most", "message")),
)
LAST: Fields[pb2.LastMove] = (
    *map(Field, ("run_id", "kind", "finished", "steps")),
    Field("by", "by?"),
    *map(Field, ("started", "aborted", "left_behind")),
    Field("complete", lambda last: last.finished and not last.aborted and not last.left_behind),
    *map(Field, ("fenced_topics", "groups_on_target")),
)
PLAN: Fields[pb2.MovePlan] = (
    Field("flow"),
    Field("from", "from_cluster"),
    Field("to", "to_cluster"),
    *map(Field, ("from_reachable", "records_not_copied")),
    Field("estimated_seconds", "estimated"),
    *map(Field, ("counting", "at_most_not_copied")),
    Field("partitions", lambda plan: [as_json(_PARTITION, entry) for entry in plan.partitions]),
    Field("backlog", lambda plan: [as_json(_BACKLOG, entry) for entry in plan.backlog]),
    *map(Field, ("fenced_topics", "write_grants")),
    Field("last", lambda plan: as_json(LAST, plan.last) if plan.HasField("last") else None),
    *map(Field, ("warnings", "blockers")),
)
_REPORT: Fields[pb2.MoveReport] = (
    *map(Field, ("run_id", "already_done", "started", "finished", "left_behind")),
    Field("complete", lambda report: is_complete(report)),
    Field("plan", lambda report: as_json(PLAN, report.plan)),
)
RUN: Fields[pb2.MoveRun] = (
    Field("kind", lambda run: KIND_NAMES.get(run.kind, "")),
    Field("running"),
    Field("by", lambda run: run.options.by or None),
    Field("groups", lambda run: [*run.options.groups]),
    Field("fence", lambda run: run.options.fence),
    Field("grant_write", lambda run: run.options.grant_write),
    Field("started"),
    Field("steps", lambda run: [as_json(STEP, step) for step in run.steps]),
    Field("reason", "reason?"),
    Field("message", "message?"),
    Field("left_behind"),
    Field("complete", lambda run: not (run.running or run.reason or run.left_behind)),
)


def is_complete(report: pb2.MoveReport) -> bool:
    return not (report.left_behind or staying(report.plan))


def event_as_json(
    event: pb2.RunFailoverResponse | pb2.RunFailbackResponse | pb2.WatchMoveResponse,
) -> dict[str, Any]:
    return as_json(STEP, event.step) if event.HasField("step") else as_json(_REPORT, event.report)


def status_as_json(answer: pb2.GetMoveResponse) -> dict[str, Any]:
    return {
        "run": as_json(RUN, answer.run) if answer.HasField("run") else None,
        "last": as_json(LAST, answer.last) if answer.HasField("last") else None,
        "problem": answer.problem or None,
    }
