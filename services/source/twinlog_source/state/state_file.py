"""The file of `twinlog state export`: JSON lines. Pure.

| line | content |
|---|---|
| first | `{"twinlog_state": 1, "flow": …, "exported_at_ms": …, "version": …, "source_cluster_id": …, …}` |
| `{"copy": {…}}` | a partition: its position, its copy, and a pair of offsets that belong together |
| `{"record": {…}}` | a record of an internal topic; bytes that are not UTF-8 as `{"base64": …}` |
| last | `{"end": {"lines": n, "sha256": …}}` over all lines before it, so that a truncated file is refused |
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from twinlog import __version__
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

FORMAT = 1
_MOST_LINE_BYTES = 64 << 20


class TopicRole(StrEnum):
    """The purpose of an internal topic; its name depends on the configuration."""

    POSITIONS = "positions"
    CONFIGSYNC = "configsync"
    MOVES = "moves"
    CHECKPOINTS = "checkpoints"
    OFFSET_SYNCS = "offset-syncs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    flow: str
    exported_at_ms: int
    version: str
    """The version of Twinlog that wrote the file."""
    source_cluster_id: str
    target_cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLine:
    """A partition of the source as it was exported."""

    topic: str
    partition: int
    position: int
    """The next source offset to copy."""
    target_topic: str
    source_topic_id: str = ""
    target_topic_id: str = ""
    """The ids of the topics to which the position belongs; "" if brokers have no topic ids."""
    preserved: bool = False
    """The copy has the source's offsets."""
    anchor_position: int | None = None
    anchor_end: int | None = None
    """Exactly the records before `anchor_position` were on the copy before `anchor_end`; None = no such pair
    is known."""
    target_end: int | None = None
    """The end of the copy if nothing was being copied; None = it was, or a transaction was open."""

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    role: TopicRole
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFlow:
    """The content of a file."""

    header: Header
    copies: tuple[CopyLine, ...]
    records: tuple[StateRecord, ...]
    import_id: str = ""
    """Identifies the file: the checksum at its end."""

    def of(self, role: TopicRole) -> tuple[StateRecord, ...]:
        return tuple(record for record in self.records if record.role is role)


def lines(state: ExportedFlow) -> Iterator[bytes]:
    """The whole file, line by line."""
    digest, count = hashlib.sha256(), 0
    for document in _documents(state):
        line = _line(document)
        digest.update(line)
        count += 1
        yield line
    yield _line({"end": {"lines": count, "sha256": digest.hexdigest()}})


def _documents(state: ExportedFlow) -> Iterator[dict[str, Any]]:
    yield {"twinlog_state": FORMAT, **asdict(state.header)}
    for copy in state.copies:
        yield {"copy": asdict(copy)}
    for record in state.records:
        yield {
            "record": {
                "in": record.role,
                "key": _text(record.key),
                "value": _text(record.value),
                "timestamp_ms": record.timestamp_ms,
            }
        }


def parse(content: Iterable[bytes], *, name: str) -> ExportedFlow:
    """Read a file. Raises ConfigError: STATE_FILE_DAMAGED if it is not complete, STATE_FILE_NEWER if another
    version is needed to read it."""
    digest, count, end = hashlib.sha256(), 0, None
    documents: list[dict[str, Any]] = []
    for line in content:
        if end is not None:
            raise _damaged(name, "it has content after its last line")
        document = _document(line, name, count + 1)
        if isinstance(document.get("end"), dict):
            end = document["end"]
            continue
        digest.update(line)
        count += 1
        documents.append(document)
    if end is None:
        raise _damaged(name, "it is truncated: the last line is missing")
    if (end.get("lines"), end.get("sha256")) != (count, digest.hexdigest()) or not documents:
        raise _damaged(name, "its lines were changed")
    try:
        return _state(documents, digest.hexdigest())
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        # The checksum proves that it is unchanged: its writer had another format.
        raise _of_another_version(name, documents[0], error) from error


def _document(line: bytes, name: str, number: int) -> dict[str, Any]:
    if len(line) > _MOST_LINE_BYTES:
        raise _damaged(name, f"line {number} is too long")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(name, f"line {number} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _damaged(name, f"line {number} is no JSON object")
    return document


def _state(documents: list[dict[str, Any]], import_id: str) -> ExportedFlow:
    first, *rest = documents
    if first["twinlog_state"] != FORMAT:
        raise ValueError(f"format {first['twinlog_state']!r}; this version reads {FORMAT}")
    copies = [_copy(each["copy"]) for each in rest if "copy" in each]
    records = [_record(each["record"]) for each in rest if "record" in each]
    if len(copies) + len(records) != len(rest):
        raise ValueError("a line is neither a copy nor a record")
    header = Header(**{each.name: first[each.name] for each in fields(Header)})
    return ExportedFlow(header=header, copies=tuple(copies), records=tuple(records), import_id=import_id)


def _copy(found: dict[str, Any]) -> CopyLine:
    line = CopyLine(**{each.name: found[each.name] for each in fields(CopyLine)})
    for number in (line.partition, line.position, line.anchor_position, line.anchor_end, line.target_end):
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < 1 << 63:
            raise ValueError(f"{number!r} is not an offset")
    if not (type(line.topic) is type(line.target_topic) is str):
        raise ValueError("a topic has no name")
    return line


def _record(found: dict[str, Any]) -> StateRecord:
    return StateRecord(
        role=TopicRole(found["in"]),
        key=_bytes(found["key"]),
        value=_bytes(found["value"]),
        timestamp_ms=int(found["timestamp_ms"]),
    )


def _text(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(content).decode()}


def _bytes(found: str | dict[str, str] | None) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    return base64.b64decode(found["base64"], validate=True)


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _damaged(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name} is not a whole file of `twinlog state export`: {why}",
        reason="STATE_FILE_DAMAGED",
        metadata={"state_file": name},
    )


def _of_another_version(name: str, first: dict[str, Any], error: Exception) -> ConfigError:
    version = first.get("version")
    if not isinstance(version, str) or "twinlog_state" not in first:
        return _damaged(name, "its first line is not that of an export")
    return ConfigError(
        f"{name} is whole, and this Twinlog ({__version__}) cannot read it: Twinlog {version} exported it"
        f" ({error!r}). Import it with that version",
        reason="STATE_FILE_NEWER",
        metadata={"state_file": name, "version": version},
    )
