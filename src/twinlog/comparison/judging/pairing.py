"""Pairs records of the source with records of the copy: keeps order and pairs similar records."""

from collections.abc import Callable, Sequence

from twinlog.comparison.records import Entry, differing, likeness
from twinlog.comparison.results import Hunk

STRONG = 9
"""Likeness of two records that differ in one part."""
_MOST_CELLS = 1 << 16

ChangedPair = tuple[Entry, Entry, tuple[str, ...]]


def changed_pairs(source: Sequence[Entry], target: Sequence[Entry], *, least: int) -> list[ChangedPair]:
    """Pairs with at least this likeness and the largest sum of likeness; and their differing parts."""
    if not source or not target:
        return []
    if len(source) * len(target) <= _MOST_CELLS:
        pairs = _best(source, target, least)
    else:
        pairs = _in_step(source, target, least)
    if not pairs and len(source) == len(target) and least < STRONG and target[0].timestamp_ms is None:
        # Nothing distinguishes them from others, not even a time: pair those at the same place.
        pairs = [*zip(source, target, strict=True)]
    return [(one, other, differing(one, other)) for one, other in pairs]


def pairs_on_both_sides(hunk: Hunk, is_promised: Callable[[int], bool]) -> list[ChangedPair]:
    """Records of a hunk that both logs hold for certain, though compacted, so that only a change explains the
    difference.

    Two records are one at the promised offset; with the same key, time and all but one part equal; or, mostly
    similar, at the same distance from both matching neighbours, if these are equally far apart in both logs:
    then nothing was missing between them when they were copied.
    """
    at = {copy.offset: copy for copy in hunk.target}
    of_key_and_time: dict[tuple[bytes, int | None], Entry] = {
        (copy.key, copy.timestamp_ms): copy
        for copy in reversed(hunk.target)
        if copy.has_key and copy.timestamp_ms is not None
    }
    is_as_long = (
        hunk.source_after is not None
        and hunk.target_after is not None
        and hunk.source_after - hunk.source_before == hunk.target_after - hunk.target_before
    )
    pairs: list[ChangedPair] = []
    taken: set[int] = set()
    for entry in hunk.source:
        copy = at.get(entry.offset) if is_promised(entry.offset) else None
        if copy is None and is_as_long:
            copy = at.get(entry.offset - hunk.source_before + hunk.target_before)
            if copy is not None and not likeness(entry, copy):
                copy = None
        if copy is None:
            copy = of_key_and_time.get((entry.key, entry.timestamp_ms))
            if copy is not None and likeness(entry, copy) < STRONG:
                copy = None
        if copy is not None and copy.offset not in taken:
            taken.add(copy.offset)
            pairs.append((entry, copy, differing(entry, copy)))
    return pairs


def _best(source: Sequence[Entry], target: Sequence[Entry], least: int) -> list[tuple[Entry, Entry]]:
    width = len(target) + 1
    sums = [[0] * width for _ in range(len(source) + 1)]
    weights = [[_weight(one, other, least) for other in target] for one in source]
    for i in range(len(source) - 1, -1, -1):
        row, below, weight = sums[i], sums[i + 1], weights[i]
        for j in range(len(target) - 1, -1, -1):
            best = max(below[j], row[j + 1])
            row[j] = max(best, weight[j] + below[j + 1]) if weight[j] else best
    pairs = []
    i = j = 0
    while i < len(source) and j < len(target):
        weight_here = weights[i][j]
        if weight_here and sums[i][j] == weight_here + sums[i + 1][j + 1]:
            pairs.append((source[i], target[j]))
            i, j = i + 1, j + 1
        elif sums[i][j] == sums[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _weight(source: Entry, target: Entry, least: int) -> int:
    found = likeness(source, target)
    return found if found >= least else 0


def _in_step(source: Sequence[Entry], target: Sequence[Entry], least: int) -> list[tuple[Entry, Entry]]:
    """Pairs among very many records: only those at the same place."""
    return [(one, other) for one, other in zip(source, target, strict=False) if _weight(one, other, least)]
