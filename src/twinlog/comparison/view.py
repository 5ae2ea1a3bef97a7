"""What a comparison sees of a log: the visible records of those writers that count, as a copy holds them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from twinlog.batches.header import Batch, BatchHeader
from twinlog.batches.transformed import ChangeRecords, transformed
from twinlog.batches.visibility import AbortedTransaction, Visibility, classify


def of_anybody(_: BatchHeader) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One side's projection: two logs are compared by what their views show of them."""

    read_committed: bool
    counts: Callable[[BatchHeader], bool] = of_anybody
    """Whether a batch is of the writers that are compared, by its producer id. A topic may hold records of
    several origins: those of the others are passed over, and are no difference."""
    change: ChangeRecords | None = None
    """What the copy does to the records of this log before it writes them: the source's side of a flow with
    transforms."""

    def of(self, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> tuple[Batch, ...]:
        """The view of one fetch. Raises WireFormatError for a batch that cannot be changed."""
        seen = classify(batches, aborted, read_committed=self.read_committed)
        shown = (
            batch
            for batch, visibility in seen
            if visibility is Visibility.VISIBLE and self.counts(batch.header)
        )
        return tuple(shown if self.change is None else (transformed(batch, self.change) for batch in shown))
