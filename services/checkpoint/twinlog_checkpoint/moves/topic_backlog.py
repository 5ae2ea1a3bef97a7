"""The records of a partition that are not copied yet, and the time that copying them may take. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinlog.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBacklog:
    """The records that the copy of one partition lacks."""

    partition: TopicPartition
    end_offset: int | None
    """The end of the committed log; None when the cluster does not answer."""
    records_not_copied: int | None
    """None when the number is unknown, or not counted yet."""
    copied_to: int | None = None
    """The source offset after the last copied record."""
    message: str = ""
    """Why the number is unknown, or why the missing records are not copied."""
    counting: bool = False
    """The next measurement continues to count: `records_not_copied` is None, and `at_most` is known."""
    at_most: int | None = None
    """The most records that can be missing; None when even that is unknown."""
    waits_for_broker: bool = False
    """No broker that answers leads one of its logs, or the copy waits for such a broker."""

    @property
    def is_stuck(self) -> bool:
        """Whether no missing record is copied before somebody starts a broker."""
        return self.waits_for_broker and self.records_not_copied != 0


def total_backlog(backlog: Sequence[TopicBacklog]) -> int | None:
    total = 0
    for entry in backlog:
        if entry.records_not_copied is None:
            return None
        total += entry.records_not_copied
    return total


def counting(backlog: Sequence[TopicBacklog]) -> bool:
    """Whether only the count is missing, which further measurements will complete."""
    unknown = [entry for entry in backlog if entry.records_not_copied is None]
    return bool(unknown) and all(entry.counting for entry in unknown)


def most_missing(backlog: Sequence[TopicBacklog]) -> int | None:
    """The most records that can be missing; None when a part of it is unknown."""
    total = 0
    for entry in backlog:
        most = entry.at_most if entry.records_not_copied is None else entry.records_not_copied
        if most is None:
            return None
        total += most
    return total


def blocking(backlog: Sequence[TopicBacklog], most: int = 3) -> str:
    """Describe the missing records of each partition, with the cause; empty when everything is copied."""
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
    """Estimate when the backlog is copied, from the rate between two measurements. None when it cannot be
    estimated."""
    total = total_backlog(after)
    if total is None or any(entry.is_stuck for entry in after):
        return None
    if total == 0:
        return 0.0
    known = {entry.partition: entry.copied_to for entry in before}
    copied = sum(
        max(0, entry.copied_to - copied_before)
        for entry in after
        if entry.copied_to is not None and (copied_before := known.get(entry.partition)) is not None
    )
    return total / (copied / elapsed_seconds) if copied else None
