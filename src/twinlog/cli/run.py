"""`twinlog run`: all four services of a properties file as children of one process."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from twinlog.cli.common.failures import reported_failures
from twinlog.cli.common.location import note_file

if TYPE_CHECKING:
    from twinlog.supervisor.plan import RunRequest

_HELP = """Run the services of a properties file in the foreground, as MirrorMaker 2's dedicated mode does.

Prints one line on stdout that begins with `ready:` once all services serve; logs go to stderr. A service \
that dies is restarted; the others continue. SIGTERM or Ctrl-C stops all services cleanly, a second one \
kills them.

With port 0 in `twinlog.<service>.listen` the service takes a free port; the ready line shows it.

Exit codes: 0 stopped cleanly; 1 a service had to be killed or failed while stopping; 2 wrong configuration \
(the message names file, line and key): nothing was started, or a service refused it.
"""


def run_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A MirrorMaker 2 properties file.", callback=note_file)
    ],
    flows: Annotated[
        str, typer.Option(metavar="A->B,…", help="Only these flows; default: all flows of the file.")
    ] = "",
    clusters: Annotated[
        str, typer.Option(metavar="B,…", help="Only flows whose target is one of these aliases.")
    ] = "",
    service: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this service. May be repeated.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A property that wins over the file. May be repeated."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="An unknown key is an error.")] = False,
    log_format: Annotated[
        str | None,
        typer.Option(metavar="auto|json|console", help="auto = readable on a terminal, else JSON."),
    ] = None,
) -> None:
    from twinlog.supervisor.plan import RunRequest

    run_file(
        RunRequest(
            config=file,
            flows=_names(flows),
            clusters=_names(clusters),
            services=tuple(service or ()),
            overrides=tuple(set_ or ()),
            strict=strict,
            log_format=log_format,
        )
    )


run_command.__doc__ = _HELP


def run_file(request: "RunRequest") -> NoReturn:
    """Run the services until a signal, and exit."""
    from twinlog.service.signals import exit_on_signals

    # Until the services are started, there is nothing that would have to be stopped in order.
    with reported_failures(), exit_on_signals():
        from twinlog.supervisor.main import run

        exit_code = run(request)
    sys.exit(exit_code)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
