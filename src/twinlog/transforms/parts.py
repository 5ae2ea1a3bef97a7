"""A record body whose parts are found only when a transform asks for them.

Most records pass a chain unchanged, so a body is kept as one piece of bytes, and only a change of its headers
makes a new one.
"""

from dataclasses import dataclass

from twinlog.batches.bodies import RawHeaders, encode_headers, split_body


@dataclass(slots=True)
class RecordParts:
    """One record on its way through a chain. `topic` is the name it goes to so far."""

    topic: str
    timestamp_ms: int
    body: bytes

    @property
    def is_tombstone(self) -> bool:
        """True if the value is null."""
        return split_body(self.body).value_is_null

    def has_header(self, key: bytes) -> bool:
        # The search of the whole body is one call; only a record that may have the header is taken apart.
        return key in self.body and any(name == key for name, _ in split_body(self.body).headers())

    def drop_headers(self, keys: frozenset[bytes]) -> None:
        if not any(key in self.body for key in keys):
            return
        split = split_body(self.body)
        headers = split.headers()
        kept = tuple(header for header in headers if header[0] not in keys)
        if len(kept) != len(headers):
            self._replace_headers(split.headers_at, kept)

    def add_header(self, key: bytes, value: bytes | None) -> None:
        split = split_body(self.body)
        self._replace_headers(split.headers_at, (*split.headers(), (key, value)))

    def _replace_headers(self, headers_at: int, headers: RawHeaders) -> None:
        self.body = self.body[:headers_at] + encode_headers(headers)
