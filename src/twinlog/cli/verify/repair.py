"""`twinlog repair --from-report FILE`: shows the remedies for the differences of a report, and applies
them."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from twinlog.cli.common.call import Call, command
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.pasteable import pasteable, with_pasteable
from twinlog.cli.common.private_file import read_file
from twinlog.cli.verify.repairing import Repaired, repair
from twinlog.errors import ConfigError
from twinlog.printable import printable
from twinlog.verify.repair import Remedy, remedies

_OPTION = "--from-report"


@command
def repair_command(
    call: Call,
    report: Path = option("--from-report FILE", "A report of `twinlog verify --report`."),
    dry_run: bool = flag("--dry-run", "Only show what would be done."),
    yes: bool = flag("--yes -y", "Do not ask."),
    new_copies: bool = flag("--new-copies", "Delete and recreate copies that cannot be repaired otherwise."),
) -> None:
    """Repair the differences in a report of `twinlog verify`, or explain why one cannot be repaired.

    Records that are missing at the end of a copy, or in a compacted copy, are copied again: the source
    service, which must be running, sets the position back. Other differences need a new copy, because
    records inside a log cannot be changed. --new-copies pauses the topic, DELETES the copy, creates it with
    the same settings, and copies the whole topic again, with the source's offsets where that is possible. A
    copy with records that the source no longer has is not changed. Without --new-copies the command prints
    what to run.

    --dry-run only shows what would be done, from the report alone. Otherwise the command asks first, unless
    --yes is given. Before it sets a position back, it pauses and verifies the partition again, since the
    report may be old.

    Exit codes: 0 everything is repaired (with --dry-run: the report was read); 1 something is not repaired;
    2 wrong usage, or no report.
    """
    told = _read(report)
    try:
        found = remedies(told)
    except ConfigError as error:
        raise ConfigError(f"{report}: {error}", key=_OPTION) from None
    if dry_run or not found:
        _show(found, (), call, flow=str(told.get("flow")))
        return
    if call.config is None:
        raise ConfigError(
            "name the properties file with --config, or add --dry-run to see what would be done",
            key="--config",
        )
    feasible = [each for each in found if each.offset is not None or (new_copies and not each.holds_older)]
    if feasible and not yes:
        _ask(feasible, call)

    done = call.run(repair(str(told["flow"]), found, call, new_copies=new_copies))
    _show(found, done, call, flow=str(told["flow"]))


def _ask(feasible: "Sequence[Remedy]", call: Call) -> None:
    """Raises ConfigError if stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise ConfigError(
            "positions would be set back, or topics deleted: add --yes to do it, or --dry-run to see what"
            " would be done",
            key="--yes",
        )
    if not call.in_json:
        _show(feasible, (), call, flow="")
    topics = sorted({each.target_topic for each in feasible if each.offset is None})
    count = len(feasible)
    text = f"Set {count} position{'' if count == 1 else 's'} back, and copy from there again?"
    if topics:
        text = (
            f"Delete {', '.join(topics)} on the target, create it again, and copy it from the start? {text}"
        )
    typer.confirm(text, abort=True, err=True)


def _show(found: "Sequence[Remedy]", done: "Sequence[Repaired]", call: Call, *, flow: str) -> None:
    outcomes = [as_json(_OUTCOME, each) for each in done] or [{} for _ in found]
    told = {id(remedy): _words(each) for remedy, each in zip(found, done, strict=False)}
    last: Field[Remedy] = Field(
        "", "why", "done" if done else "why", lambda remedy: told.get(id(remedy), remedy.why)
    )

    def text() -> None:
        print_rows((*_REMEDY, last), found, empty="nothing differs: there is nothing to repair")
        for line in next_steps(found, done, flow=flow):
            typer.echo(printable(line))

    documents = [as_json(_REMEDY, each) | outcome for each, outcome in zip(found, outcomes, strict=True)]
    call.tell(documents, text, fails=not all(each.applied for each in done))


def next_steps(found: "Sequence[Remedy]", done: "Sequence[Repaired]", *, flow: str) -> list[str]:
    """What is left to do, as commands. No deletion is proposed for a copy that may be equal by now, or that
    has records which the source no longer has."""
    left = [each for number, each in enumerate(found) if not done or not done[number].applied]
    outdated = {number for number, each in enumerate(done) if each.is_outdated}
    lines = [pasteable(f"twinlog verify '{flow}' --report FILE")] if outdated else []
    left = [
        each
        for each in left
        if not each.holds_older and not any(found[number] is each for number in outdated)
    ]
    if any(each.offset is None for each in left):
        lines.append(with_pasteable("`twinlog repair --from-report FILE --new-copies` does this; by hand:"))
    # All partitions of a topic are copied again together.
    return [*lines, *dict.fromkeys(pasteable(command) for each in left for command in each.commands)]


def _words(done: "Repaired") -> str:
    return "yes" if done.applied else f"{done.reason} {done.message}".strip()


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(read_file(file))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not JSON: {error}", key=_OPTION) from error
    if not isinstance(told, dict):
        raise ConfigError(f"{file}: it is not a report of twinlog verify", key=_OPTION)
    return told


_REMEDY: Fields["Remedy"] = table(
    "topic partition",
    Field("", column="partition", text=lambda remedy: f"{remedy.topic}-{remedy.partition}"),
    "differences|records> action|action",
    Field(
        "offset",
        column="from",
        text=lambda remedy: "start" if remedy.offset is None else str(remedy.offset),
        right=True,
    ),
    "why",
    Field("commands", lambda remedy: [pasteable(command) for command in remedy.commands]),
)
_OUTCOME: Fields["Repaired"] = table("applied reason message")
