"""What a flow does to records by Spark: the keys `twinlog.transform.*`, as values. Pure; whether Spark
understands an expression is seen where Spark is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from twinlog.batches.bodies import OpenRecord, encode_field, headers_of
from twinlog.errors import ConfigError
from twinlog.filters import PatternList
from twinlog.model import ClusterAlias, TopicPartition

PREFIX = "twinlog.transform."
TOPICS = f"{PREFIX}topics"
WHERE = f"{PREFIX}where"
PYTHON = f"{PREFIX}python"
ON_ERROR = f"{PREFIX}on.error"
TIMEOUT = f"{PREFIX}timeout.seconds"
DEAD_LETTERS = "twinlog.dead.letter.topic"
PROVENANCE = "twinlog.provenance.headers"
ORIGIN_HEADER = b"twinlog.origin"
"""Of a copy that says where it comes from: `<cluster>/<topic>/<partition>/<offset>/<timestamp in ms>`."""
_ORIGIN = re.compile(rb"(\d{1,19})/(-?\d{1,19})")
"""Anybody may write the header, and Python refuses to read numbers of some thousand digits."""
TOPIC = "topic"
COLUMNS = ("key", "value", "headers", "timestamp", TOPIC)
"""What an expression may change, in this order."""
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_LIST = re.compile(r"\s*,\s*")


class OnError(StrEnum):
    """What happens to a record for which a transform fails."""

    STOP = "stop"
    """Its partition is FAULTED there."""
    SKIP = "skip"
    """It is not copied, and is counted."""
    DEAD_LETTER = "dead-letter"
    """The same, and it goes to a topic of the target as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressions:
    """What Spark does to the records of some topics. Picklable: Spark's workers get it."""

    topics: tuple[str, ...]
    """Patterns of source topics."""
    where: str = ""
    """A predicate of Spark SQL; empty = all records pass."""
    columns: tuple[tuple[str, str], ...] = ()
    """Of `COLUMNS`, with an expression of Spark SQL for each."""
    python: str = ""
    """`package.module:function`; empty = none."""
    on_error: OnError = OnError.STOP
    dead_letters: str = ""
    """The topic of the target for `OnError.DEAD_LETTER`."""
    timeout_seconds: float = 60.0
    """How long Spark may take for the records of one fetch."""
    names_origins: bool = False
    """Each record gets the header `ORIGIN_HEADER`."""

    @property
    def routes_records(self) -> bool:
        """Whether records may go to other topics than the copy."""
        return any(name == TOPIC for name, _ in self.columns)

    @property
    def written(self) -> Mapping[str, str]:
        """What Spark computes of a record, by key, in this order."""
        named = {PREFIX + name: text for name, text in self.columns}
        return {WHERE: self.where, **named, PYTHON: self.python}

    def matches(self, topic: str) -> bool:
        return PatternList(TOPICS, self.topics).matches(topic)


def origin_prefix(source: ClusterAlias, partition: TopicPartition) -> bytes:
    """With which the origins of all records of a partition begin."""
    return f"{source}/{partition.topic}/{partition.partition}/".encode()


def origin_header(prefix: bytes, offset: int, timestamp_ms: int) -> bytes:
    """The header of a record, as a body has it."""
    return encode_field(ORIGIN_HEADER) + encode_field(b"%b%d/%d" % (prefix, offset, timestamp_ms))


def origin_of(record: OpenRecord, prefix: bytes) -> tuple[int, int] | None:
    """The offset from which a record was copied, and its timestamp there in ms; None if it was not copied
    from there, or does not say so. Raises WireFormatError."""
    # The last header counts: a copy of a copy names both.
    told = next((value for key, value in reversed(headers_of(record[2])) if key == ORIGIN_HEADER), None)
    if told is None or not told.startswith(prefix):
        return None
    found = _ORIGIN.fullmatch(told, len(prefix))
    return (int(found[1]), int(found[2])) if found else None


def expressions_of(values: Mapping[str, str]) -> Expressions | None:
    """The expressions of a flow, by the keys without the flow; None if it has none. Raises ConfigError with
    all problems, one per line, each beginning with its key."""
    found, problems = _read(values)
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def problems_of_expressions(values: Mapping[str, str]) -> list[str]:
    """The problems for which `expressions_of` raises."""
    return _read(values)[1]


def _read(values: Mapping[str, str]) -> tuple[Expressions | None, list[str]]:
    given = {key: text for key, value in values.items() if key.startswith(PREFIX) and (text := value.strip())}
    columns = tuple((name, given[PREFIX + name]) for name in COLUMNS if PREFIX + name in given)
    changing = [key for key in given if key in (WHERE, PYTHON) or key.removeprefix(PREFIX) in COLUMNS]
    names_origins = values.get(PROVENANCE) == "true"
    unknown = given.keys() - {*changing, TOPICS, ON_ERROR, TIMEOUT}
    problems = [f"{key}: there is no such key" for key in sorted(unknown)]
    if not changing and TOPICS not in given:
        return None, problems
    if TOPICS not in given:
        problems.append(f"{changing[0]}: needs {TOPICS}, the topics whose records it is for")
    if not (changing or unknown or names_origins):
        problems.append(f"{TOPICS}: nothing is done to their records; set {WHERE}, {PREFIX}value or {PYTHON}")
    if given.get(ON_ERROR) == OnError.DEAD_LETTER and not values.get(DEAD_LETTERS):
        problems.append(f"{ON_ERROR}: {OnError.DEAD_LETTER} needs {DEAD_LETTERS}, a topic of the target")
    python = given.get(PYTHON, "")
    if python and not _FUNCTION.fullmatch(python):
        problems.append(f"{PYTHON}: must be package.module:function, not {python!r}")
    patterns = tuple(each for each in _LIST.split(given.get(TOPICS, "")) if each)
    try:
        PatternList(TOPICS, patterns)
    except ConfigError as error:
        problems.append(f"{TOPICS}: {error}")
    if problems:
        return None, problems
    return Expressions(
        topics=patterns,
        where=given.get(WHERE, ""),
        columns=columns,
        python=python,
        on_error=OnError(given.get(ON_ERROR, OnError.STOP)),
        dead_letters=values.get(DEAD_LETTERS, ""),
        timeout_seconds=float(given.get(TIMEOUT, 60.0)),
        names_origins=names_origins,
    ), []
