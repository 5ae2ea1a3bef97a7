"""Moves of positions that were given up. Their records may be on the log nevertheless, or reach it later.

Invariant: a move that was reported as failed is undone if the log shows that it took place after all.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.model import TopicPartition
from twinlog_source.log.facts import CopyFact
from twinlog_source.log.gaps import Gap, GapIdentity, LogBounds, passed_over
from twinlog_source.partitions.reports import PartitionReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """A move that must have no effect."""

    to_offset: int
    before: int | None
    """Where the partition continues; None = it has no position."""
    number: int = 0
    """The id of the task's order; 0 = no task got one."""
    bounds: LogBounds | None = None
    """Start and end of the source's log, as in the order."""
    gaps: tuple[GapIdentity, ...] = ()
    """The gaps that the driver has entered or tried to enter."""
    began: bool = False
    """The copy began with this move, so its records on the log have to be withdrawn too."""
    copy: CopyFact | None = None
    """The previous decision about the copy, for an earlier target topic."""
    answered: bool = True
    """`before` is certain: the task has confirmed it, or there is no task."""


@dataclass(slots=True, kw_only=True)
class Withdrawals:
    """Use it on the driver's event loop only."""

    due: dict[TopicPartition, Withdrawal] = field(default_factory=dict)
    """The newest withdrawal of each partition."""

    def by_task(self, partition: TopicPartition, one: Withdrawal) -> None:
        """The task was told to withdraw it."""
        self.due[partition] = replace(one, answered=False)

    def by_driver(
        self, partition: TopicPartition, *, to_offset: int, before: int | None, gaps: Iterable[Gap] = ()
    ) -> None:
        """The driver's own record may still arrive."""
        left_out = tuple(gap.identity for gap in gaps)
        self.due[partition] = Withdrawal(to_offset=to_offset, before=before, gaps=left_out)

    def of_beginning(
        self, partition: TopicPartition, *, to_offset: int, before: int | None, copy: CopyFact | None
    ) -> None:
        """The same for a partition that was to begin there."""
        self.due[partition] = Withdrawal(to_offset=to_offset, before=before, began=True, copy=copy)

    def take(self, reports: Iterable[PartitionReport]) -> None:
        """Take the tasks' answers to withdrawn moves."""
        for report in reports:
            partition = report.partition
            given_up = self.due.get(partition)
            if given_up is None or not given_up.number:
                continue
            if report.repositioned == given_up.number:
                del self.due[partition]  # It was on the log before the task got the withdrawal.
            elif report.withdrawn == given_up.number and not given_up.answered:
                self.due[partition] = replace(given_up, before=report.position, answered=True)

    def settled(self, partitions: Collection[TopicPartition]) -> None:
        """Their task has ended in order, so its last report is on the log."""
        for partition in partitions:
            given_up = self.due.get(partition)
            if given_up is not None and given_up.number:
                del self.due[partition]

    def found(
        self, positions: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Withdrawal]:
        """Return those of `partitions` to undo: nobody writes them now, and the log shows that the move took
        place. Those that no longer matter are removed."""
        undo: dict[TopicPartition, Withdrawal] = {}
        for partition in partitions:
            given_up = self.due.get(partition)
            if given_up is None or not given_up.number:
                continue
            if given_up.answered and positions.get(partition) == given_up.to_offset != given_up.before:
                undo[partition] = given_up
            else:
                del self.due[partition]
        return undo

    @property
    def of_driver(self) -> dict[TopicPartition, Withdrawal]:
        return {partition: one for partition, one in self.due.items() if not one.number}

    def done(self, partition: TopicPartition, one: Withdrawal) -> None:
        """The valid state is on the log behind it."""
        if self.due.get(partition) is one:
            del self.due[partition]


def gaps_of(gaps: Mapping[GapIdentity, Gap], partition: TopicPartition, one: Withdrawal) -> list[GapIdentity]:
    """The ledger entries of what this move left out, as the task wrote them one by one; empty when they are
    not complete."""
    if one.before is None:
        return []
    left_out = passed_over(
        partition,
        from_offset=one.before,
        to_offset=one.to_offset,
        bounds=one.bounds,
        found_at_ms=0,
    )
    held = [gaps.get(gap.identity) for gap in left_out]
    if any(have is None or have.to_offset != gap.to_offset for have, gap in zip(held, left_out, strict=True)):
        return []
    return [gap.identity for gap in left_out]
