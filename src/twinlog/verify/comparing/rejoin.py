"""Behind a mismatch: which records of two windows belong together, and how far that is certain."""

from collections.abc import Hashable, Sequence

from twinlog.verify.comparing.align import Pair, align
from twinlog.verify.comparing.kept_offsets import KeptOffsets
from twinlog.verify.comparing.sides import Window

MOST_WINDOW = 1 << 20
"""Records of one side that are held to find where both sides belong together again."""
MOST_TAIL = 1 << 14
"""As many of the source, for records behind which the target has no more."""
SETTLED_RUN = 16
"""So many records in a row that belong together end a hunk."""
_ENOUGH_SCATTERED = 256
"""So many records that belong together, though not in a row, are at the right place."""


def aligning_tokens(one: Window, other: Window) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """What records are aligned by: without timestamps where the target has its own."""
    first = 2 if one.own_timestamps or other.own_timestamps else 1
    return [entry[first:] for entry in one.entries], [entry[first:] for entry in other.entries]


def settled_run(pairs: Sequence[Pair], wanted: int = SETTLED_RUN) -> Pair | None:
    """Behind the first pairs in a row that are so many."""
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
    """Where records repeat themselves, those at the promised offsets belong together; and where one side
    has more before the range, those right before the first ones that surely do."""
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
    source: Window, target: Window, pairs: Sequence[Pair], *, size: int, is_compacted: bool
) -> Pair | None:
    """How many entries of both windows are decided by these pairs; None: larger windows are wanted."""
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
    if size >= (MOST_TAIL if target.is_complete else MOST_WINDOW):
        return lengths
    return None


def _from_first_run(pairs: list[Pair], source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Pair]:
    """A record that is there many times belongs to what follows it, not to another one like it far before:
    where as many belong together so."""
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
