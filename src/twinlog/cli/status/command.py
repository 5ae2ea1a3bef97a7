"""`twinlog status`: all services, flows and clusters at a glance."""

import typer

from twinlog.cli.common.call import Call, command
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with
from twinlog.cli.common.fields import print_rows
from twinlog.cli.common.names import MOST_SECONDS
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.status import view
from twinlog.cli.status.rows import Status
from twinlog.cli.status.watch import refuse_pipe, watch_status
from twinlog.cli.verdict.issues import Verdict
from twinlog.cli.verdict.verdict import standing_by, verdict_of

EXIT_WAITS = 3
_COLOURS = {"bad": typer.colors.RED, "warn": typer.colors.YELLOW}


@command
def status_command(
    call: Call,
    check: bool = flag("--check", "Only say whether everything moves, by the exit code and in words."),
    strict: bool = flag("--strict", "With --check: warnings count as problems."),
    verbose: bool = flag("--verbose -v", "Also what the services said themselves."),
    watch: bool = flag("--watch", "On the whole screen, again every two seconds, until Ctrl-C."),
    timeout: float = option(
        "--timeout SECONDS", "How long each service may take to answer.", 5.0, min=0.1, max=MOST_SECONDS
    ),
) -> None:
    """Show every service, flow and cluster as they are now.

    The addresses of the services come from --config or the variable TWINLOG_CONFIG, otherwise the default
    ports of this machine are used; --endpoint sets one directly. `?` means not known now, `-` means not
    reported.

    Exit codes: 0 all services serve; 1 a service does not; 2 wrong usage.

    The last line is the verdict, and the first one where something is wrong: problems (somebody has to act)
    and warnings (it may end by itself, or somebody ordered it), each counted once, at its cause.

    --check is a probe for monitoring: it prints a line for each problem and for all that keeps records from
    moving. It exits with 0 if there is none, with 1 if there is one or the state is not known, with 2 for
    wrong usage, with 3 if a flow only needs time to start. These are pauses, waiting topics, partitions that
    are not RUNNING or have no leader, groups that cannot be read, missing heartbeats, clusters or services
    that do not answer, and losses, differences and foreign writes that nobody has acknowledged: `failover
    plan` says NO-GO for each of them. Lag, delays, limits, changed rules and a flow that another process
    copies are not. --strict adds the warnings.
    """

    async def asked() -> "Status":
        status = await call.status(timeout)
        status.asked_file = None if call.config is None else str(call.config.resolve())
        return status

    if watch:
        if check:
            raise typer.BadParameter("--check and --watch exclude each other")
        refuse_pipe(call.output)
        call.run(watch_status(asked, call.output))
        return
    status = call.run(asked())
    verdict = verdict_of(status)
    problems, waiting = verdict.failing, verdict.waiting
    if strict:
        problems = [each for each in verdict.pressing if not each.waits]
    fails = bool(problems) if check else not status.all_serving
    document = view.as_json(status)
    if check:
        document["check"] = view.check_as_json(problems, waiting, standing_by(status))

    def text() -> None:
        if check:
            warnings = verdict.line if verdict.counts else ""
            lines = view.check_lines([*problems, *waiting], standing_by(status), warnings, verbose=verbose)
            say("\n".join(lines))
        else:
            _print_tables(status, verdict, verbose=verbose)

    with exiting_with(EXIT_FAILED if fails else EXIT_WAITS if check and waiting else 0):
        call.tell(document, text)


def _print_tables(status: "Status", verdict: "Verdict", *, verbose: bool) -> None:

    for line in view.deployment(status):
        typer.echo(line)
    if verdict.counts:  # Where something is wrong, the tables may be longer than the screen.
        _print_verdict(verdict)
    for fields, rows in view.tables(status, verdict):
        if rows:
            print_rows(fields, rows)
    for issue in verdict.issues:
        for line in view.details(issue, verbose=verbose):
            say(line)
    _print_verdict(verdict)


def _print_verdict(verdict: "Verdict") -> None:
    typer.secho(verdict.line, fg=_COLOURS.get(verdict.level, typer.colors.GREEN))
