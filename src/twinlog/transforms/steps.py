"""Connect's transforms that drop a record or change its headers.

Each `apply` returns whether the record goes on; changes are made in place.
"""

from dataclasses import dataclass

from twinlog.transforms.parts import RecordParts
from twinlog.transforms.routers import RegexRouter, TimestampRouter


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops every record that it sees."""

    def apply(self, record: RecordParts) -> bool:
        del record
        return False


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Removes all headers with one of these keys."""

    keys: frozenset[bytes]

    def apply(self, record: RecordParts) -> bool:
        record.drop_headers(self.keys)
        return True


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header behind those that are there, also where one has the same key.

    MirrorMaker 2 fails here with its default converter, which takes nothing but bytes; the value is written
    as `SimpleHeaderConverter` writes text: UTF-8, and other headers stay as they are.
    """

    key: bytes
    value: bytes

    def apply(self, record: RecordParts) -> bool:
        record.add_header(self.key, self.value)
        return True


Transform = Filter | DropHeaders | InsertHeader | RegexRouter | TimestampRouter
