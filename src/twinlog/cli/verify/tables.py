"""The report of a verification as tables."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from twinlog.cli.common.call import Call
from twinlog.cli.common.failures import exiting_with
from twinlog.cli.common.fields import Field, Fields, print_rows, table
from twinlog.cli.common.names import producer_words
from twinlog.cli.common.pasteable import say
from twinlog.errors import ConfigError
from twinlog.printable import printable
from twinlog.verify.page import page
from twinlog.verify.report import EXIT_CODES, FlowReport, document

_COLOURS = {"EQUAL": typer.colors.GREEN, "DIFFERENT": typer.colors.RED, "INCOMPLETE": typer.colors.YELLOW}
_WORST_FIRST = ("DIFFERENT", "INCOMPLETE", "EQUAL")
_MOST_ROWS = 200
_LOST = "LOST"


def print_report(told: dict[str, Any]) -> None:
    """The verdict first and last. A row for each topic; of one topic for each partition."""
    say(f"flow {told['flow']}: {told['verdict']}", fg=_COLOURS[told["verdict"]], bold=True)
    rows = [_partition_row(told, each) for each in told["partitions"]]
    if len({row["topic"] for row in rows}) > 1:
        rows = sorted(_by_topic(rows), key=lambda row: (_WORST_FIRST.index(row["verdict"]), row["topic"]))
    print_rows(_ROW, rows, empty="no partition was compared")
    if told["differences"]:
        shown = told["differences"][:_MOST_ROWS]
        print_rows(_DIFFERENCE, shown, title="differences")
        if len(shown) < len(told["differences"]):
            typer.echo(f"… and {len(told['differences']) - len(shown)} more: -o json has them all")
        _print_records(shown)
    if told["not_compared"]:
        print_rows(_NOT_COMPARED, told["not_compared"][:_MOST_ROWS], title="not compared")
    print_rules(told["rules"])
    say(_summary(told), fg=_COLOURS[told["verdict"]], bold=True)


def print_rules(rules: dict[str, Any] | None) -> None:
    """The rules that are not the file's: they have chosen the topics, too."""
    if rules is not None and rules["not_of_the_file"]:
        typer.echo(f"by version {rules['version']} of the rules:")
        for sentence in rules["not_of_the_file"]:
            say(printable(f"  {sentence}"))


_ROW: Fields[dict[str, Any]] = table(
    "=topic|topic =partitions|partitions> =verdict|verdict =offsets|source_offsets2",
    Field("", column="records", text=lambda row: f"{row['records']:,}", right=True),
    Field(
        *("", "", "unopened"),
        lambda row: f"{row['unopened_records'] / row['records'] if row['records'] else 0:.0%}",
        right=True,
        spare=3,
    ),
    Field("", column="differences", text=lambda row: f"{row['differences']:,}", right=True),
)
"""Of a partition, or of a topic with all of its partitions."""
_DIFFERENCE: Fields[dict[str, Any]] = table(
    "=topic|topic =partition|partition> =kind|kind",
    Field("", column="source offset", text=lambda each: _offset(each["source_offset"]), right=True),
    Field("", column="target offset", text=lambda each: _offset(each["target_offset"]), right=True),
    "=count|records>",
    Field("", column="what", text=lambda each: _what(each)),
)
_NOT_COMPARED: Fields[dict[str, Any]] = table(
    "=topic|topic",
    Field("", column="partition", text=lambda each: _or_empty(each["partition"]), right=True),
    "=side|cluster",
    Field("", column="from", text=lambda each: _or_empty(each["from_offset"]), right=True),
    Field("", column="to", text=lambda each: _or_empty(each["to_offset"]), right=True),
    "=reason|reason =detail|detail1",
)


def _or_empty(number: int | None) -> str:
    return "" if number is None else str(number)


def _by_topic(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for topic in dict.fromkeys(row["topic"] for row in rows):
        own = [row for row in rows if row["topic"] == topic]
        yield {
            "topic": topic,
            "partitions": f"{len(own):,}",
            "verdict": min((row["verdict"] for row in own), key=_WORST_FIRST.index),
            "offsets": own[0]["offsets"] if len(own) == 1 else "",
            **{name: sum(row[name] for row in own) for name in _SUMMED},
        }


_SUMMED = ("records", "unopened_records", "differences")


def _partition_row(told: dict[str, Any], each: dict[str, Any]) -> dict[str, Any]:
    count = sum(
        difference["count"]
        for difference in told["differences"]
        if (difference["topic"], difference["partition"]) == (each["topic"], each["partition"])
    )
    offsets = f"{each['source_from']}-{each['source_to']}"
    return {**each, "partitions": f"no. {each['partition']}", "offsets": offsets, "differences": count}


def _offset(offset: int | None) -> str:
    return "end" if offset is None else str(offset)


def _what(each: dict[str, Any]) -> str:
    if "found_in" in each:
        return f"it is in {each['found_in']}"
    if each["kind"] == "FOREIGN" and "written_by" in each:
        return f"written by {producer_words(each['written_by']['producer_id'])}"
    return ", ".join(each.get("changed", ()))


def _print_records(differences: list[dict[str, Any]]) -> None:
    for each in differences:
        for side in ("source", "target"):
            record = each.get(f"{side}_record")
            if record is not None:
                text = json.dumps(record, ensure_ascii=False)
                typer.echo(printable(f"{each['topic']}-{each['partition']} {each['kind']} {side}: {text}"))


def _summary(told: dict[str, Any]) -> str:
    seconds = max(0.001, (told["ended_at_ms"] - told["began_at_ms"]) / 1000)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in told["differences_by_kind"].items())
    rate = told["bytes"] / 1e6 / seconds
    count = len(told["partitions"])
    partitions = "1 partition" if count == 1 else f"{count} partitions"
    lost = sum(
        each["to_offset"] - each["from_offset"] for each in told["not_compared"] if each["reason"] == _LOST
    )
    text = f"{told['verdict']}: {told['records']:,} records equal in {partitions}"
    if lost:
        text += f"; up to {lost} source offsets are {_LOST}: `twinlog gaps {shlex.quote(told['flow'])} --all`"
    return f"{text}{'; ' + kinds if kinds else ''} ({seconds:.1f} s, {rate:.0f} MB/s)"


# The files of a verification: checked before it, which may take hours, and written after it.


def check_writable(file: Path | None) -> None:
    """Check before a verification that may take hours. Raises ConfigError."""
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


def write_reports(told: dict[str, Any], report_file: Path | None, html_file: Path | None) -> None:
    """Write after the report was printed, so that a full disk does not lose the result of hours; also if it
    could not be printed. Raises ConfigError."""
    if report_file is not None:
        _write(report_file, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    if html_file is not None:
        _write(html_file, page(told))


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_written(file, error) from error


def _not_written(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{file}: cannot be written: {error.strerror or error}", metadata={"file": str(file)})


# Prints a report, writes it to the named files, and exits with its verdict.


def tell(report: "FlowReport", call: Call, report_file: Path | None, html_file: Path | None) -> None:
    """The files are written, and the exit code is the verdict's, also if the reader of the output closes it
    before its end. Exits with 2 for a file that cannot be written."""
    told = document(report)
    with exiting_with(EXIT_CODES[report.verdict]):
        try:
            call.tell(told, lambda: print_report(told))
        finally:
            write_reports(told, report_file, html_file)
