"""`twinlog repair --from-report FILE --dry-run`: what can be done for each difference of a verification."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinlog.cli.common.failures import reported_failures
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.errors import ConfigError
from twinlog.printable import printable

if TYPE_CHECKING:
    from twinlog.verify.repair import Remedy

_HELP = """Say what can be done for the differences that `twinlog verify --report FILE` found, and why.

Nothing is changed, and no cluster is asked: the commands that are printed are for you to run. A log is \
only appended to, so records that are missing at the end of a copy can be copied again; most others take a \
new copy.

Exit codes: 0 there is a report, with or without differences; 2 wrong use, or no report.

Example: twinlog repair --from-report proof.json --dry-run
"""


def repair_command(
    report: Annotated[
        Path, typer.Option("--from-report", metavar="FILE", help="What `twinlog verify --report` wrote.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say it; needed, as nothing else is done yet.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    from twinlog.verify.repair import remedies

    with reported_failures():
        if not dry_run:
            raise ConfigError(
                "nothing is repaired by itself: add --dry-run to see what can be done",
                metadata={"key": "--dry-run"},
            )
        found = remedies(_read(report))
        if output is Output.JSON:
            print_json([_as_json(each) for each in found])
            return
        print_table(
            "",
            [
                Column(title="partition"),
                Column(title="records", right=True),
                Column(title="action"),
                Column(title="from", right=True),
                Column(title="why"),
            ],
            [_cells(each) for each in found],
            empty="nothing differs: there is nothing to repair",
        )
        for each in found:
            for command in each.commands:
                typer.echo(printable(command))


repair_command.__doc__ = _HELP


def _read(file: Path) -> Any:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from error
    if not isinstance(told, dict):
        raise ConfigError(f"{file}: this is no report of twinlog verify")
    return told


def _as_json(remedy: "Remedy") -> dict[str, Any]:
    return {
        "topic": remedy.topic,
        "partition": remedy.partition,
        "differences": remedy.differences,
        "action": str(remedy.action),
        "offset": remedy.offset,
        "why": remedy.why,
        "commands": list(remedy.commands),
    }


def _cells(remedy: "Remedy") -> list[str]:
    return [
        f"{remedy.topic}-{remedy.partition}",
        str(remedy.differences),
        str(remedy.action),
        "start" if remedy.offset is None else str(remedy.offset),
        remedy.why,
    ]
