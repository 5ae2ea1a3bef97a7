"""`twinlog preflight FILE`: checks everything that can be checked before the start."""

from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.fields import Fields, as_json, table
from twinlog.cli.common.location import FileArgument, load_config
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.common.times import CLOCK, MOST_SECONDS, counted
from twinlog.cli.verify.engine import engine
from twinlog.errors import TwinlogError
from twinlog.printable import printable
from twinlog.transforms.expressions import expressions_of

if TYPE_CHECKING:
    from twinlog.config import Configuration
    from twinlog.preflight.facts import Facts, Finding, FlowFacts


_FINDING: Fields["Finding"] = table("level about check message remedy")
_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "error": typer.colors.RED}


@printing
def preflight_command(
    call: Call,
    file: FileArgument,
    strict: bool = flag("--strict", "Warnings count as errors, unknown keys too."),
    quiet: bool = flag("--quiet -q", "Show problems only."),
    acls: bool = flag("--acls", "Only print the commands that grant all rights the flows need."),
    timeout: float = option(
        "--timeout SECONDS", "How long a cluster may take to answer.", 10.0, min=1.0, max=MOST_SECONDS
    ),
) -> None:
    """Check a properties file against its clusters before anything is started; nothing is changed.

    It checks keys, reachability and versions, cluster ids, rights on both sides (with the commands that
    grant missing ones), replication factors and in-sync replicas, message sizes, timestamp limits, name
    collisions, loops over several flows, expressions of `twinlog.transform` (where Spark is installed), and
    which offsets new copies will have. TWINLOG_CONFIG has no effect: name the file.

    The file is read as `twinlog run` reads it; with --strict an unknown key is an error, as for `twinlog run
    --strict`. Exit codes: 0 the services can start; 1 there is an error (with --strict also for warnings); 2
    the file itself is wrong.
    """
    from twinlog.preflight.checks import judge
    from twinlog.preflight.facts import Level
    from twinlog.preflight.gather import gather_facts
    from twinlog.preflight.report import needed_acl_commands, needed_acls

    configuration = load_config(file, strict=strict)
    if acls:
        call.tell(
            [asdict(each) for each in needed_acls(configuration)],
            lambda: typer.echo("\n".join(needed_acl_commands(configuration))),
        )
        return

    async def facts() -> "Facts":
        found = await gather_facts(configuration, timeout_seconds=timeout)
        flows = [replace(each, transform=await transform_facts(configuration, each)) for each in found.flows]
        return replace(found, flows=flows)

    findings = judge(call.run(facts()))
    shown = [finding for finding in findings if not (quiet and finding.level is Level.OK)]
    failing = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    fails = any(finding.level in failing for finding in findings)

    def text() -> None:
        for finding in shown:
            typer.secho(f"{finding.level.value:8}", fg=_COLOURS[finding.level.value], nl=False)
            say(printable(f"{finding.about}: {finding.check}: {finding.message}"))
            if finding.remedy:
                say(printable(f"        {finding.remedy}"))
        errors = sum(finding.level is Level.ERROR for finding in findings)
        warnings = sum(finding.level is Level.WARNING for finding in findings)
        typer.echo(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")

    call.tell([as_json(_FINDING, finding) for finding in shown], text, fails=fails)


async def transform_facts(configuration: "Configuration", flow: "FlowFacts") -> "TwinlogError | bool":
    """What Spark says of the flow's expressions, as in the facts: where there is no Spark, nothing."""
    expressions = expressions_of(flow.config.policy_config)
    if expressions is None or find_spec("pyspark") is None:
        return False
    try:
        async with engine("pipeline.runner").own_spark(configuration.spark.conf, CLOCK.get()) as spark:
            await spark.check_expressions(flow.flow, expressions)
    except TwinlogError as error:
        return error
    return True
