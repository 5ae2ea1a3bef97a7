"""`twinlog safe-to-delete A->B --topic T`: up to which source offset everything is proven to be on the
target."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.fields import Field, Fields, as_json, print_json, print_rows, table
from twinlog.cli.common.names import EXAMPLES, MOST_PARTITION, MOST_SECONDS, flow_of
from twinlog.cli.common.options import OnlyFlowArgument, flag, flow_of_file, option
from twinlog.cli.common.pasteable import say
from twinlog.cli.verify.options import (
    HtmlOption,
    IsolationOption,
    ReportOption,
    bytes_of,
    check_range,
    engine,
    instant_of,
    reads_committed,
    verified,
)
from twinlog.cli.verify.progress import shown_progress
from twinlog.cli.verify.tables import check_writable, print_rules, tell
from twinlog.comparison.model import PartitionProof
from twinlog.config import Configuration
from twinlog.errors import ConfigError
from twinlog.model import Flow, TopicPartition
from twinlog.policy.transformed import TopicTransforms
from twinlog.verify.page import report_schema
from twinlog.verify.report import FlowFailure, FlowReport, SafeRange, rules_used, safe_ranges


@reading_clusters
def safe_to_delete_command(
    call: Call,
    flow: OnlyFlowArgument = None,
    topic: list[str] = option("--topic TOPIC", "A topic, by its name on either side. May be repeated."),
    before: str | None = option(
        "--before TIME|OFFSET",
        f"Only what is older than this time ({EXAMPLES}), or lies before this offset of the source.",
        None,
    ),
    wait: float = option(
        "--wait SECONDS",
        "How long to wait for the copy to reach that offset.",
        30.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    isolation: IsolationOption = None,
) -> None:
    """Verify topics, and show up to which source offset all records are on the target.

    The command verifies the topic from the beginning of its log; it does not rely on earlier verifications,
    because the target may have deleted records since. Records that retention removed from the copy, gaps and
    lag count as not on the target, and so do topics whose records transforms change or drop. The command
    deletes nothing. To delete: check that the copy keeps its records long enough, then run
    kafka-delete-records.sh with the offsets shown as `safe before`.

    Exit codes: 0 everything before --before, or everything there is, may be deleted on the source; 1 some of
    it may not; 2 wrong usage.
    """
    configuration = call.configuration
    request = engine("verify.request").VerifyRequest(
        flow=flow_of(flow_of_file(flow, configuration)),
        topics=frozenset(topic),
        end=instant_of("--before", before),
        wait_seconds=wait,
        read_committed=reads_committed(isolation),
    )
    report, found, told = call.run(found_safe(configuration, request))
    logs = {proof.log for proof in report.proofs}
    is_safe = not told and len(found) == len(logs) and all(each.is_whole for each in found)
    failures = [as_json(_PROBLEM, each) for each in told]
    document = {"flow": str(report.flow), "safe": is_safe, "at_ms": report.began_at_ms}
    document |= {"rules": rules_used(report), "partitions": [as_json(_RANGE, each) for each in found]}

    def text() -> None:
        print_rows(_RANGE, found, empty="no partition was compared")
        print_rules(rules_used(report))
        for failure in failures:
            say(f"{failure['topic'] or report.flow}: {failure['reason']} {failure['detail']}")

    call.tell({**document, "problems": failures}, text, fails=not is_safe)


async def found_safe(
    configuration: "Configuration", request: Any
) -> "tuple[FlowReport, list[SafeRange], list[FlowFailure]]":
    """The report, what of each partition may be deleted, and what could not be found out. Raises
    ConfigError."""
    report = await verified(configuration, request)
    told = [*report.failures]
    compacted = frozenset(proof.log.topic for proof in report.proofs if proof.target_compacted)
    whole: dict[TopicPartition, PartitionProof] | None = None
    if request.end is not None and compacted:
        later = await verified(configuration, replace(request, end=None, topics=compacted))
        told += later.failures
        whole = {proof.source: proof for proof in later.proofs}
    back: Sequence[PartitionProof] = ()
    if shared := frozenset(proof.target.topic for proof in report.proofs if proof.one_origin):
        # The source has copies of the target's own records, too, which the target may have deleted since.
        flow = Flow(report.flow.target, report.flow.source)
        with suppress(ConfigError):  # The file does not have it.
            of_back = replace(request, flow=flow, topics=shared, end=None, wait_seconds=0.0)
            other = await verified(configuration, of_back)
            told += other.failures
            back = other.proofs
    transforms = TopicTransforms(configuration.flow(report.flow).policy_config, report.flow.source)
    found = safe_ranges(report.proofs, whole, back=back, is_changed=transforms.changes_content)
    return report, found, told


_RANGE: Fields["SafeRange"] = table(
    "topic=source.topic partition=source.partition",
    Field("", "source", "partition", lambda each: str(each.source)),
    "source_begin=begin|source_begins> safe_until=until|safe_before> asked_until=end|requested>",
    "safe=is_whole",
    Field("reason", column="why not more", text=lambda each: f"{each.reason} {each.detail}".strip()),
    "detail",
)
_PROBLEM: Fields["FlowFailure"] = table("topic reason detail")


# `twinlog verify A->B`: whether the copies of a flow equal their source.


@reading_clusters
def verify_command(
    call: Call,
    flow: OnlyFlowArgument = None,
    topic: list[str] | None = option(
        "--topic TOPIC", "Only this topic, by its name on either side. May be repeated.", None
    ),
    partition: list[int] | None = option(
        "--partition N", "Only this partition. May be repeated.", None, min=0, max=MOST_PARTITION
    ),
    begin: str | None = option(
        "--from TIME|OFFSET", f"Begin at this time ({EXAMPLES}) or offset of the source.", None
    ),
    end: str | None = option("--to TIME|OFFSET", "End before this time or source offset.", None),
    isolation: IsolationOption = None,
    wait: float = option(
        "--wait SECONDS",
        "How long to wait for the copy to reach the source's ends.",
        30.0,
        min=0.0,
        max=MOST_SECONDS,
    ),
    complete: bool = flag(
        "--complete",
        "The replicator has stopped for good: records that the copy lacks at its end are MISSING.",
    ),
    max_bytes: str = option(
        "--max-bytes-per-second BYTES",
        "The limit for reading from each cluster, such as 50M; 0 = no limit.",
        "0",
    ),
    parallel: int = option(
        "--parallel N", "Partitions that are compared at the same time.", 8, min=1, max=256
    ),
    state: Path | None = option(
        "--state DIR", "Save the progress there; the next run continues from it.", None
    ),
    show: bool = flag("--show", "Print the records that differ, with keys and values."),
    report_file: ReportOption = None,
    html_file: HtmlOption = None,
    schema: bool = option(
        "--schema",
        "Only print the JSON schema of the report.",
        False,
        is_eager=True,
        callback=lambda asked: _print_schema(asked),
    ),
) -> None:
    """Compare the copies of a flow with their source, record by record, and list every difference.

    The command reads both clusters and writes nothing. The services may be stopped or running. It compares
    the records of each copy with those of its source, in order, up to the ends of the logs when the command
    started: keys, values (null and empty differ), headers, timestamps, partition. Batches that were copied
    without decompression are compared as bytes.

    Differences are MISSING, DUPLICATE, FOREIGN, CHANGED and ORDER, each with both offsets; --show prints the
    records. What could not be compared is listed with the reason: retention, known gaps, records not copied
    yet.

    EQUAL means that what both clusters hold is equal. It does not mean that the target holds everything:
    records that retention removed there are no difference; `twinlog safe-to-delete` counts them. After the
    replicator has stopped for good, --complete counts records that the copy lacks at its end as MISSING.

    For a copy that MirrorMaker 2 made with its default isolation: --isolation read_uncommitted.

    Exit codes: 0 equal; 1 different; 3 nothing differs, but not everything could be compared; 2 wrong usage.
    """
    configuration = call.configuration
    request = engine("verify.request").VerifyRequest(
        flow=flow_of(flow_of_file(flow, configuration)),
        topics=frozenset(topic or ()),
        partitions=frozenset(partition or ()),
        begin=instant_of("--from", begin),
        end=instant_of("--to", end),
        read_committed=reads_committed(isolation),
        wait_seconds=wait,
        complete=complete,
        max_bytes_per_second=bytes_of(max_bytes),
        parallel=parallel,
        state_directory=None if state is None else str(state),
        show=show,
    )
    for file in (report_file, html_file):
        check_writable(file)
    check_range(request.begin, request.end)
    with shown_progress() as on_progress:
        report = call.run(verified(configuration, request, on_progress))
    tell(report, call, report_file, html_file)


def _print_schema(asked: bool) -> None:
    if asked:
        print_json(report_schema())
        raise typer.Exit
