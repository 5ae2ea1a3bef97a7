"""How much is copied: `twinlog pause`, `twinlog resume`, `twinlog throttle`, and `twinlog calibrate`."""

from collections.abc import Iterable, Sequence
from typing import Any

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.names import parse_flow, shown_bytes, who
from twinlog.cli.common.options import (
    argument,
    flag,
    flow_and_names,
    option,
    required_flow,
)
from twinlog.cli.common.pasteable import say, undo_command, undo_lines
from twinlog.cli.source.client import (
    PartitionOption,
    TopicOption,
    list_flows,
    parse_bytes,
    parse_scope,
    scope_name,
    scope_words,
)
from twinlog.errors import ConfigError

# `twinlog throttle`.

THROTTLE: Fields[pb2.Throttle] = table(
    Field("scope", lambda throttle: scope_name(throttle.scope)),
    "topic=scope.source_topic? bytes_per_second by? since",
)


@command
def throttle_command(
    call: Call,
    words: list[str] | None = argument(
        "[A->B] [RATE]",
        "The flow, all when left out; and the bytes per second: 500k, 20M, 1G; none = no limit. Without RATE:"
        " show the limits in force.",
        None,
    ),
    topic: TopicOption = "",
) -> None:
    """Limit the bytes per second of a flow or a topic, from now on and across restarts.

    Without RATE the command changes nothing and lists the limits in force.
    """
    named, wanted = _named(words)
    if wanted is None:
        found = call.ask(lambda at: _throttles(at, named))
        _tell(
            call, THROTTLE, [each for each in found if topic in ("", each.scope.source_topic)], "limited", []
        )
        return
    scope = parse_scope(required_flow(named), topic, None)
    bytes_per_second = parse_bytes(wanted, "RATE", "; a topic is named with --topic")
    request = pb2.SetThrottleRequest(scope=scope, bytes_per_second=bytes_per_second, by=who())

    async def limit(at: Services) -> tuple[list[pb2.Throttle], Iterable[pb2.Throttle]]:
        before = [each for each in await _throttles(at, None) if each.scope.flow == scope.flow]
        return before, (await at.source.SetThrottle(request)).throttles

    before, throttles = call.ask(limit)
    undo = undo_of_throttle(scope, before, bytes_per_second)
    _tell(call, THROTTLE, throttles, "limited" if bytes_per_second else "still limited", undo)


def _named(words: Sequence[str] | None) -> tuple[str | None, str | None]:
    """Flow and rate. Raises ConfigError."""
    flow, rates = flow_and_names(words)
    wrong = next((text for text in rates if text.startswith("--")), None)
    if wrong is not None:
        raise ConfigError(f"no such option: {wrong}", key=wrong)
    if len(rates) > 1:
        raise ConfigError(
            f"one rate is expected, not {', '.join(rates)}; a topic is named with --topic", key="RATE"
        )
    return flow, rates[0] if rates else None


async def _throttles(at: Services, flow: str | None) -> list[pb2.Throttle]:
    return [throttle for status in await list_flows(at.source, flow) for throttle in status.throttles]


def undo_of_throttle(scope: pb2.Scope, before: Iterable[pb2.Throttle], now: int) -> list[str]:
    """The limit that was in force, or none; nothing if it is the same."""
    was = next((each.bytes_per_second for each in before if each.scope == scope), 0)
    if was == now:
        return []
    flow, *rest = scope_words(scope)
    return [undo_command("throttle", flow, str(was or "none"), *rest)]


def _tell(call: Call, fields: Fields[Any], found: Iterable[Any], what: str, undo: Sequence[str]) -> None:
    """`what` holds: `limited`, `still paused`."""
    words: Any = _limit_words if fields is THROTTLE else _pause_words
    lines = [f"{what}: {words(each)}" for each in found] or [f"nothing is {what.removeprefix('still ')} now"]
    text = "\n".join([*lines, *undo_lines(undo)])
    call.tell([as_json(fields, each) for each in found], lambda: typer.echo(text))


def _limit_words(throttle: pb2.Throttle) -> str:
    known = f", by {throttle.by} since {throttle.since.ToJsonString()}" if throttle.by else ""
    return f"{scope_name(throttle.scope)} to {shown_bytes(throttle.bytes_per_second)}/s{known}"


PAUSE: Fields[pb2.Pause] = table(
    Field("scope", lambda pause: scope_name(pause.scope)),
    "topic=scope.source_topic? partition=scope.partition by since",
)


@command
def pause_command(
    call: Call,
    flow: str | None = argument("[A->B]", "The flow. Without it: list what is paused.", None),
    topic: TopicOption = "",
    partition: PartitionOption = None,
) -> None:
    """Stop copying a flow, a topic or a partition within a second, until `twinlog resume`.

    A pause survives restarts; everything else is still copied. Without a flow the command changes nothing and
    lists what is paused, by whom and since when.
    """
    named = flow
    if named is None and (topic or partition is not None):
        raise ConfigError("--topic needs the flow, such as 'A->B'", key="--topic")
    if named is None:
        _tell(call, PAUSE, call.ask(_pauses), "paused", [])
        return
    scope = parse_scope(named, topic, partition)
    request = pb2.PauseReplicationRequest(scope=scope, by=who())
    pauses = call.ask(lambda at: at.source.PauseReplication(request)).pauses
    _tell(call, PAUSE, pauses, "paused", [undo_command("resume", *scope_words(scope))])


@command
def resume_command(
    call: Call,
    flow: str | None = argument("[A->B]", "The flow, such as 'A->B'.", None),
    topic: TopicOption = "",
    partition: PartitionOption = None,
    everything: bool = flag("--all", "End every pause of the flow, of its topics and of its partitions."),
) -> None:
    """End a pause: name exactly what was paused, or give --all. The command prints what is still paused."""
    if everything and (topic or partition is not None):
        raise ConfigError("--all ends every pause of the flow: omit --topic and --partition", key="--all")
    scope = parse_scope(required_flow(flow), topic, partition)
    request = pb2.ResumeReplicationRequest(scope=scope, by=who(), all=everything)

    async def resume(at: Services) -> tuple[list[pb2.Pause], Iterable[pb2.Pause]]:
        before = [pause for pause in await _pauses(at) if pause.scope.flow == scope.flow]
        return before, (await at.source.ResumeReplication(request)).pauses

    before, pauses = call.ask(resume)
    _tell(call, PAUSE, pauses, "still paused", undo_of_resume(before, pauses))


async def _pauses(at: Services) -> list[pb2.Pause]:
    return [pause for flow in await list_flows(at.source, None) for pause in flow.pauses]


def undo_of_resume(before: Iterable[pb2.Pause], after: Iterable[pb2.Pause]) -> list[str]:
    """A command for each pause that was ended."""
    left = [pause.scope for pause in after]
    return [undo_command("pause", *scope_words(pause.scope)) for pause in before if pause.scope not in left]


def _pause_words(pause: pb2.Pause) -> str:
    return f"{scope_name(pause.scope)}, by {pause.by} since {pause.since.ToJsonString()}"


# `twinlog calibrate`: how fast a flow's way and target are, and with how many slots it uses that.

_LONGER_SECONDS = 60.0
"""Beside the time in which it writes: connections, and a topic that is created and deleted."""

SPEED: Fields[pb2.TargetSpeed] = table(
    "slots|slots>",
    Field("bytes_per_second", "bytes_per_second", "MB/s", right=True, text=lambda each: _rate(each)),
)


@command
def calibrate_command(
    call: Call,
    flow: str = argument("A->B", "The flow."),
    seconds: int = option("--seconds N", "How long it writes at most.", 60, min=1, max=300),
    most: str = option("--most BYTES", "How much it writes at most: 200M, 1G.", "1G"),
    dry_run: bool = flag("--dry-run", "Only say what it would do."),
    yes: bool = flag("--yes -y", "Do not ask."),
) -> None:
    """Measure the way to both clusters and how fast the target takes records; print the setting to use.

    The flow's owner writes to a topic of its own on the target, as fast as it can, and deletes it; what is
    copied meanwhile shares the way. It asks first; without a terminal it needs --yes.
    """
    request = pb2.CalibrateRequest(flow=parse_flow(flow), seconds=seconds, dry_run=True)
    request.most_bytes = parse_bytes(most, "--most")
    if not dry_run and not yes:
        require_terminal()
    planned = call.ask(lambda at: at.source.Calibrate(request))
    words = (
        f"write at most {planned.most_bytes / 1e6:,.0f} MB in {planned.seconds} s to a new topic of"
        f" {request.flow.target} (mm2-calibration.*.internal), and delete it"
    )
    if dry_run:
        would = {"applied": False, "most_bytes": planned.most_bytes, "seconds": planned.seconds}
        call.tell(would, lambda: say(f"would {words}"))
        return
    if not yes:
        typer.confirm(f"For {flow}, {words}?", abort=True, err=True)
    request.dry_run = False
    found = call.ask(lambda at: at.source.Calibrate(request, timeout=seconds + _LONGER_SECONDS))
    found_best = (each for each in found.speeds if each.slots == found.max_slots)
    best = next(found_best, pb2.TargetSpeed(slots=1))
    setting = f"{flow}.twinlog.max.slots = {best.slots}"
    reached = f"{_rate(best)} MB/s of records that do not compress"
    document = {
        "applied": True,
        "source_round_trip_ms": round(found.source_round_trip_ms, 1),
        "target_round_trip_ms": round(found.target_round_trip_ms, 1),
        "speeds": [as_json(SPEED, each) for each in found.speeds],
        "setting": setting,
        "bytes_per_second": best.bytes_per_second,
    }

    def text() -> None:
        ways = ((request.flow.source, "source"), (request.flow.target, "target"))
        trips = ", ".join(f"{alias} {document[f'{end}_round_trip_ms']} ms" for alias, end in ways)
        say(f"round trip: {trips}")
        print_rows(SPEED, found.speeds)
        say(f"{setting}    # the target takes {reached}")

    call.tell(document, text)


def _rate(speed: pb2.TargetSpeed) -> str:
    return f"{speed.bytes_per_second / 1e6:,.1f}"
