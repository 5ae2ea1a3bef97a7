"""Connect's transforms: `org.apache.kafka.connect.transforms`.

A transform of records takes the body of a record and returns the changed one; None drops the record.
"""

import re
from dataclasses import dataclass, field

from twinlog.batches.bodies import (
    encode_field,
    encode_headers,
    has_header,
    headers_at,
    headers_of,
    with_header,
)
from twinlog.transforms.java_replacement import Replacement


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops every record that it sees."""

    def change(self, body: bytes) -> bytes | None:
        del body
        return None


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Removes all headers with one of these keys."""

    keys: frozenset[bytes]
    _written: tuple[bytes, ...] = field(init=False)
    """The keys with their lengths, as a body has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", tuple(map(encode_field, sorted(self.keys))))

    def change(self, body: bytes) -> bytes | None:
        if not any(has_header(body, written) for written in self._written):
            return body
        kept = tuple(header for header in headers_of(body) if header[0] not in self.keys)
        return body[: headers_at(body)] + encode_headers(kept)


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header behind those that are there, also where one has the same key.

    MirrorMaker 2 fails here with its default converter, which takes nothing but bytes; the value is written
    as `SimpleHeaderConverter` writes text: UTF-8, and other headers stay as they are.
    """

    key: bytes
    value: bytes
    _written: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_written", encode_field(self.key) + encode_field(self.value))

    def change(self, body: bytes) -> bytes | None:
        return with_header(body, self._written)


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """Renames topics that match the whole pattern; partitions stay."""

    pattern: re.Pattern[str]
    replacement: Replacement
    regex_written: str
    replacement_written: str

    def routed(self, topic: str) -> str:
        """The name after the router. As in Java, the pattern must match the whole name, and then its first
        match inside the name is replaced: with `.*?`, that is nothing, before the name."""
        if self.pattern.fullmatch(topic) is None:
            return topic
        found = self.pattern.search(topic)
        if found is None:
            return topic
        return topic[: found.start()] + self.replacement.of(found) + topic[found.end() :]


Transform = Filter | DropHeaders | InsertHeader | RegexRouter
