"""The long lists of a move's record, in records of their own ("parts"). Pure.

Kafka's producer refuses a record of more than 1 MiB (max.request.size), before it compresses it; the rules of
thousands of topics are larger. A part is called by the hash of its content. So a part never changes: the
record that is in force keeps its parts while those of the next one are written.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from twinlog.errors import WireFormatError
from twinlog.model import Flow

PART_BYTES = 500_000
"""The size of a part, and at most one item more."""
_FORMAT = 1
_KEY = "TwinlogMovePart"


def part_key(flow: Flow, part: str) -> bytes:
    return json.dumps([_KEY, {"flow": str(flow), "part": part}], separators=(",", ":")).encode()


def part_of(flow: Flow, key: bytes) -> str | None:
    """The name of the part; None if the key is of another kind or flow."""
    try:
        name, place = json.loads(key)
        part = place["part"] if name == _KEY and place["flow"] == str(flow) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return part if isinstance(part, str) else None


def pack(items: Sequence[object]) -> dict[str, bytes]:
    """Return the parts of a list by name, in order. Items that are added to the end change only the last
    part."""
    values = (f'{{"format":{_FORMAT},"items":[{",".join(texts)}]}}'.encode() for texts in _cut(items))
    return {sha256(value).hexdigest()[:32]: value for value in values}


def _cut(items: Sequence[object]) -> Iterator[list[str]]:
    texts: list[str] = []
    size = 0
    for item in items:
        texts.append(json.dumps(item, separators=(",", ":")))
        size += len(texts[-1]) + 1
        if size >= PART_BYTES:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def unpack(names: Any, parts: Mapping[str, bytes]) -> list[Any]:
    """Return the items of these parts. Raises WireFormatError, and ValueError, KeyError or TypeError for
    damaged ones."""
    items: list[Any] = []
    for name in names:
        if name not in parts:
            raise WireFormatError(f"the record of the last move is damaged: its part {name!r} is missing")
        fields = json.loads(parts[name])
        if fields["format"] != _FORMAT:
            raise WireFormatError(
                f"a part of the record of the last move has format {fields['format']}, this release reads"
                f" {_FORMAT}",
                reason="WIRE_VERSION",
            )
        items += fields["items"]
    return items
