"""The bounds of a comparison, from the request and from truncations of the source. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from twinlog.comparison.model import Bounds, Range
from twinlog.model import TopicPartition

_TRUNCATION = "TRUNCATION"


def narrowed(
    bounds: Bounds,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    is_whole_copy: bool,
) -> Bounds:
    """Narrow the bounds to the requested range. `is_whole_copy`: the copy has nothing behind these ends."""
    begin, end = begins.get(bounds.source), ends.get(bounds.source)
    if end is not None and end < bounds.source_goal:
        bounds = replace(bounds, source_goal=max(end, bounds.source_start))
        if not is_whole_copy:
            # Records of the target behind the range are not compared. A copy that ends there has none.
            bounds = replace(bounds, target_goal=0, tail_is_free=True)
    if begin is not None and begin > bounds.source_start:
        start = min(begin, bounds.source_goal)
        bounds = replace(bounds, source_start=start, source_lost=(), head_is_free=True)
    return bounds


def with_truncations(bounds: Bounds) -> Bounds:
    """If the source's log was truncated after it was copied, the target has more than the source."""
    cuts = [Range(gap.from_offset, gap.from_offset) for gap in bounds.gaps if gap.reason == _TRUNCATION]
    kept = tuple(gap for gap in bounds.gaps if gap.reason != _TRUNCATION)
    until = bounds.offsets_kept_until
    if until is not None:
        until = min([until, *(cut.from_offset for cut in cuts)])
    return replace(bounds, gaps=kept, source_lost=(*bounds.source_lost, *cuts), offsets_kept_until=until)


def bounds_of_nothing(partition: TopicPartition, copy: TopicPartition, start: int, end: int) -> Bounds:
    """The bounds of a partition that only the copy has."""
    return Bounds(
        source=partition,
        target=copy,
        source_start=0,
        source_goal=0,
        source_limit=0,
        target_start=start,
        target_goal=end,
        target_limit=end,
        position=None,
    )
