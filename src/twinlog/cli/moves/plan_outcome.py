"""What a plan of a move means for its groups: who moves, who stays, who lacks an offset."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2

_ACTIVE = ("SKIP_ACTIVE_BEFORE", "SKIP_ACTIVE_THERE")
_NOWHERE = {"SKIP_NO_OFFSET", "SKIP_NO_PARTITION"}
THERE = {"WRITE", "ALREADY_THERE", "KEEP_AHEAD"}


def count_moved(plan: pb2.MovePlan) -> tuple[int, int]:
    """Groups that continue where they move to, and all."""
    by_group = _actions_by_group(plan)
    active = staying(plan)
    return sum(group not in active and bool(acts & THERE) for group, acts in by_group.items()), len(by_group)


def _actions_by_group(plan: pb2.MovePlan) -> dict[str, set[str]]:
    by_group: dict[str, set[str]] = {}
    for entry in plan.partitions:
        by_group.setdefault(entry.group, set()).add(action(entry))
    return by_group


def summary(plan: pb2.MovePlan) -> list[str]:
    """What became of the groups, in a line for each outcome."""
    active = set(staying(plan))
    partly = sorted({entry.group for entry in plan.partitions if _is_nowhere(entry)} - active)
    by_rule = sorted({entry.from_partition.topic for entry in plan.partitions if _is_by_rule(entry)})
    moved, all_groups = count_moved(plan)
    lines = [f"moved: {moved} of {all_groups} groups"]
    if partly:
        lines.append(f"without an offset for some partitions: {', '.join(partly)}")
    if by_rule:
        lines.append(f"not copied by any flow, they stay on {plan.from_cluster}: {', '.join(by_rule)}")
    if active:
        lines.append(f"not moved, they have members: {', '.join(sorted(active))}; stop them and run it again")
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
    return pb2.MoveAction.Name(entry.action).removeprefix("MOVE_ACTION_")
