"""One partition, or a range of it: reads both logs and passes them to the comparison.

The place of one log's records in the other log is found by time or by reading, and proven by content.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.comparison.align import SETTLED_RUN, Pair, align, aligning_tokens, settled_run
from twinlog.comparison.compare import Comparison
from twinlog.comparison.judging.judge import judge
from twinlog.comparison.model import Bounds, NotCompared, NotComparedReason, PartitionProof, Side
from twinlog.comparison.records import equal_run
from twinlog.comparison.sides import AskEnds, Chunk, EndsNow, Extend, Extended, Read, Steps, Window
from twinlog.errors import TwinlogError

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
    wanted = max(1, enough(head))
    place, records = longest_run(head, window)
    if records >= wanted:
        return 0, place
    tokens, others = aligning_tokens(head, window)
    end = settled_run(align(tokens, others), wanted)
    if end is None:
        return None
    index, place = end[0] - wanted, end[1] - wanted
    # A record that occurs many times may have been aligned with another occurrence.
    while index and place and tokens[index - 1] == others[place - 1]:
        index, place = index - 1, place - 1
    return index, place


def longest_run(head: Window, other: Window) -> Pair:
    """Where most of the first records of `head` are in a row in the other log, and how many; among places
    with equally many the first, or the one at which both logs end."""
    tokens, others = aligning_tokens(head, other)
    ends = len(others) if head.is_complete and other.is_complete else -1
    found = [
        (place, equal_run(tokens, 0, others, place, min(len(tokens), len(others) - place)))
        for place in range(len(others))
    ]
    return max(found, key=lambda each: (each[1], sum(each) == ends), default=(0, 0))


def are_at_the_same_place(source: Window, target: Window) -> bool:
    """Whether both windows have enough equal records in a row."""
    return settled_run(align(*aligning_tokens(source, target)), enough(source, target)) is not None


_NOTED_EVERY_STEPS = 8


class Readable(Protocol):
    """One side of the partition (`PartitionLog`)."""

    is_ahead: bool
    """It reads on while its last chunk is compared."""

    @property
    def read_bytes(self) -> int: ...
    async def read(self, offset: int, *, limit: int) -> Chunk: ...
    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Prover:
    """Belongs to one task. `run` does not raise for failures of a cluster or a log: the proof contains
    them."""

    bounds: Bounds
    source: Readable
    target: Readable
    extend: Callable[[Comparison], Awaitable[Extended]]
    """Returns what has arrived on the target; waits until something has, or the time is over."""
    ends: Callable[[], Awaitable[EndsNow]]
    source_offset_for_time: OffsetForTime | None = None
    target_offset_for_time: OffsetForTime | None = None
    on_progress: Callable[[Comparison], None] = lambda _: None
    max_open_bytes: int = MAX_OPEN_BYTES
    _comparison: Comparison = field(init=False)
    _notes: list[NotCompared] = field(default_factory=list)

    async def run(self) -> PartitionProof:
        self._comparison = self._new_comparison()
        try:
            await self._align_begin()
            self._comparison = self._new_comparison()
            # From the beginning on, because a proven range is kept together with what was left out of it.
            self._comparison.outcome.proof.not_compared += self._notes
            await self._drive(self._comparison.compare())
        except TwinlogError as error:
            self._comparison.outcome.proof.not_read(error, goal=self.bounds.source_goal)
        finally:
            self.source.close()
            self.target.close()
        proof = self._comparison.outcome.proof
        try:
            self.source.is_ahead = self.target.is_ahead = False
            await self._drive(judge(self._comparison))
        except TwinlogError as error:
            self._comparison.outcome.proof.not_read(error, goal=self.bounds.source_goal)
        proof.bytes = self.source.read_bytes + self.target.read_bytes
        return proof

    def _new_comparison(self) -> Comparison:
        return Comparison(bounds=self.bounds, max_open_bytes=self.max_open_bytes)

    async def _drive(self, steps: Steps[Any]) -> Any:
        count = 0
        try:
            asked = next(steps)
            while True:
                try:
                    answer = await self._answer(asked)
                except TwinlogError as error:
                    asked = steps.throw(error)
                    continue
                count += 1
                if count % _NOTED_EVERY_STEPS == 1:
                    self.on_progress(self._comparison)
                asked = steps.send(answer)
        except StopIteration as end:
            return end.value

    async def _answer(self, asked: Read | Extend | AskEnds) -> Any:
        match asked:
            case Read(side=Side.SOURCE, offset=offset):
                return await self.source.read(offset, limit=self._comparison.source.limit)
            case Read(offset=offset):
                return await self.target.read(offset, limit=self._comparison.target.limit)
            case Extend():
                return await self.extend(self._comparison)
            case AskEnds():
                return await self.ends()

    async def _align_begin(self) -> None:
        """If one side no longer has the beginning, or the request names a later one, find where the other
        side has the same records: by time, which needs no reading, or by reading."""
        bounds = self.bounds
        may_differ = bounds.source_lost or bounds.target_lost or bounds.head_is_free or bounds.begins_anywhere
        if not may_differ or bounds.source_start >= bounds.source_goal:
            return
        source, target = await self._heads(bounds)
        if not source.entries or not target.entries or self._begin_at_the_run(source, target):
            return
        if are_at_the_same_place(source, target) or await self._begin_at_the_same_offset():
            return
        for by_reading in (False, True):
            if (found := await self._find(target, Side.SOURCE, by_reading=by_reading)) is not None:
                self._begin_at(found, bounds.target_start)
                return
            if (found := await self._find(source, Side.TARGET, by_reading=by_reading)) is not None:
                self._begin_at(bounds.source_start, found)
                return

    async def _heads(self, bounds: Bounds) -> tuple[Window, Window]:
        source = Window(side=Side.SOURCE, next_offset=bounds.source_start, limit=bounds.source_limit)
        target = Window(side=Side.TARGET, next_offset=bounds.target_start, limit=bounds.target_limit)
        await self._drive(source.grow(HEAD))
        await self._drive(target.grow(HEAD))
        return source, target

    async def _begin_at_the_same_offset(self) -> bool:
        """If the offsets should be equal, compare both logs from the later beginning on, provided that they
        have the same records there."""
        bounds = self.bounds
        kept_from, kept_until = bounds.offsets_kept_from, bounds.offsets_kept_until
        begin = max(bounds.source_start, bounds.target_start)
        if kept_from is None or begin < kept_from or (kept_until is not None and begin >= kept_until):
            return False
        source, target = await self._heads(replace(bounds, source_start=begin, target_start=begin))
        if not source.entries or not target.entries or not are_at_the_same_place(source, target):
            return False
        self._begin_at(begin, begin)
        return True

    def _begin_at_the_run(self, source: Window, target: Window) -> bool:
        """Begin where the first records of the log that begins later are in the other one, whose own first
        records may be equal to them. False if that is nowhere, or where both begin."""
        bounds = self.bounds
        if bounds.offsets_kept_from is not None:
            return False
        begins_late = bounds.target_lost or bounds.begins_anywhere
        index, records = longest_run(target, source) if begins_late else (0, 0)
        place, copies = longest_run(source, target) if self._has_older_copies else (0, 0)
        if not (index or place) or max(records, copies) < enough(source, target):
            return False
        if records >= copies:
            self._begin_at(source.entries[index].offset, bounds.target_start)
        else:
            self._begin_at(bounds.source_start, target.entries[place].offset)
        return True

    @property
    def _has_older_copies(self) -> bool:
        """Whether the copy may begin with records that the source has lost, or that lie before the range."""
        bounds = self.bounds
        is_cut = any(each.from_offset <= bounds.source_start for each in bounds.source_lost)
        return is_cut or bounds.head_is_free

    def _begin_at(self, source: int, target: int) -> None:
        """Compare from these offsets on, where they are later, and note what is left out before them."""
        bounds = self.bounds
        if bounds.source_start < source:
            lost = bounds.target_lost
            reason = NotComparedReason.TARGET_RETENTION if lost else NotComparedReason.BEFORE_FIRST_COPY
            self._leave_out(Side.SOURCE, bounds.source_start, source, reason)
        if bounds.target_start < target and not bounds.head_is_free:
            self._leave_out(Side.TARGET, bounds.target_start, target, bounds.only_on_target)
        starts = max(bounds.source_start, source), max(bounds.target_start, target)
        self.bounds = replace(bounds, source_start=starts[0], target_start=starts[1])

    def _leave_out(self, side: Side, begin: int, end: int, reason: NotComparedReason) -> None:
        self._notes.append(
            NotCompared(
                side=side, from_offset=begin, to_offset=end, reason=reason, is_harmless=reason.is_harmless
            )
        )

    async def _find(self, head: Window, side: Side, *, by_reading: bool) -> int | None:
        """The place of one log's first records in the other log; None: not found, or not wanted."""
        bounds = self.bounds
        if side is Side.SOURCE:
            look_up, start, limit = self.source_offset_for_time, bounds.source_start, bounds.source_limit
            allowed = bool(bounds.target_lost) or bounds.begins_anywhere
            # Records of the target before the range do not belong to it.
            allowed = allowed and not (by_reading and bounds.head_is_free)
        else:
            look_up, start, limit = self.target_offset_for_time, bounds.target_start, bounds.target_limit
            allowed = self._has_older_copies
        if not allowed:
            return None
        locator = Locator(drive=self._drive)
        return await locator.find_before(
            head,
            side,
            look_up=look_up,
            start=start,
            limit=limit,
            by_reading=by_reading,
            may_be_behind=side is Side.TARGET and bounds.head_is_free,
        )
