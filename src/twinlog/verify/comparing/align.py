"""Aligns two windows by their longest common subsequence (Hunt and Szymanski).

Takes n log n for records that mostly differ from each other.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence

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
