"""Aligns two windows by their longest common subsequence (Hunt and Szymanski).

Takes n log n for records that mostly differ from each other.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.comparison.model import Difference, DifferenceKind
from twinlog.comparison.sides import Window

# Checks that the records of a copy have their source's offsets, where that is promised (docs/offsets.md).

OFFSET = "offset"
"""The changed part of a record whose offset differs from its original's."""


@dataclass(slots=True)
class Shifted:
    """Consecutive equal records at other offsets, all by the same distance."""

    source_offset: int
    target_offset: int
    count: int


@dataclass(slots=True)
class KeptOffsets:
    """Follows the distance between both offsets of equal records.

    A constant distance is one difference, however many records it holds.
    """

    since: int | None
    """Source offset from which the offsets are promised; None: they are not."""
    until: int | None = None
    """Source offset from which they are no longer promised; None: they are to the end."""
    shift: int = 0
    """Target offset minus source offset of the last equal record."""
    runs: list[Shifted] = field(default_factory=list)

    def is_promised(self, source_offset: int) -> bool:
        if self.since is None or source_offset < self.since:
            return False
        return self.until is None or source_offset < self.until

    def fits(self, source_offset: int, target_offset: int, last_source_offset: int) -> bool:
        """Whether equal consecutive records have the expected offsets, by the first one. False also where the
        promise begins or ends among them."""
        if any(
            border is not None and source_offset < border <= last_source_offset
            for border in (self.since, self.until)
        ):
            return False
        return not self.is_promised(source_offset) or target_offset - source_offset == self.shift

    def note(self, source_offset: int, target_offset: int, count: int = 1) -> None:
        """Note so many consecutive equal records with this distance."""
        if not self.is_promised(source_offset):
            return
        shift = target_offset - source_offset
        if shift and shift == self.shift and self.runs:
            self.runs[-1].count += count
        elif shift:
            self.runs.append(Shifted(source_offset, target_offset, count))
        self.shift = shift

    def fitting(self, source: Sequence[int], target: Sequence[int]) -> int:
        """How many of the records with these offsets have the expected ones."""
        if self.since is None:
            return len(source)
        for number, (one, other) in enumerate(zip(source, target, strict=True)):
            if other - one != self.shift and self.is_promised(one):
                return number
        return len(source)

    def differences(self, hunks: Iterable["Place"]) -> list[Difference]:
        """A difference for each distance that no other difference explains, such as a lost record right
        before it."""
        explained = {(hunk.source_after, hunk.target_after) for hunk in hunks}
        return [
            Difference(
                kind=DifferenceKind.CHANGED,
                source_offset=run.source_offset,
                target_offset=run.target_offset,
                count=run.count,
                changed=(OFFSET,),
            )
            for run in self.runs
            if (run.source_offset, run.target_offset) not in explained
        ]


@dataclass(frozen=True, slots=True)
class Place:
    """The records after a hunk with differences."""

    source_after: int | None
    target_after: int | None


_MOST_OCCURRENCES = 16
"""Occurrences tried of a repeated record: those around the one with the same ordinal."""

Pair = tuple[int, int]
_Link = tuple[int, int, "_Link | None"]


def align(source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Pair]:
    """Pairs of indices of matching records, increasing on both sides."""
    begin, end = 0, min(len(source), len(target))
    while begin < end and source[begin] == target[begin]:
        begin += 1
    tail = 0
    while tail < end - begin and source[-1 - tail] == target[-1 - tail]:
        tail += 1
    pairs = [(index, index) for index in range(begin)]
    pairs += _middle(source, target, begin, len(source) - tail, len(target) - tail)
    pairs += [(len(source) - left, len(target) - left) for left in range(tail, 0, -1)]
    return pairs


def _middle(
    source: Sequence[Hashable], target: Sequence[Hashable], begin: int, source_end: int, target_end: int
) -> list[Pair]:
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index in range(begin, target_end):
        places[target[index]].append(index)
    seen: defaultdict[Hashable, int] = defaultdict(int)
    tails: list[int] = []
    links: list[_Link] = []
    for index in range(begin, source_end):
        token = source[index]
        found = places.get(token)
        if found is None:
            continue
        number = seen[token]
        seen[token] += 1
        if len(found) > 2 * _MOST_OCCURRENCES:
            found = found[max(0, number - _MOST_OCCURRENCES) : number + _MOST_OCCURRENCES]
        for place in reversed(found):
            length = bisect_left(tails, place)
            link = (index, place, links[length - 1] if length else None)
            if length == len(tails):
                tails.append(place)
                links.append(link)
            elif place < tails[length]:
                tails[length] = place
                links[length] = link
    pairs: list[Pair] = []
    last: _Link | None = links[-1] if links else None
    while last is not None:
        pairs.append((last[0], last[1]))
        last = last[2]
    pairs.reverse()
    return pairs


MOST_WINDOW = 1 << 20
"""Most records of one side held to find where both sides match again."""
MOST_TAIL = 1 << 14
"""The same limit for records of the source after the target's end."""
SETTLED_RUN = 16
"""Consecutive matching records that end a hunk."""
_ENOUGH_SCATTERED = 256
"""So many matching records, though not consecutive, show the right place."""


def aligning_tokens(one: Window, other: Window) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """The tokens for aligning records: without timestamps where the target has its own."""
    first = 2 if one.own_timestamps or other.own_timestamps else 1
    return [entry[first:] for entry in one.entries], [entry[first:] for entry in other.entries]


def settled_run(pairs: Sequence[Pair], wanted: int = SETTLED_RUN) -> Pair | None:
    """The end of the first run of so many consecutive pairs."""
    run = 0
    before = (-2, -2)
    for pair in pairs:
        run = run + 1 if pair == (before[0] + 1, before[1] + 1) else 1
        before = pair
        if run >= wanted:
            return pair[0] + 1, pair[1] + 1
    return None


def aligned(
    source: Window, target: Window, offsets: KeptOffsets, *, has_more_before: bool = False
) -> list[Pair]:
    """Among repeated records, those at the promised offsets match; where one side has more before the range,
    those right before the first certain match do."""
    tokens, copied = aligning_tokens(source, target)
    pairs = align(tokens, copied)
    if has_more_before:
        pairs = _from_first_run(pairs, tokens, copied)
    if offsets.since is None:
        return pairs
    shift = offsets.shift
    placed = align(
        [(entry.offset + shift, token) for entry, token in zip(source.entries, tokens, strict=True)],
        [(entry.offset, token) for entry, token in zip(target.entries, copied, strict=True)],
    )
    settled = settled_run(placed)
    if settled is None:
        return placed if len(placed) == len(pairs) else pairs
    begin = settled[0] - SETTLED_RUN, settled[1] - SETTLED_RUN
    return placed if _pairs_before(placed, begin) >= _pairs_before(pairs, begin) else pairs


def decided(
    source: Window, target: Window, pairs: Sequence[Pair], *, size: int, most: int, is_compacted: bool
) -> Pair | None:
    """How many entries of both windows these pairs decide; None: larger windows are needed."""
    lengths = len(source.entries), len(target.entries)
    settled = settled_run(pairs)
    if settled is not None:
        return settled
    if source.is_complete and target.is_complete:
        return lengths
    if pairs and (
        (target.is_complete and pairs[-1][1] + 1 == lengths[1])
        or (source.is_complete and pairs[-1][0] + 1 == lengths[0])
    ):
        return pairs[-1][0] + 1, pairs[-1][1] + 1
    enough = 2 * SETTLED_RUN if is_compacted else max(size // 4, _ENOUGH_SCATTERED)
    if len(pairs) >= enough:
        last = pairs[-SETTLED_RUN]
        return last[0] + 1, last[1] + 1
    if size >= (min(MOST_TAIL, most) if target.is_complete else most):
        return lengths
    return None


def _from_first_run(pairs: list[Pair], source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Pair]:
    """Match a repeated record with the place of the records after it, not with an equal one far before, where
    that keeps as many matches."""
    end = settled_run(pairs)
    if end is None:
        return pairs
    begin = end[0] - SETTLED_RUN, end[1] - SETTLED_RUN
    near = [max(0, begin[side] - begin[1 - side] - SETTLED_RUN) for side in (0, 1)]
    before = align(source[near[0] : begin[0]], target[near[1] : begin[1]])
    if len(before) < _pairs_before(pairs, begin):
        return pairs
    return [
        *((near[0] + one, near[1] + other) for one, other in before),
        *(pair for pair in pairs if pair >= begin),
    ]


def _pairs_before(pairs: Sequence[Pair], end: Pair) -> int:
    return sum(one < end[0] and other < end[1] for one, other in pairs)
