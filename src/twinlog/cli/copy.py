"""`twinlog copy A->B --until …`: a finite copy, verified."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.location import load_config, required_config
from twinlog.cli.common.names import (
    CLOCK,
    EXPECTED,
    MOST_SECONDS,
    flow_of,
    offset_of,
    parse_time,
    partition_of,
    shortened,
)
from twinlog.cli.common.options import OnlyFlowArgument, flow_of_file, option
from twinlog.cli.verify.options import HtmlOption, ReportOption, engine, verified
from twinlog.cli.verify.progress import shown_copy
from twinlog.cli.verify.tables import check_writable, tell
from twinlog.errors import ConfigError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.verify.report import FlowFailure, FlowReport

_OFFSET = re.compile(r"(?P<topic>[^:=,]+):(?P<partition>\d+)=(?P<offset>\d+)")


@reading_clusters
def copy_command(
    call: Call,
    flow: OnlyFlowArgument = None,
    until: str = option("--until now|TIME|OFFSETS", f"A time ({EXPECTED}), or TOPIC:PARTITION=OFFSET,…"),
    topic: list[str] | None = option(
        "--topic TOPIC", "Only this topic, by its name on either side. May be repeated.", None
    ),
    timeout: float = option(
        "--timeout SECONDS",
        "After how long the command ends in any case; 0 = no limit.",
        0.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    report_file: ReportOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Copy a flow up to now, a time or offsets of the source, verify the copy, and exit.

    Runs the configsync and the source service of the properties file for this one flow. If another process
    copies it, they stand by, and the copy is verified when that one is past the end. An earlier copy
    continues at its position and ends exactly where --until says. The command does not wait for
    twinlog.delay.seconds.

    --until TIME ends before the first record of that time or later, in each partition. --until
    TOPIC:PARTITION=OFFSET,… copies only these partitions, up to the offset, exclusive. Consumer groups are
    not translated: run the services afterwards.

    Exit codes: 0 everything is copied, and EQUAL; 1 the copy is different; 3 not everything was copied or
    could be compared; 2 wrong usage.
    """
    config = required_config(call.config)
    name = flow_of_file(flow, call.configuration)
    where = until_of(until)
    for file in (report_file, html_file):
        check_writable(file)
    report = call.run(_reported(config, name, topic or [], where, timeout))
    tell(report, call, report_file, html_file)


async def _reported(config: Path, name: str, topics: list[str], until: Any, timeout: float) -> "FlowReport":
    """Copy, and report the result, also of a failure. Raises ConfigError."""
    began_at_ms = CLOCK.get().now_ms()
    try:
        found = await _copied(config, flow_of(name), topics, until, timeout)
    except ConfigError:
        raise
    except TwinlogError as error:
        found = [FlowFailure(reason=error.reason, detail=str(error))]
    if not isinstance(found, list):
        return found
    now_ms = CLOCK.get().now_ms()
    return FlowReport(
        flow=flow_of(name), began_at_ms=began_at_ms, ended_at_ms=now_ms, proofs=(), failures=found
    )


async def _copied(
    config: Path, flow: Flow, topics: list[str], until: Any, timeout: float
) -> "FlowReport | list[FlowFailure]":
    """What kept everything from being copied, if nothing is left to compare."""
    from twinlog.cli.copying import Arrivals, FiniteCopy

    configuration = load_config(config)
    ends = await engine("verify.ends").find_ends(configuration, flow, topics, until)
    arrivals = Arrivals(starts=ends.starts, ends=ends.to_copy, without_copy=ends.without_copy)
    if ends.to_copy:
        async with engine("verify.ends").watched_topics(configuration, flow, ends) as gone:
            with shown_copy() as on_progress:
                copy = FiniteCopy(
                    config=config,
                    flow=flow,
                    ends=ends.ends,
                    arrivals=arrivals,
                    gone=gone,
                    on_progress=on_progress,
                    timeout_seconds=timeout,
                )
                await copy.run()
            arrivals.gone |= await gone()
    left = {partition: end for partition, end in ends.ends.items() if partition.topic not in arrivals.gone}
    failures = [
        FlowFailure(topic=each, reason="TOPIC_UNKNOWN", detail=f"{each} was deleted while it was copied")
        for each in sorted(arrivals.gone)
    ]
    failures += [
        FlowFailure(topic=topic, reason=reason, detail=detail) for topic, reason, detail in arrivals.blockers
    ]
    if ends.ends and not left:
        return failures
    request = engine("verify.request").VerifyRequest(
        flow=flow,
        topics=frozenset(partition.topic for partition in left),
        ends=left,
        wait_seconds=0.0,
    )
    report = await verified(configuration, request)
    return replace(report, failures=[*report.failures, *failures])


def until_of(text: str) -> Any:
    """Raises ConfigError for anything else than `now`, a time or offsets."""
    until = engine("verify.ends").Until
    if text == "now":
        return until()
    pieces = [piece.strip() for piece in text.split(",")]
    found = [_OFFSET.fullmatch(piece) for piece in pieces]
    if all(found):
        named = [
            (
                TopicPartition(each["topic"], partition_of(each["partition"], "--until")),
                offset_of(each["offset"], "--until"),
            )
            for each in found
            if each is not None
        ]
        offsets = dict(named)
        if len(offsets) < len(named):
            raise ConfigError(f"--until {text}: a partition is named twice", key="--until")
        return until(offsets=offsets)
    try:
        return until(timestamp_ms=parse_time(text, now_ms=CLOCK.get().now_ms()))
    except ConfigError:
        raise ConfigError(
            f"--until {shortened(text)}: expected now, a time such as {EXPECTED}, or"
            " TOPIC:PARTITION=OFFSET,…",
            key="--until",
        ) from None
