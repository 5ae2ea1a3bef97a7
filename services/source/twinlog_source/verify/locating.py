"""Where records of one log are in the other one: found by time, proven by content."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from twinlog.verify.align import Pair, align
from twinlog.verify.compare import SETTLED_RUN
from twinlog.verify.model import Side
from twinlog.verify.sides import Steps, Window

OffsetForTime = Callable[[int], Awaitable[int | None]]
"""The first offset of a partition whose timestamp is at or after this one."""

HEAD = 64
_LOOKED_THROUGH = 1 << 16
"""Records behind an offset that was found by time: timestamps need not be in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locator:
    """`drive` answers what a window wants to read."""

    drive: Callable[[Steps[Any]], Awaitable[Any]]

    async def find(
        self, head: Window, side: Side, *, look_up: OffsetForTime | None, start: int, limit: int
    ) -> int | None:
        """The offset, in the other log, of the first record of `head`; None where it is not found."""
        times = [entry.timestamp_ms for entry in head.entries if entry.timestamp_ms is not None]
        if look_up is None or not times:
            return None
        guess = await look_up(min(times))
        if guess is None or guess >= limit:
            return None
        window = Window(side=side, next_offset=max(start, guess), limit=limit)
        while len(window.entries) < _LOOKED_THROUGH and not window.is_complete:
            await self.drive(window.grow(max(4 * len(window.entries), 16 * HEAD)))
            pairs = align([entry[1:] for entry in head.entries], [entry[1:] for entry in window.entries])
            if _begins_with_run(pairs, enough(head)):
                return window.entries[pairs[0][1]].offset
        return None


def enough(*windows: Window) -> int:
    """So many records in a row prove that it is the same place."""
    return min(SETTLED_RUN, *(len(window.entries) for window in windows))


def longest_run(source: Window, target: Window) -> int:
    """The most records in a row that both windows have."""
    longest = run = 0
    before = (-2, -2)
    for pair in align([entry[1:] for entry in source.entries], [entry[1:] for entry in target.entries]):
        run = run + 1 if pair == (before[0] + 1, before[1] + 1) else 1
        longest, before = max(longest, run), pair
    return longest


def _begins_with_run(pairs: Sequence[Pair], least: int) -> bool:
    """Whether the first records of one window are in a row in the other one."""
    if len(pairs) < max(1, least) or pairs[0][0] != 0:
        return False
    run = 1
    for before, pair in pairwise(pairs):
        if pair != (before[0] + 1, before[1] + 1):
            break
        run += 1
    return run >= least
