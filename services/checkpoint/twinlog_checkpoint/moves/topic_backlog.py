"""What is not copied yet of a topic, and how long that may take. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBacklog:
    """What the copy of one partition lacks."""

    partition: TopicPartition
    end_offset: int | None
    """End of the committed log; None when the cluster does not answer."""
    records_not_copied: int | None
    """None when it cannot be known, or is not counted yet."""
    copied_to: int | None = None
    """The source offset after the last copied record."""
    message: str = ""
    """Why it is not known, or why what is missing is not copied."""
    counting: bool = False
    """The count continues with the next look: `records_not_copied` is None, and `at_most` is known."""
    at_most: int | None = None
    """No more records than this are missing; None when even that is not known."""


def total_backlog(backlog: Sequence[TopicBacklog]) -> int | None:
    total = 0
    for entry in backlog:
        if entry.records_not_copied is None:
            return None
        total += entry.records_not_copied
    return total


def counting(backlog: Sequence[TopicBacklog]) -> bool:
    """Whether counting on is all that is missing to know the backlog."""
    unknown = [entry for entry in backlog if entry.records_not_copied is None]
    return bool(unknown) and all(entry.counting for entry in unknown)


def most_missing(backlog: Sequence[TopicBacklog]) -> int | None:
    """The most records that can be missing; None when a part of it is not known."""
    total = 0
    for entry in backlog:
        most = entry.at_most if entry.records_not_copied is None else entry.records_not_copied
        if most is None:
            return None
        total += most
    return total


def blocking(backlog: Sequence[TopicBacklog], most: int = 5) -> str:
    """What is not copied, partition by partition, with the cause; empty when all is."""
    missing = [entry for entry in backlog if entry.records_not_copied != 0]
    shown = "; ".join(f"{entry.partition}: {_missing(entry)} ({entry.message})" for entry in missing[:most])
    more = f"; and {len(missing) - most} more partitions" if len(missing) > most else ""
    return shown + more


def _missing(entry: TopicBacklog) -> str:
    if entry.records_not_copied is not None:
        return "1 record" if entry.records_not_copied == 1 else f"{entry.records_not_copied} records"
    return "not known" if entry.at_most is None else f"at most {entry.at_most} records"


def estimated_seconds(
    before: Sequence[TopicBacklog], after: Sequence[TopicBacklog], elapsed_seconds: float
) -> float | None:
    """Until the backlog is copied, at the rate between two looks. None when it cannot be said."""
    total = total_backlog(after)
    if total is None:
        return None
    if total == 0:
        return 0.0
    known = {entry.partition: entry.copied_to for entry in before}
    copied = sum(
        max(0, entry.copied_to - (known.get(entry.partition) or entry.copied_to))
        for entry in after
        if entry.copied_to is not None
    )
    return total / (copied / elapsed_seconds) if copied else None
