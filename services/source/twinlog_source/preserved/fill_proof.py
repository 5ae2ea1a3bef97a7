"""Compares what is filled at the end of a copy with the source. Pure."""

from collections import deque
from dataclasses import dataclass
from typing import TypeVar

from twinlog_source.preserved.append_steps import Append, Hole

T = TypeVar("T")


@dataclass(slots=True)
class FillProof:
    """What has to be compared with the source before the end of the copy counts: the ranges that are filled
    there."""

    end: int
    is_foreign: bool
    """The copy continues with a foreign record at this offset; otherwise its log ends there."""
    filled: deque[Hole]

    def forget_below(self, offset: int) -> None:
        """Compare nothing below an offset."""
        while self.filled and self.filled[0].end <= offset:
            self.filled.popleft()
        if self.filled and self.filled[0].first < offset:
            self.filled[0] = Hole(offset, self.filled[0].end - offset)

    def agrees(self, item: Append[T] | Hole) -> bool:
        """Whether the filled ranges agree with this item of the source. If they do, everything before the end
        of the item is settled."""
        while self.filled and self.filled[0].first < item.end:
            hole = self.filled[0]
            if isinstance(item, Append) and item.first < hole.end:
                return False
            if item.end < hole.end:
                self.filled[0] = Hole(item.end, hole.end - item.end)
                return True
            self.filled.popleft()
        return True
