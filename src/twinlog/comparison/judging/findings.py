"""Results about the hunks of a comparison: differences, and ranges not compared."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from twinlog.comparison.compare import Comparison
from twinlog.comparison.judging.pairing import ChangedPair, changed_pairs
from twinlog.comparison.model import (
    Bounds,
    Difference,
    Kind,
    NotCompared,
    PartitionProof,
    Reason,
    Side,
)
from twinlog.comparison.records import Entry
from twinlog.comparison.results import Hunk
from twinlog.comparison.sides import Steps, Window

_SCANNED_TOGETHER = 4096
_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class Findings:
    comparison: Comparison
    hunks: list[Hunk]
    """Each step removes the part that it explains."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        return self.comparison.bounds

    @property
    def proof(self) -> PartitionProof:
        return self.comparison.outcome.proof

    def identity(self, entry: Entry) -> Hashable:
        """Equal for equal records."""
        return entry[1:] if self.proof.timestamps_compared else entry[2:]

    def find(
        self, kind: Kind, source_offset: int | None, target_offset: int | None, changed: tuple[str, ...] = ()
    ) -> None:
        self.differences.append(
            Difference(kind=kind, source_offset=source_offset, target_offset=target_offset, changed=changed)
        )

    def not_compared(
        self,
        side: Side,
        entries: Iterable[Entry],
        reason: Reason,
        *,
        detail: str = "",
        is_harmless: bool | None = None,
    ) -> None:
        """Note records of one side as not compared, for this reason."""
        offsets = [entry.offset for entry in entries]
        if offsets:
            self.proof.not_compared.append(
                NotCompared(
                    side=side,
                    from_offset=min(offsets),
                    to_offset=max(offsets) + 1,
                    reason=reason,
                    detail=detail,
                    is_harmless=reason.is_harmless if is_harmless is None else is_harmless,
                )
            )

    def remember(self, side: Side, entry: Entry) -> None:
        """Keep the record for a search in other partitions."""
        unmatched = self.proof.unmatched
        if len(unmatched) < _MOST_REMEMBERED:
            unmatched[side, entry.offset] = self.identity(entry)

    def take_changed(self, hunk: Hunk, *, least: int) -> None:
        """Pair records of both sides with at least this likeness as changed."""
        self.take_pairs(hunk, changed_pairs(hunk.source, hunk.target, least=least))

    def take_pairs(self, hunk: Hunk, pairs: Sequence[ChangedPair]) -> None:
        """Note these pairs of records as changed."""
        for entry, copy, parts in pairs:
            self.find(Kind.CHANGED, entry.offset, copy.offset, parts)
        originals, copies = {entry.offset for entry, _, _ in pairs}, {copy.offset for _, copy, _ in pairs}
        hunk.source = [entry for entry in hunk.source if entry.offset not in originals]
        hunk.target = [entry for entry in hunk.target if entry.offset not in copies]

    def scan(self, side: Side, start: int, limit: int, note: Callable[[Entry], None]) -> Steps[None]:
        """Read a side again, and call `note` with each record."""
        window = Window(
            side=side,
            next_offset=start,
            limit=limit,
            max_open_bytes=self.comparison.max_open_bytes,
        )
        while not window.is_complete:
            yield from window.grow(_SCANNED_TOGETHER)
            for entry in window.entries:
                note(entry)
            window.entries.clear()
