"""`twinlog verify A->B`: whether the copies of a flow equal their source."""

from pathlib import Path

import typer

from twinlog.cli.common.call import Call, reading_clusters
from twinlog.cli.common.names import flow_of
from twinlog.cli.common.options import OptionalFlowArgument, flag, flow_of_file, option
from twinlog.cli.common.output import print_json
from twinlog.cli.common.times import EXPECTED, MOST_PARTITION, MOST_SECONDS
from twinlog.cli.verify.engine import engine, verified
from twinlog.cli.verify.files import check_writable, tell
from twinlog.cli.verify.options import (
    HtmlOption,
    IsolationOption,
    ReportOption,
    bytes_of,
    check_range,
    instant_of,
    reads_committed,
)
from twinlog.cli.verify.progress import shown_progress


@reading_clusters
def verify_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    topic: list[str] | None = option(
        "--topic --topics TOPIC", "Only this source topic. May be repeated.", None
    ),
    partition: list[int] | None = option(
        "--partition --partitions N", "Only this partition. May be repeated.", None, min=0, max=MOST_PARTITION
    ),
    begin: str | None = option(
        "--from TIME|OFFSET", f"Begin at this time ({EXPECTED}) or offset of the source.", None
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

    Examples:

    twinlog verify 'A->B' --config mm2.properties

    twinlog verify 'A->B' --config mm2.properties --topic orders --partition 3 --show

    twinlog verify 'A->B' --config mm2.properties --from -1d --report proof.json --html proof.html
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
        from twinlog.verify.page import report_schema

        print_json(report_schema())
        raise typer.Exit
