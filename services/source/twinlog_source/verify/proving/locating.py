"""Finds the place of one log's records in the other log: by time or by reading, and proven by content."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from twinlog.comparison.align import SETTLED_RUN, Pair, align, aligning_tokens, settled_run
from twinlog.comparison.model import Side
from twinlog.comparison.sides import Steps, Window

OffsetForTime = Callable[[int], Awaitable[int | None]]
"""Returns the first offset of a partition whose timestamp is at or after this one."""

HEAD = 64
_LOOKED_THROUGH = 1 << 16
"""How many records behind an offset that was found by time are searched: timestamps need not be in order."""
_READ_TOGETHER = 1 << 14
_OFFSETS_OF_A_RECORD = 128
"""Going back this many offsets from a known place passes at least as many records as are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """`drive` answers the reads of a window."""

    drive: Callable[[Steps[Any]], Awaitable[Any]]

    async def find_before(
        self,
        head: Window,
        side: Side,
        *,
        look_up: OffsetForTime | None,
        start: int,
        limit: int,
        by_reading: bool,
        may_be_behind: bool = False,
    ) -> int | None:
        """The offset, in the other log, of the first record of `head`; where some of its first records are
        missing or changed there, an offset before the place where they would be. None if it is not found.
        Searches by time, or reads the other log.
        `may_be_behind`: the other log may end before that place; then an offset shortly before its end."""
        if may_be_behind and not by_reading and await _are_younger(head, look_up, limit):
            return max(start, limit - _OFFSETS_OF_A_RECORD * HEAD)
        if by_reading:
            found = await self._by_reading(head, side, start=start, limit=limit)
        else:
            found = await self._by_time(head, side, look_up=look_up, start=start, limit=limit)
        if found is None:
            return None
        (index, place), window = found
        offset = window.entries[place].offset
        return offset if index == 0 else max(start, offset - _OFFSETS_OF_A_RECORD * (index + HEAD))

    async def _by_time(
        self, head: Window, side: Side, *, look_up: OffsetForTime | None, start: int, limit: int
    ) -> tuple[Pair, Window] | None:
        times = _times(head)
        if look_up is None or not times:
            return None
        guess = await look_up(min(times))
        if guess is None or guess >= limit:
            return None
        window = Window(side=side, next_offset=max(start, guess), limit=limit)
        while len(window.entries) < _LOOKED_THROUGH and not window.is_complete:
            await self.drive(window.grow(max(4 * len(window.entries), 16 * HEAD)))
            if (pair := first_run(head, window)) is not None:
                return pair, window
        return None

    async def _by_reading(
        self, head: Window, side: Side, *, start: int, limit: int
    ) -> tuple[Pair, Window] | None:
        window = Window(side=side, next_offset=start, limit=limit)
        while not window.is_complete:
            await self.drive(window.grow(len(window.entries) + _READ_TOGETHER))
            if (pair := first_run(head, window)) is not None:
                return pair, window
            del window.entries[: -len(head.entries)]
        return None


def _times(head: Window) -> list[int]:
    return [entry.timestamp_ms for entry in head.entries if entry.timestamp_ms is not None]


async def _are_younger(head: Window, look_up: OffsetForTime | None, limit: int) -> bool:
    """Whether all of these records are younger than what the other log has below the limit."""
    times = _times(head)
    if look_up is None or not times:
        return False
    guess = await look_up(min(times))
    return guess is None or guess >= limit


def enough(*windows: Window) -> int:
    """This many equal records in a row prove that it is the same place."""
    return min(SETTLED_RUN, *(len(window.entries) for window in windows))


def first_run(head: Window, window: Window) -> Pair | None:
    """Indices at which the first run of equal records begins that is long enough to prove the same place."""
    tokens, others = aligning_tokens(head, window)
    wanted = max(1, enough(head))
    end = settled_run(align(tokens, others), wanted)
    if end is None:
        return None
    index, place = end[0] - wanted, end[1] - wanted
    # A record that occurs many times may have been aligned with another occurrence.
    while index and place and tokens[index - 1] == others[place - 1]:
        index, place = index - 1, place - 1
    return index, place


def are_at_the_same_place(source: Window, target: Window) -> bool:
    """Whether both windows have enough equal records in a row."""
    return settled_run(align(*aligning_tokens(source, target)), enough(source, target)) is not None
