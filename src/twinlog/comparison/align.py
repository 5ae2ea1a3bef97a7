"""Aligns two windows by their longest common subsequence (Hunt and Szymanski).

Takes n log n for records that mostly differ from each other.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence

from twinlog.comparison.kept_offsets import KeptOffsets
from twinlog.comparison.sides import Window

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
