"""What is looked at before the start. `twinlog preflight FILE`: checks everything that can be checked."""

from collections import Counter
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from twinlog.cli.common.call import Call, printing
from twinlog.cli.common.fields import Field, Fields, as_json, print_rows, table
from twinlog.cli.common.location import FileArgument, load_config
from twinlog.cli.common.names import CLOCK, MOST_SECONDS, counted
from twinlog.cli.common.options import flag, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.verify.options import engine
from twinlog.errors import TwinlogError
from twinlog.printable import printable
from twinlog.transforms.expressions import expressions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinlog.config import Configuration
    from twinlog.model import TopicPartition
    from twinlog.preflight.adoption import Adoption, Continuation
    from twinlog.preflight.facts import CheckedFlow, Facts, Finding


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
    which offsets new copies will have.

    The file is read as `twinlog run` reads it; with --strict an unknown key is an error, as for `twinlog run
    --strict`. Exit codes: 0 the services can start; 1 there is an error (with --strict also for warnings); 2
    the file itself is wrong.
    """
    from twinlog.preflight.checks import judge
    from twinlog.preflight.facts import Severity
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
    shown = [finding for finding in findings if not (quiet and finding.level is Severity.OK)]
    failing = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    fails = any(finding.level in failing for finding in findings)

    def text() -> None:
        for finding in shown:
            typer.secho(f"{finding.level.value:8}", fg=_COLOURS[finding.level.value], nl=False)
            say(printable(f"{finding.about}: {finding.check}: {finding.message}"))
            if finding.remedy:
                say(printable(f"        {finding.remedy}"))
        if any(finding.check == "rights" and " lacks " in finding.message for finding in shown):
            say("a right that is granted and still lacking is taken by a DENY: `kafka-acls.sh --list`")
        errors = sum(finding.level is Severity.ERROR for finding in findings)
        warnings = sum(finding.level is Severity.WARNING for finding in findings)
        typer.echo(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")

    call.tell([as_json(_FINDING, finding) for finding in shown], text, fails=fails)


async def transform_facts(configuration: "Configuration", flow: "CheckedFlow") -> "TwinlogError | bool":
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


# `twinlog adopt FILE`: whether Twinlog may take over from MirrorMaker 2 now, and where it will continue.


@printing
def adopt_command(
    call: Call,
    file: FileArgument,
    connect_group: str = option(
        "--connect-group GROUP",
        "The group.id of Connect workers that ran only MirrorMaker 2, such as Strimzi's.",
        "",
    ),
    look: float = option(
        "--look SECONDS",
        "How long to watch whether MirrorMaker 2 still writes.",
        5.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    timeout: float = option(
        "--timeout SECONDS", "How long a cluster may take to answer.", 10.0, min=1.0, max=MOST_SECONDS
    ),
) -> None:
    """Show where Twinlog would continue what MirrorMaker 2 copied, and whether it may start.

    The command changes nothing.

    For each flow: whether MirrorMaker 2 still runs, where each partition continues and how far it is behind,
    what Twinlog will do differently, and which partitions have a position but are not selected by the file.

    \b
    The answer is no (exit code 1) while
      - MirrorMaker 2's Connect group (A-mm2, or --connect-group) has members
      - heartbeats or positions of the flow are written while the command watches
      - Twinlog runs the flow already
      - positions are stored under another connector name or in another topic than
        the file says, so that everything would be copied again; for Kafka Connect
        set A->B.name and A->B.offsets.storage.topic

    Exit codes: 0 Twinlog may start: `twinlog run FILE`; 1 not now; 2 the file is wrong.
    """
    from twinlog.preflight.adoption import judge_adoption
    from twinlog.preflight.gather_adoption import gather_adoption

    patience = {"look_seconds": look, "timeout_seconds": timeout}
    facts = call.run(gather_adoption(load_config(file), connect_group=connect_group, **patience))
    found = [judge_adoption(each) for each in facts]
    documents = [as_json(_ADOPTION, adoption) for adoption in found]
    call.tell(documents, lambda: [*map(_print, found)], fails=any(each.refusals for each in found))


_TOPIC: Fields["Sequence[Continuation]"] = (
    Field("", column="topic", text=lambda found: found[0].partition.topic),
    Field("", column="copy", text=lambda found: found[0].target_topic),
    Field("", column="partitions", text=lambda found: str(len(found)), right=True),
    Field("", column="begin", text=lambda found: _begins(found)),
    Field("", column="behind", text=lambda found: _behind(found), right=True),
    Field("", column="lost", text=lambda found: str(sum(each.lost for each in found)), right=True),
    Field("", column="remark", text=lambda found: _remarks(found)),
)
_PARTITION: Fields["Continuation"] = table(
    "topic=partition.topic partition=partition.partition target_topic begins=start position lag lost remark",
)
_PLACE: Fields["TopicPartition"] = table("topic partition")
_ADOPTION: Fields["Adoption"] = table(
    Field("flow", lambda adoption: str(adoption.flow)),
    Field("may_begin", lambda adoption: not adoption.refusals),
    "refusals changes",
    Field("partitions", lambda adoption: [as_json(_PARTITION, each) for each in adoption.continuations]),
    Field("left_behind", lambda adoption: [as_json(_PLACE, each) for each in adoption.left_behind]),
)


def _print(adoption: "Adoption") -> None:
    by_topic: dict[str, list[Continuation]] = {}
    for each in adoption.continuations:
        by_topic.setdefault(each.partition.topic, []).append(each)
    print_rows(_TOPIC, by_topic.values(), title=f"{adoption.flow}", empty="no topic is selected")
    for topic, count in Counter(each.topic for each in adoption.left_behind).items():
        say(printable(f"not selected: {topic} has {count} positions, and stays as it is"))
    for change in adoption.changes:
        say(printable(f"from then on: {change}"))
    for refusal in adoption.refusals:
        say(printable(f"not now: {refusal}"), fg=typer.colors.RED)
    if not adoption.refusals:
        typer.secho(f"{adoption.flow}: Twinlog may begin", fg=typer.colors.GREEN)


def _begins(found: "Sequence[Continuation]") -> str:
    begins = Counter(each.start.value for each in found)
    return ", ".join(f"{start} {count}" if len(begins) > 1 else start for start, count in begins.items())


def _behind(found: "Sequence[Continuation]") -> str:
    lags = [each.lag for each in found if each.lag is not None]
    return str(sum(lags)) if len(lags) == len(found) else "?"


def _remarks(found: "Sequence[Continuation]") -> str:
    remarks = Counter(each.remark for each in found if each.remark)
    return "; ".join(f"{remark} ({count})" for remark, count in remarks.items())
