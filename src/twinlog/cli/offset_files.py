"""Files of offsets that other programs keep, read and written: CSV, Spark's offset log, JSON. Pure.

- CSV: `topic,partition,offset` a line, with or without a header; a time (2026-01-31T12:00:00Z) may stand for
  the offset. What `kafka-consumer-groups --export` writes, with a leading group column too, is such a file.
- Spark: a file of `<checkpoint>/offsets/`: `v1`, a line of metadata, then one JSON object for each source.
- JSON: `{"topic": {"partition": offset}}`, as Spark's `startingOffsets` and many tools have it.

Flink keeps its offsets in binary state; what it takes as `scan.startup.specific-offsets`
(`partition:0,offset:42;partition:1,offset:300`) is read when the topic is named.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

_FLINK = re.compile(r"\s*partition:(\d+),offset:(\d+)\s*")
_SPARK_VERSION = re.compile(r"v\d+")


class FileKind(Enum):
    CSV = "csv"
    SPARK = "spark"
    JSON = "json"
    FLINK = "flink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a partition: an offset or a time."""

    partition: TopicPartition
    offset: int | None = None
    timestamp_ms: int | None = None


def parse_place(text: str) -> Place:
    """Read `orders:3:1234` or `orders:3@2026-01-31T12:00:00Z`. Raises ConfigError."""
    name, at, time = text.partition("@")
    if at:
        topic, _, number = name.rpartition(":")
        if topic and number.isdecimal():
            return Place(partition=TopicPartition(topic, int(number)), timestamp_ms=parse_time(time))
    else:
        head, _, offset = text.rpartition(":")
        topic, _, number = head.rpartition(":")
        if topic and number.isdecimal() and offset.isdecimal():
            return Place(partition=TopicPartition(topic, int(number)), offset=int(offset))
    raise ConfigError(
        f"{text!r}: expected TOPIC:PARTITION:OFFSET such as orders:3:1234, or TOPIC:PARTITION@TIME such as"
        " orders:3@2026-01-31T12:00:00Z",
        metadata={"key": "OFFSET"},
    )


def parse_time(text: str) -> int:
    """Milliseconds of an ISO 8601 time; one without a zone is UTC. Raises ConfigError."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(f"{text!r} is not a time: expected 2026-01-31T12:00:00Z") from None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def read_places(text: str, *, topic: str = "") -> tuple[FileKind, list[Place]]:
    """Everything in a file, in order; `topic` is for Flink's form. Raises ConfigError naming the line."""
    stripped = text.strip()
    if not stripped:
        raise ConfigError("the file is empty")
    if _SPARK_VERSION.fullmatch(stripped.splitlines()[0].strip()):
        return FileKind.SPARK, _spark(stripped)
    if stripped.startswith("{"):
        return FileKind.JSON, _places_of(_json(stripped, 1), 1)
    if stripped.startswith("partition:"):
        return FileKind.FLINK, _flink(stripped, topic)
    return FileKind.CSV, _csv(stripped)


def write_places(kind: FileKind, original: str, places: Sequence[Place]) -> str:
    """The same kind of file with these places in it; Spark's first two lines are kept."""
    if kind is FileKind.CSV:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["topic", "partition", "offset"])
        writer.writerows([place.partition.topic, place.partition.partition, place.offset] for place in places)
        return buffer.getvalue()
    if kind is FileKind.FLINK:
        return (
            ";".join(f"partition:{place.partition.partition},offset:{place.offset}" for place in places)
            + "\n"
        )
    by_topic: dict[str, dict[str, int | None]] = {}
    for place in places:
        by_topic.setdefault(place.partition.topic, {})[str(place.partition.partition)] = place.offset
    document = json.dumps(by_topic, separators=(",", ":"), sort_keys=True)
    if kind is FileKind.JSON:
        return document + "\n"
    return "\n".join([*original.strip().splitlines()[:2], document])


def _spark(text: str) -> list[Place]:
    """The lines after the version and the metadata; `-` stands for a source without offsets."""
    return [
        place
        for number, line in enumerate(text.splitlines(), start=1)
        if number > 2 and line.strip() not in ("", "-")
        for place in _places_of(_json(line, number), number)
    ]


def _places_of(document: Any, line: int) -> list[Place]:
    if not isinstance(document, Mapping):
        raise _wrong(line, 'expected {"topic": {"partition": offset}}')
    places: list[Place] = []
    for topic, partitions in document.items():
        if not isinstance(partitions, Mapping):
            raise _wrong(line, f'expected {{"partition": offset}} for topic {topic!r}')
        for number, offset in partitions.items():
            if not (str(number).isdecimal() and isinstance(offset, int) and offset >= 0):
                raise _wrong(line, f"{topic}-{number}: {offset!r} is no offset from 0 up")
            places.append(Place(partition=TopicPartition(topic, int(number)), offset=offset))
    return places


def _flink(text: str, topic: str) -> list[Place]:
    if not topic:
        raise ConfigError("offsets of this form do not name their topic: say it with --topic")
    places: list[Place] = []
    for part in filter(None, (piece.strip() for piece in text.replace("\n", ";").split(";"))):
        match = _FLINK.fullmatch(part)
        if match is None:
            raise ConfigError(f"{part!r}: expected partition:NUMBER,offset:NUMBER")
        places.append(Place(partition=TopicPartition(topic, int(match[1])), offset=int(match[2])))
    return places


def _csv(text: str) -> list[Place]:
    places: list[Place] = []
    for line, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (line == 1 and not any(cell.isdecimal() for cell in cells)):
            continue
        if len(cells) not in (3, 4) or not cells[-2].isdecimal():
            raise _wrong(line, "expected topic,partition,offset")
        partition = TopicPartition(cells[-3], int(cells[-2]))
        if cells[-1].isdecimal():
            places.append(Place(partition=partition, offset=int(cells[-1])))
        else:
            try:
                places.append(Place(partition=partition, timestamp_ms=parse_time(cells[-1])))
            except ConfigError as error:
                raise _wrong(line, str(error)) from None
    return places


def _json(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _wrong(line, f"not JSON: {error}") from None


def _wrong(line: int, what: str) -> ConfigError:
    return ConfigError(f"line {line}: {what}", metadata={"line": str(line)})
