"""`twinlog failover status`: the run in the service, and the recorded move."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.names import flow_name
from twinlog.cli.common.pasteable import say
from twinlog.cli.moves.as_json import KIND_NAMES
from twinlog.cli.moves.moves import clock_time, print_step


def print_status(flow: types_pb2.Flow, answer: pb2.GetMoveResponse) -> None:
    """Print the status as text, with the command to run next."""
    name = flow_name(flow)
    if answer.HasField("run"):
        _print_run(name, answer.run)
    if answer.problem:
        say(f"the record of moves cannot be read: {answer.problem}")
    elif answer.HasField("last"):
        shown = bool(answer.run.left_behind)
        _print_last(name, answer.last, running=answer.run.running, shown=shown)
    else:
        say(f"no move of {name} is recorded")


def _print_run(name: str, run: pb2.MoveRun) -> None:
    kind = KIND_NAMES.get(run.kind, "move")
    if run.running:
        follow, stop = (f"`twinlog {kind} {word} '{name}'`" for word in ("attach", "cancel"))
        state = f"is running; {follow} follows it, {stop} stops it"
    elif run.left_behind:
        state = "has finished, but is not complete"
    elif run.reason:
        state = f"ended: {run.message} ({run.reason})"
    else:
        state = "has finished"
    by = run.options.by or "somebody"
    say(f"the {kind} of {name} that {by} started at {clock_time(run.started)} {state}")
    for step in run.steps:
        print_step(step)
    for reason in run.left_behind:
        say(f"not done: {reason}")


def _print_last(name: str, last: pb2.LastMove, *, running: bool, shown: bool) -> None:
    """`shown`: the run above has already listed what is not done."""
    about = f"{last.kind} run {last.run_id} by {last.by or 'somebody'}, started at {clock_time(last.started)}"
    if last.aborted:
        say(f"recorded: {about}: given up")
    elif last.finished:
        say(f"recorded: {about}: {'finished, but not complete' if last.left_behind else 'finished'}")
        for reason in last.left_behind if not shown else ():
            say(f"not done: {reason}")
    elif not running:
        steps = ", ".join(last.steps) or "nothing"
        say(
            f"recorded: {about}: interrupted after {steps}. `twinlog {last.kind} run '{name}'` continues it,"
            f" `twinlog {last.kind} abort '{name}'` gives it up"
        )
    if last.fenced_topics:
        say(f"its fence denies writes to {', '.join(last.fenced_topics)}")
