"""A hash of a log's batches in order: equal for equal ranges of the same log, however they are read.

A batch belongs to the range that holds its base offset, so consecutive ranges hold every batch once.
"""

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any

from twinlog.batches.header import Batch

_ITEM = Struct(">qI")
_DIGEST_BYTES = 16


@dataclass(slots=True)
class OrderHash:
    """Batches are noted when read, perhaps repeatedly or ahead, and taken once they are compared."""

    begin: int
    """Batches that begin before this offset belong to another range."""
    _seen_until: int = field(init=False)
    _ahead: deque[tuple[int, int]] = field(default_factory=deque)
    _hash: Any = field(init=False)

    def __post_init__(self) -> None:
        self._seen_until = self.begin
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def note(self, batch: Batch) -> None:
        header = batch.header
        if header.base_offset >= self._seen_until:
            self._seen_until = header.next_offset
            self._ahead.append((header.base_offset, header.crc))

    def take(self, end: int) -> None:
        """Take everything before this offset, which is compared now."""
        while self._ahead and self._ahead[0][0] < end:
            self._hash.update(_ITEM.pack(*self._ahead.popleft()))

    @property
    def hex(self) -> str:
        text: str = self._hash.hexdigest()
        return text
