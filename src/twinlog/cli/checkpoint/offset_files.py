"""Reads and writes files of offsets of other programs: CSV, Spark's offset log, JSON. Pure.

- CSV: a line `topic,partition,offset`, with or without a header; a time (2026-01-31T12:00:00Z) may replace
  the offset. The output of `kafka-consumer-groups --export`, which may have a leading group column, is such a
  file.
- Spark: a file of `<checkpoint>/offsets/`: its version, a line of metadata, then one line for each source of
  the query: a JSON object for Kafka, something else for other sources, `-` for one without offsets yet. From
  version 2 on with the source's name in front (`0:{...}`).
- JSON: `{"topic": {"partition": offset}}`, as in Spark's `startingOffsets` and many tools.

Flink keeps its offsets in binary state. Its `scan.startup.specific-offsets`
(`partition:0,offset:42;partition:1,offset:300`) can be read when the topic is given.

Everything that is not an offset (headers, comments, empty lines, other sources, further columns) is written
unchanged.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from twinlog.cli.common.names import (
    MOST_OFFSET,
    MOST_PARTITION,
    offset_of,
    parse_time,
    partition_of,
    shortened,
    whole_number,
)
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

_FLINK = re.compile(r"\s*partition:(\d+),offset:(\d+)\s*")
_SPARK_VERSION = re.compile(r"v(\d+)")
_SPARK_NAMED = 2
"""The version of Spark's offset log from which on sources have names."""
_OFFSETS = f"an offset from 0 to {MOST_OFFSET}"
_NO_PARTITION = f"expected a partition from 0 to {MOST_PARTITION}"
_NO_OFFSET = {-1: "latest", -2: "earliest"}


class FileKind(Enum):
    CSV = "csv"
    SPARK = "spark"
    JSON = "json"
    FLINK = "flink"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlace:
    """A place in a partition: an offset or a time."""

    partition: TopicPartition
    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that could not be read."""

    line: int
    """From 1."""
    what: str


Render = Callable[[Sequence[WantedPlace]], str]
"""Returns the file's text with other places instead of its own, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFile:
    """The content of a file: its places, and the lines that cannot be read."""

    kind: FileKind
    places: Sequence[WantedPlace]
    bad: Sequence[BadLine]
    render: Render
    """Only for a file without bad lines."""


def parse_place(text: str, *, now_ms: int) -> WantedPlace:
    """Read `orders:3:1234`, `orders:3@2026-01-31T12:00:00Z` or `orders:3@-10m`. Raises ConfigError."""
    name, at, time = text.partition("@")
    if at:
        topic, _, number = name.rpartition(":")
        if topic and number.isdecimal():
            return WantedPlace(
                partition=TopicPartition(topic, partition_of(number, "OFFSET")),
                timestamp_ms=parse_time(time, now_ms=now_ms, option="OFFSET"),
            )
    else:
        head, _, offset = text.rpartition(":")
        topic, _, number = head.rpartition(":")
        if topic and number.isdecimal() and offset.isdecimal():
            return WantedPlace(
                partition=TopicPartition(topic, partition_of(number, "OFFSET")),
                offset=offset_of(offset, "OFFSET"),
            )
    raise ConfigError(
        f"{shortened(text)}: expected TOPIC:PARTITION:OFFSET such as orders:3:1234, or TOPIC:PARTITION@TIME"
        " such as orders:3@2026-01-31T12:00:00Z",
        key="OFFSET",
    )


def read_places(text: str, *, topic: str = "") -> OffsetFile:
    """Read all places of a file, in order; `topic` is for Flink's format. Bad lines are returned, not raised.

    Raises ConfigError for a file without any offsets, or without its topic.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    first = next((line.strip() for line in lines if line.strip()), "")
    if not first:
        raise ConfigError("the file is empty")
    spark = _SPARK_VERSION.fullmatch(first)
    if spark is not None:
        found = _spark(lines, named=int(spark[1]) >= _SPARK_NAMED)
    elif first.startswith("{"):
        found = _json_document("\n".join(lines))
    elif first.startswith("partition:"):
        found = _flink("\n".join(lines), topic)
    else:
        found = _csv(lines)
    if not found.places and not found.bad:
        raise ConfigError("the file has no Kafka offsets")
    return found


# ------------------------------------------------------------------------------------------------ Spark, JSON


def _spark(lines: list[str], *, named: bool) -> OffsetFile:
    """The lines after the version and the metadata. A line that is not an object of topics belongs to another
    source."""
    places: list[WantedPlace] = []
    bad: list[BadLine] = []
    of_kafka: dict[int, tuple[str, int]] = {}
    """By index of the line: the text before its offsets, and the number of its places."""
    seen = 0
    for index, line in enumerate(lines):
        seen += bool(line.strip())
        if seen <= 2 or not line.strip():
            continue
        name, colon, offsets = line.partition(":") if named else ("", "", line)
        if offsets.strip() == "-":
            continue
        document = _loaded(offsets, index + 1, bad)
        if isinstance(document, Mapping) and any(isinstance(each, Mapping) for each in document.values()):
            found = _places_of(document, index + 1, bad)
            of_kafka[index] = name + colon, len(found)
            places += found

    def render(answers: Sequence[WantedPlace]) -> str:
        left, written = list(answers), list(lines)
        for index, (before, count) in of_kafka.items():
            written[index] = before + _document(left[:count])
            del left[:count]
        return "\n".join(written)

    return OffsetFile(kind=FileKind.SPARK, places=places, bad=bad, render=render)


def _json_document(text: str) -> OffsetFile:
    bad: list[BadLine] = []
    document = _loaded(text, 1, bad)
    places = [] if bad else _places_of(document, 1, bad)
    return OffsetFile(
        kind=FileKind.JSON, places=places, bad=bad, render=lambda answers: _document(answers) + "\n"
    )


def _places_of(document: Any, line: int, bad: list[BadLine]) -> list[WantedPlace]:
    places: list[WantedPlace] = []
    for topic, partitions in document.items():
        if not isinstance(partitions, Mapping):
            bad.append(BadLine(line=line, what=f'expected {{"partition": offset}} for topic {topic!r}'))
            continue
        for number, offset in partitions.items():
            name, partition = f"{topic}-{number}", whole_number(str(number), MOST_PARTITION)
            whole = isinstance(offset, int) and not isinstance(offset, bool)
            if whole and offset in _NO_OFFSET:
                what = f"{name}: {offset} ({_NO_OFFSET[offset]}) names no record: leave the partition out"
                bad.append(BadLine(line=line, what=what))
            elif partition is None:
                bad.append(BadLine(line=line, what=f"{shortened(name)}: {_NO_PARTITION}"))
            elif not whole or not 0 <= offset <= MOST_OFFSET:
                bad.append(BadLine(line=line, what=f"{name}: {repr(offset)[:80]} is not {_OFFSETS}"))
            else:
                places.append(WantedPlace(partition=TopicPartition(topic, partition), offset=offset))
    return places


def _document(places: Sequence[WantedPlace]) -> str:
    by_topic: dict[str, dict[str, int | None]] = {}
    for place in places:
        by_topic.setdefault(place.partition.topic, {})[str(place.partition.partition)] = place.offset
    return json.dumps(by_topic, separators=(",", ":"), ensure_ascii=False)


def _loaded(text: str, line: int, bad: list[BadLine]) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        bad.append(BadLine(line=at, what=f"not JSON: {error.msg} at column {error.colno}"))
        return None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or deeply nested lists.
        bad.append(BadLine(line=line, what=f"not JSON of offsets: {error}"))
        return None


# ------------------------------------------------------------------------------------------------------ Flink


def _flink(text: str, topic: str) -> OffsetFile:
    if not topic:
        raise ConfigError("this format does not contain the topic: give it with --topic")
    places: list[WantedPlace] = []
    bad: list[BadLine] = []
    for number, line in enumerate(text.splitlines(), start=1):
        for part in filter(None, (piece.strip() for piece in line.split(";"))):
            match = _FLINK.fullmatch(part)
            partition = None if match is None else whole_number(match[1], MOST_PARTITION)
            offset = None if match is None else whole_number(match[2], MOST_OFFSET)
            if partition is None or offset is None:
                what = f"{shortened(part)}: expected partition:NUMBER,offset:NUMBER"
                bad.append(BadLine(line=number, what=what))
            else:
                places.append(WantedPlace(partition=TopicPartition(topic, partition), offset=offset))

    def render(answers: Sequence[WantedPlace]) -> str:
        parts = (f"partition:{place.partition.partition},offset:{place.offset}" for place in answers)
        return ";".join(parts) + "\n"

    return OffsetFile(kind=FileKind.FLINK, places=places, bad=bad, render=render)


# -------------------------------------------------------------------------------------------------------- CSV


def _csv(lines: list[str]) -> OffsetFile:
    places: list[WantedPlace] = []
    bad: list[BadLine] = []
    rows: dict[int, list[str]] = {}
    """By index of the line: the cells of lines with a place."""
    header_may_come = True
    for index, line in enumerate(lines):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error as error:
            bad.append(BadLine(line=index + 1, what=str(error)))
            continue
        if not any(cells) or cells[0].startswith("#"):
            continue
        if header_may_come and not any(cell.isdecimal() for cell in cells):
            header_may_come = False
            continue
        header_may_come = False
        place = _csv_place(cells, index + 1, bad)
        if place is not None:
            places.append(place)
            rows[index] = cells

    def render(answers: Sequence[WantedPlace]) -> str:
        written = list(lines)
        for (index, cells), place in zip(rows.items(), answers, strict=True):
            buffer = io.StringIO()
            row = [*cells[:-3], place.partition.topic, place.partition.partition, place.offset]
            csv.writer(buffer, lineterminator="").writerow(row)
            written[index] = buffer.getvalue()
        return "\n".join(written) + "\n"

    return OffsetFile(kind=FileKind.CSV, places=places, bad=bad, render=render)


def _csv_place(cells: list[str], line: int, bad: list[BadLine]) -> WantedPlace | None:
    if len(cells) not in (3, 4):
        bad.append(BadLine(line=line, what=f"{len(cells)} columns: expected topic,partition,offset"))
        return None
    topic, number, offset = cells[-3:]
    partition_number = whole_number(number, MOST_PARTITION)
    if not topic or partition_number is None:
        what = f"{shortened(topic)},{shortened(number)}: expected topic,partition,offset"
        bad.append(BadLine(line=line, what=what))
        return None
    partition = TopicPartition(topic, partition_number)
    found = whole_number(offset, MOST_OFFSET)
    if found is not None:
        return WantedPlace(partition=partition, offset=found)
    try:
        return WantedPlace(partition=partition, timestamp_ms=parse_time(offset, now_ms=None))
    except ConfigError:
        what = f"{partition}: {shortened(offset)} is neither {_OFFSETS} nor a time"
        bad.append(BadLine(line=line, what=what))
        return None
