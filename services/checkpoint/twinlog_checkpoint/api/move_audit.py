"""Summarises moves for the audit log. The length does not grow with the number of groups. Pure."""

from itertools import islice

from twinlog.acl_rights import acl_text
from twinlog.moves.record import Moves
from twinlog.service.access.audit import AuditedProcess
from twinlog_checkpoint.moves.planning.plan import MoveAction
from twinlog_checkpoint.moves.running.host import MoveRun

MOST_NAMES = 20
"""Most topics, groups or offsets in one line; their total number is always included."""


def tell_outcome(begun: AuditedProcess, run: MoveRun) -> None:
    """Add the outcome of a run to its second audit line: the steps, and the offsets committed on the
    target."""
    if run.report is None:
        reason = "FAILED" if run.error is None else run.error.reason
        begun.ended(reason, before={"steps": {}}, after=run_shown(run))
        return
    written = [entry for entry in run.report.plan.partitions if entry.action is MoveAction.WRITE]
    before, after = {}, {}
    for entry in islice(written, MOST_NAMES):
        name = f"{entry.group} {entry.to_partition}"
        before[name], after[name] = entry.present_offset, entry.to_offset
    fenced = run.report.plan.fenced_topics
    begun.ended(
        "OK",
        before={"steps": {}, "committed_offsets": before},
        after={
            **run_shown(run),
            "run_id": run.report.run_id,
            "already_done": run.report.already_done,
            "offsets": len(written),
            "committed_offsets": after,
            "fenced_topics": len(fenced),
            "fenced": list(fenced[:MOST_NAMES]),
            "granted": [acl_text(grant) for grant in run.report.plan.write_grants[:MOST_NAMES]],
            "left_behind": list(run.report.left_behind),
        },
    )


def run_shown(run: MoveRun) -> dict[str, object]:
    """Summarise a run up to now: for each step its latest message."""
    return {
        "kind": run.kind,
        "by": run.options.by,
        "running": run.running,
        "steps": {event.step: f"{event.state}: {event.message}" for event in run.steps},
        "reason": "" if run.error is None else run.error.reason,
    }


def record_shown(moves: Moves) -> dict[str, object]:
    """Summarise a recorded move."""
    run = moves.run
    if run is None:
        return {}
    fenced = sorted(moves.fences.get(moves.leaves(run.kind), ()))
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "state": run.state,
        "aborted": run.aborted,
        "by": run.by,
        "steps": list(run.done),
        "fenced_topics": len(fenced),
        "fenced": fenced[:MOST_NAMES],
    }
