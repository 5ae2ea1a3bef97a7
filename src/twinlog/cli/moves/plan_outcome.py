"""Which groups a plan moves, which stay, and which lack an offset."""

import shlex
from collections.abc import Collection, Mapping
from typing import Any, Final

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.cli.common.fields import Field, Fields, as_json, table, value_of
from twinlog.cli.common.names import flow_name, partition_name
from twinlog.cli.verdict.moving import PlanFacts

_ACTIVE = ("SKIP_ACTIVE_BEFORE", "SKIP_ACTIVE_THERE")
_NOWHERE = {"SKIP_NO_OFFSET", "SKIP_NO_PARTITION", "SKIP_UNREAD", "SKIP_REFUSED"}
_UNREAD = (pb2.VERDICT_SOURCE_UNREADABLE, pb2.VERDICT_TARGET_UNREADABLE)
THERE = {"WRITE", "ALREADY_THERE", "KEEP_AHEAD"}


def count_moved(plan: pb2.MovePlan) -> tuple[int, int]:
    """The number of groups that the plan moves, and of all its groups."""
    by_group = actions_by_group(plan)
    active = staying(plan)
    return sum(group not in active and bool(acts & THERE) for group, acts in by_group.items()), len(by_group)


def actions_by_group(plan: pb2.MovePlan) -> dict[str, set[str]]:
    by_group: dict[str, set[str]] = {}
    for entry in plan.partitions:
        by_group.setdefault(entry.group, set()).add(action(entry))
    return by_group


def plan_facts(plan: pb2.MovePlan, actions: Mapping[str, Collection[str]], kind: str) -> PlanFacts:
    """What decides for or against the move; `actions`: of each group."""
    return PlanFacts(
        command=f"twinlog {kind} plan {shlex.quote(flow_name(plan.flow))}",
        blockers=list(plan.blockers),
        records=plan.records_not_copied if plan.HasField("records_not_copied") else None,
        why=next(map(_why, (each for each in plan.backlog if not each.HasField("records_not_copied"))), ""),
        at_most=plan.at_most_not_copied if plan.HasField("at_most_not_copied") else None,
        seconds=plan.estimated.ToTimedelta().total_seconds() if plan.HasField("estimated") else None,
        groups=len(actions),
        active={
            plan.from_cluster: sum("SKIP_ACTIVE_BEFORE" in each for each in actions.values()),
            plan.to_cluster: sum("SKIP_ACTIVE_THERE" in each for each in actions.values()),
        },
        leaves=plan.from_cluster,
        away=not plan.from_reachable,
        unread=_unread(plan),
    )


def _unread(plan: pb2.MovePlan) -> str:
    """The run leaves them out."""
    rows = [each for each in plan.partitions if action(each) == "SKIP_NO_OFFSET" and each.verdict in _UNREAD]
    if not rows:
        return ""
    count = len({each.group for each in rows})
    groups = "1 group has" if count == 1 else f"{count:,} groups have"
    return f"{groups} offsets that cannot be read now, and stay: {rows[0].group}: {rows[0].message}"


def _why(backlog: pb2.TopicBacklog) -> str:
    return f"{partition_name(backlog.partition)}: {backlog.message}" if backlog.message else ""


def summary(plan: pb2.MovePlan) -> list[str]:
    """One line for each outcome of the groups."""
    active = set(staying(plan))
    partly = sorted({entry.group for entry in plan.partitions if _is_nowhere(entry)} - active)
    by_rule = sorted({entry.from_partition.topic for entry in plan.partitions if _is_by_rule(entry)})
    moved, all_groups = count_moved(plan)
    lines = [f"moved: {moved} of {all_groups} groups"]
    if partly:
        lines.append(f"no offset committed for some partitions: {', '.join(partly)}")
    if by_rule:
        lines.append(f"topics that no flow copies, which stay on {plan.from_cluster}: {', '.join(by_rule)}")
    if active:
        have = "it has" if len(active) == 1 else "they have"
        lines.append(
            f"not moved, because {have} members: {', '.join(sorted(active))}; stop them and run it again"
        )
    return lines


def staying(plan: pb2.MovePlan) -> list[str]:
    """Groups that were not moved because they have members."""
    return sorted({entry.group for entry in plan.partitions if action(entry) in _ACTIVE})


def _is_by_rule(entry: pb2.MovePartition) -> bool:
    """Whether the partition stays because no flow copies its topic."""
    return entry.verdict == pb2.VERDICT_NOT_REPLICATED


def _is_nowhere(entry: pb2.MovePartition) -> bool:
    return action(entry) in _NOWHERE and not _is_by_rule(entry)


def action(entry: pb2.MovePartition) -> str:
    return str(value_of(entry, "action"))


# Plans, steps and reports of moves as JSON.


KINDS: Final = {"failover": pb2.MOVE_KIND_FAILOVER, "failback": pb2.MOVE_KIND_FAILBACK}
KIND_NAMES: Final = {number: name for name, number in KINDS.items()}

STEP: Fields[pb2.MoveStep] = table("step=name state message at records_left")
_PARTITION: Fields[pb2.MovePartition] = table(
    "group from_topic=from_partition.topic to_topic=to_partition.topic",
    "partition=from_partition.partition from_offset to_offset present_offset verdict action message",
)
_BACKLOG: Fields[pb2.TopicBacklog] = table(
    "topic=partition.topic partition=partition.partition records_not_copied counting at_most", "message"
)
LAST: Fields[pb2.LastMove] = table(
    "run_id kind finished steps by? started aborted left_behind",
    Field("complete", lambda last: last.finished and not last.aborted and not last.left_behind),
    "fenced_topics groups_on_target",
)
PLAN: Fields[pb2.MovePlan] = table(
    "flow from=from_cluster to=to_cluster from_reachable records_not_copied",
    "estimated_seconds=estimated counting at_most_not_copied",
    Field("partitions", lambda plan: [as_json(_PARTITION, entry) for entry in plan.partitions]),
    Field("backlog", lambda plan: [as_json(_BACKLOG, entry) for entry in plan.backlog]),
    "fenced_topics write_grants",
    Field("last", lambda plan: as_json(LAST, plan.last) if plan.HasField("last") else None),
    "warnings blockers",
)
_REPORT: Fields[pb2.MoveReport] = table(
    "run_id already_done started finished left_behind",
    Field("complete", lambda report: is_complete(report)),
    Field("plan", lambda report: as_json(PLAN, report.plan)),
)
RUN: Fields[pb2.MoveRun] = table(
    Field("kind", lambda run: KIND_NAMES.get(run.kind, "")),
    "running",
    Field("by", lambda run: run.options.by or None),
    Field("groups", lambda run: [*run.options.groups]),
    Field("fence", lambda run: run.options.fence),
    Field("grant_write", lambda run: run.options.grant_write),
    "started",
    Field("steps", lambda run: [as_json(STEP, step) for step in run.steps]),
    "reason? message? left_behind",
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
