"""`twinlog calibrate`: how fast a flow's way and target are, and with how many slots it uses that."""

import typer

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.failures import require_terminal
from twinlog.cli.common.fields import Field, Fields, as_json, table
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.options import argument, flag, option
from twinlog.cli.common.output import print_rows
from twinlog.cli.common.pasteable import say
from twinlog.cli.source.client import parse_bytes

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
    request.most_bytes = parse_bytes(most)
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
