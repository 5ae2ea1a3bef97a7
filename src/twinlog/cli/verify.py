"""`twinlog verify A->B`: whether the copies of a flow equal their source."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinlog.cli.common.failures import reported_failures, run_async
from twinlog.cli.common.flow_choice import OptionalFlowArgument, OptionalFlowOption, required_flow
from twinlog.cli.common.location import ConfigOption, load_config
from twinlog.cli.common.output import Column, Output, OutputOption, print_json, print_table
from twinlog.cli.common.times import EXPECTED, parse_time
from twinlog.cli.verify_progress import shown_progress
from twinlog.cli.verifying import engine, verified
from twinlog.clock import SystemClock
from twinlog.errors import ConfigError
from twinlog.printable import printable

if TYPE_CHECKING:
    from twinlog.verify.report import FlowReport

_HELP = """Prove that the copies of a flow equal their source, or name what does not.

Both clusters are read, and nothing is written. No service has to run; they may. Of every partition the \
records of the copy are compared with those of the source, in order, up to the ends that are taken at the \
start: keys, values, headers, timestamps, null against empty, partition. Batches that were copied unopened \
are compared as bytes.

Differences are MISSING, DUPLICATE, FOREIGN, CHANGED and ORDER, each with both offsets. What cannot be \
compared is said with its reason: retention, known gaps, what is not copied yet. --show prints the records.

EQUAL means that what both clusters hold is equal. It does not mean that the target holds everything: what \
retention took there is no difference. `twinlog safe-to-delete` answers that. Once the copier has ended, \
--complete counts what the copy lacks at its end.

For a copy that MirrorMaker 2 made with its default isolation: --isolation read_uncommitted.

Exit codes: 0 equal; 1 different; 3 nothing differs, but not everything could be compared; 2 wrong use.

Examples:

twinlog verify 'A->B' --config mm2.properties

twinlog verify 'A->B' --config mm2.properties --topic orders --partition 3 --show

twinlog verify 'A->B' --config mm2.properties --from -1d --report proof.json --html proof.html
"""

_COLOURS = {"EQUAL": typer.colors.GREEN, "DIFFERENT": typer.colors.RED, "INCOMPLETE": typer.colors.YELLOW}
_MOST_ROWS = 200
_ISOLATIONS = {"read_committed": True, "read_uncommitted": False}
IsolationOption = Annotated[
    str | None,
    typer.Option(
        "--isolation",
        metavar="read_committed|read_uncommitted",
        help="What the copier saw of the source, when the file does not say it.",
    ),
]
_PARQUET = re.compile(r"_SUCCESS|\.?_SUCCESS\.crc|\.?part-.*\.parquet(\.crc)?")
"""What an earlier run has left in its directory."""
_SIZE = re.compile(r"(\d+)\s*([kKmMgG]?)")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def verify_command(
    flow: OptionalFlowArgument = None,
    config: ConfigOption = None,
    flow_option: OptionalFlowOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "--topics", metavar="TOPIC", help="Only this source topic. May be repeated."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "--partitions", min=0, help="Only this partition. May be repeated."),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME|OFFSET",
            help=f"Begin at this time ({EXPECTED}) or offset of the source.",
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME|OFFSET", help="End before this time or source offset.")
    ] = None,
    isolation: IsolationOption = None,
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds that the copy may take to arrive at the source's ends.")
    ] = 30.0,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete",
            help="The copier has ended: what the copy lacks at its end is MISSING, and no lag.",
        ),
    ] = False,
    max_bytes: Annotated[
        str,
        typer.Option(
            "--max-bytes-per-second",
            metavar="BYTES",
            help="Read no faster of each cluster (50M); 0 = no limit.",
        ),
    ] = "0",
    parallel: Annotated[
        int, typer.Option(min=1, max=256, help="Partitions that are compared at the same time.")
    ] = 8,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep what is proven there; continue behind it the next time."),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master",
            metavar="MASTER|none",
            help="Compare on Spark: local[*], spark://host:7077. Default: in this process, and with more than"
            " 20 million offsets on the twinlog.spark.master of the file; none = always in this process.",
        ),
    ] = None,
    part_offsets: Annotated[
        int, typer.Option(min=1_000, help="On Spark, cut partitions into tasks of about so many offsets.")
    ] = 2_000_000,
    parquet: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep a row for each part of a partition there, as Parquet; runs on Spark."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the records that differ, with keys and values.")
    ] = False,
    report_file: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report there too, as JSON.")
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with a picture of every partition."),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            callback=lambda asked: _print_schema(asked),
            help="Print the JSON schema of the report, and nothing else.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    from twinlog.verify.report import EXIT_CODES, Verdict, document

    incomplete = EXIT_CODES[Verdict.INCOMPLETE]
    with reported_failures(incomplete):
        if config is None:
            raise ConfigError("name the properties file with --config", metadata={"key": "--config"})
        request = engine("request").VerifyRequest(
            flow=flow_of(required_flow(flow, flow_option)),
            topics=frozenset(topic or ()),
            partitions=frozenset(partition or ()),
            begin=instant_of("--from", begin),
            end=instant_of("--to", end),
            read_committed=reads_committed(isolation),
            wait_seconds=wait,
            complete=complete,
            max_bytes_per_second=_bytes(max_bytes),
            parallel=parallel,
            state_directory=None if state is None else str(state),
            spark_master=spark_master,
            part_offsets=part_offsets,
            parquet_directory=None if parquet is None else str(parquet),
            show=show,
        )
        if parquet is not None and spark_master == "none":
            raise ConfigError(
                "--parquet needs Spark: leave out --spark-master none", metadata={"key": "--parquet"}
            )
        configuration = load_config(config)
        for file in (report_file, html_file):
            check_writable(file)
        _check_parquet(parquet)
        _check_range(request.begin, request.end)
    with shown_progress() as on_progress:
        report: FlowReport = run_async(verified(configuration, request, on_progress), incomplete)
    with reported_failures(incomplete):
        told = document(report)
        if output is Output.JSON:
            print_json(told)
        else:
            print_report(told)
        write_reports(told, report_file, html_file)
    raise typer.Exit(EXIT_CODES[report.verdict])


verify_command.__doc__ = _HELP


def _print_schema(asked: bool) -> None:
    if asked:
        from twinlog.verify.schema import report_schema

        print_json(report_schema())
        raise typer.Exit


def flow_of(text: str) -> Any:
    from twinlog.model import Flow

    try:
        return Flow.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), metadata={"key": "FLOW"}) from None


def instant_of(option: str, text: str | None) -> Any:
    """Raises ConfigError when it is neither an offset nor a time."""
    if text is None:
        return None
    instant = engine("request").Instant
    if text.isdecimal():
        return instant(offset=int(text))
    return instant(timestamp_ms=parse_time(text, now_ms=SystemClock().now_ms()))


def reads_committed(text: str | None) -> bool | None:
    """What `--isolation` says; None = what the file says. Raises ConfigError."""
    if text is None:
        return None
    try:
        return _ISOLATIONS[text]
    except KeyError:
        raise ConfigError(
            f"--isolation {text}: expected {' or '.join(_ISOLATIONS)}", metadata={"key": "--isolation"}
        ) from None


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"--max-bytes-per-second {text}: expected a number of bytes, such as 50M",
            metadata={"key": "--max-bytes-per-second"},
        )
    return int(match.group(1)) * _UNITS[match.group(2).lower()]


def check_writable(file: Path | None) -> None:
    """Before the hours that a verification may take. Raises ConfigError."""
    if file is None:
        return
    if not file.resolve().parent.is_dir():
        raise ConfigError(f"{file}: there is no such directory", metadata={"file": str(file)})
    was_there = file.exists()
    try:
        with file.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise _not_written(file, error) from error
    if not was_there:
        file.unlink(missing_ok=True)


def _check_parquet(directory: Path | None) -> None:
    """Spark replaces all that is in it."""
    if directory is None or not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"--parquet {directory}: not a directory", metadata={"key": "--parquet"})
    others = [each.name for each in directory.iterdir() if not _PARQUET.fullmatch(each.name)]
    if others:
        raise ConfigError(
            f"--parquet {directory}: it holds {min(others)}, and all that is in it would be deleted: name"
            " a new directory, or that of an earlier run",
            metadata={"key": "--parquet"},
        )


def _check_range(begin: Any, end: Any) -> None:
    """Of two offsets, or of two times; an offset and a time are compared by the source only."""
    for of in ("offset", "timestamp_ms"):
        first, behind = getattr(begin, of, None), getattr(end, of, None)
        if first is not None and behind is not None and first >= behind:
            raise ConfigError("--from has to lie before --to", metadata={"key": "--from"})


def write_reports(told: dict[str, Any], report_file: Path | None, html_file: Path | None) -> None:
    """After the report was printed: a full disk must not take the result of hours. Raises ConfigError."""
    if report_file is not None:
        _write(report_file, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    if html_file is not None:
        from twinlog.verify.page import page

        _write(html_file, page(told))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_written(file, error) from error


def _not_written(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", metadata={"file": str(file)})


def print_report(told: dict[str, Any]) -> None:
    print_table(
        f"flow {told['flow']}",
        [
            Column(title="topic"),
            Column(title="partition", right=True),
            Column(title="verdict"),
            Column(title="source offsets", spare=2),
            Column(title="records", right=True),
            Column(title="unopened", right=True, spare=3),
            Column(title="differences", right=True),
        ],
        [_partition_row(told, each) for each in told["partitions"]],
        empty="no partition was compared",
    )
    if told["differences"]:
        shown = told["differences"][:_MOST_ROWS]
        print_table(
            "differences",
            [
                Column(title="topic"),
                Column(title="partition", right=True),
                Column(title="kind"),
                Column(title="source offset", right=True),
                Column(title="target offset", right=True),
                Column(title="records", right=True),
                Column(title="what"),
            ],
            [_difference_row(each) for each in shown],
        )
        if len(shown) < len(told["differences"]):
            typer.echo(f"… and {len(told['differences']) - len(shown)} more: -o json has them all")
        _print_records(shown)
    if told["not_compared"]:
        print_table(
            "not compared",
            [
                Column(title="topic"),
                Column(title="partition", right=True),
                Column(title="cluster"),
                Column(title="from", right=True),
                Column(title="to", right=True),
                Column(title="reason"),
                Column(title="detail", spare=1),
            ],
            [_not_compared_row(each) for each in told["not_compared"][:_MOST_ROWS]],
        )
    typer.secho(_summary(told), fg=_COLOURS[told["verdict"]], bold=True)


def _partition_row(told: dict[str, Any], each: dict[str, Any]) -> list[str]:
    count = sum(
        difference["count"]
        for difference in told["differences"]
        if (difference["topic"], difference["partition"]) == (each["topic"], each["partition"])
    )
    share = each["unopened_records"] / each["records"] if each["records"] else 0.0
    return [
        each["topic"],
        str(each["partition"]),
        each["verdict"],
        f"{each['source_from']}-{each['source_to']}",
        str(each["records"]),
        f"{share:.0%}",
        str(count),
    ]


def _offset(offset: int | None) -> str:
    return "end" if offset is None else str(offset)


def _difference_row(each: dict[str, Any]) -> list[str]:
    what = ", ".join(each.get("changed", ()))
    if "found_in" in each:
        what = f"it is in {each['found_in']}"
    elif each["kind"] == "FOREIGN" and "written_by" in each:
        what = f"written by producer id {each['written_by']['producer_id']}"
    return [
        each["topic"],
        str(each["partition"]),
        each["kind"],
        _offset(each["source_offset"]),
        _offset(each["target_offset"]),
        str(each["count"]),
        what,
    ]


def _not_compared_row(each: dict[str, Any]) -> list[str]:
    return ["" if each[name] is None else str(each[name]) for name in _NOT_COMPARED_FIELDS]


_NOT_COMPARED_FIELDS = ("topic", "partition", "side", "from_offset", "to_offset", "reason", "detail")


def _print_records(differences: list[dict[str, Any]]) -> None:
    for each in differences:
        for side in ("source", "target"):
            record = each.get(f"{side}_record")
            if record is not None:
                text = json.dumps(record, ensure_ascii=False)
                typer.echo(printable(f"{each['topic']}-{each['partition']} {each['kind']} {side}: {text}"))


def _summary(told: dict[str, Any]) -> str:
    seconds = max(0.001, (told["ended_at_ms"] - told["began_at_ms"]) / 1000)
    kinds = ", ".join(f"{count} {kind}" for kind, count in told["differences_by_kind"].items())
    rate = told["bytes"] / 1e6 / seconds
    count = len(told["partitions"])
    partitions = "1 partition" if count == 1 else f"{count} partitions"
    text = f"{told['verdict']}: {told['records']} records equal in {partitions}"
    return f"{text}{'; ' + kinds if kinds else ''} ({seconds:.1f} s, {rate:.0f} MB/s)"
