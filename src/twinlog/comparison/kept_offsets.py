"""Checks that the records of a copy have their source's offsets, where that is promised (docs/offsets.md)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.comparison.model import Difference, Kind

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
                kind=Kind.CHANGED,
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
