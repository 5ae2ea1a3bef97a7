"""Joins neighbouring differences and ranges."""

from collections.abc import Iterable
from dataclasses import replace

from twinlog.comparison.model import Difference, DifferenceKind, NotCompared


def merged(differences: Iterable[Difference]) -> list[Difference]:
    """In the order of the source, then the target; neighbours of one kind are joined and counted."""
    ordered = sorted(differences, key=_place)
    runs: list[Difference] = []
    for each in ordered:
        if runs and _continues(runs[-1], each):
            runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
        else:
            runs.append(each)
    return runs


_END = 1 << 63


def _place(difference: Difference) -> tuple[str, int, int]:
    source, target = difference.source_offset, difference.target_offset
    return (
        difference.kind,
        _END if source is None else source,
        _END if target is None else target,
    )


def _continues(run: Difference, each: Difference) -> bool:
    if run.kind is not each.kind or run.changed != each.changed or run.found_in or each.found_in:
        return False
    source_on = _follows(run.source_offset, each.source_offset, run.count)
    target_on = _follows(run.target_offset, each.target_offset, run.count)
    if run.kind is DifferenceKind.MISSING:
        return source_on and run.target_offset == each.target_offset
    if run.kind is DifferenceKind.FOREIGN:
        return target_on and run.source_offset == each.source_offset
    return source_on and target_on


def _follows(begin: int | None, offset: int | None, count: int) -> bool:
    return begin is not None and offset == begin + count


def merged_ranges(ranges: Iterable[NotCompared]) -> list[NotCompared]:
    """In order of side and offset; neighbours with one reason are joined."""
    result: list[NotCompared] = []
    for each in sorted(ranges, key=lambda each: (each.side, each.from_offset)):
        last = result[-1] if result else None
        if (
            last is not None
            and (last.side, last.reason, last.detail) == (each.side, each.reason, each.detail)
            and last.is_harmless == each.is_harmless
            and each.from_offset <= last.to_offset
        ):
            result[-1] = replace(last, to_offset=max(last.to_offset, each.to_offset))
        else:
            result.append(each)
    return result
