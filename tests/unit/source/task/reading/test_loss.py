"""What the source no longer holds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog_source.log.facts import EpochStart
from twinlog_source.task.reading.bounds import (
    KEPT_EPOCHS,
    LossReason,
    extended,
    find_divergence,
    find_loss,
    goes_on,
)


@pytest.mark.parametrize(
    ("position", "end", "diverged_at", "expected"),
    [
        *((inside, 20, None, None) for inside in (10, 15, 20)),
        (7, 20, None, (LossReason.RETENTION, 7, 10, 10)),
        # Nothing is lost on the target.
        *((behind, 20, None, (LossReason.TRUNCATION, 20, behind, 20)) for behind in (21, 25)),
        # The log was cut off and has grown past the position.
        (25, 90, 18, (LossReason.TRUNCATION, 18, 25, 18)),
    ],
)
def test_what_is_lost_of_a_log_that_begins_at_10(
    position: int, end: int, diverged_at: int | None, expected: tuple[LossReason, int, int, int] | None
) -> None:
    found = find_loss(position=position, log_start_offset=10, log_end_offset=end, diverged_at=diverged_at)
    assert (found and astuple(found)) == expected


def leader_end(log: Sequence[int], epoch: int) -> tuple[int, int]:
    """What a leader answers for an epoch; `log` holds the epoch of each of its records."""
    known = [each for each in log if each <= epoch]
    if not known or epoch > log[-1]:
        return (-1, -1)
    return known[-1], len(known)


def runs(log: Sequence[int]) -> tuple[EpochStart, ...]:
    return extended((), [(epoch, offset) for offset, epoch in enumerate(log)])


LOGS = st.lists(st.integers(0, 4), max_size=12).map(sorted)


@given(LOGS, st.integers(0, 12), st.lists(st.integers(5, 8), max_size=6).map(sorted))
def test_the_first_other_record_is_found_wherever_the_log_was_cut(
    copied: list[int], kept: int, written_since: list[int]
) -> None:
    now = [*copied[:kept], *written_since]
    epochs = runs(copied)
    ends = {start.leader_epoch: leader_end(now, start.leader_epoch) for start in epochs}
    found = find_divergence(len(copied), epochs, ends, compacted=False)
    true = next((at for at, epoch in enumerate(copied) if at >= len(now) or now[at] != epoch), None)
    if true is None:
        assert found is None
    else:
        # Never behind the first other record; before it where the leader knows no epoch to answer with.
        assert found is not None
        assert found <= true
        assert found == true or not written_since


@dataclass(frozen=True, slots=True)
class RebuiltReplica:
    """The leader epochs that a replica knows which was built from a compacted log: those of the records that
    were left, each from its first one on, and the one that it leads under."""

    starts: Mapping[int, int]
    end: int

    @classmethod
    def of(cls, log: Sequence[int], kept: Collection[int], *, leads_under: int) -> "RebuiltReplica":
        starts: dict[int, int] = {}
        for offset in sorted(kept):
            starts.setdefault(log[offset], offset)
        starts.setdefault(leads_under, len(log))
        return cls(starts, len(log))

    def end_of(self, epoch: int) -> tuple[int, int]:
        """As `LeaderEpochFileCache.endOffsetFor`."""
        if epoch == max(self.starts):
            return epoch, self.end
        later = [each for each in self.starts if each > epoch]
        if not later:
            return (-1, -1)
        known = [each for each in self.starts if each <= epoch]
        return (max(known) if known else epoch), self.starts[min(later)]


@given(LOGS.filter(bool), st.sets(st.integers(0, 11)), st.integers(1, 12))
def test_compaction_is_no_truncation_however_much_it_took(
    log: list[int], kept: set[int], position: int
) -> None:
    """A reassigned replica that holds only what compaction left leads now."""
    copied = log[:position]
    leader = RebuiltReplica.of(log, [offset for offset in kept if offset < len(log)], leads_under=9)
    epochs = runs(copied)
    ends = {start.leader_epoch: leader.end_of(start.leader_epoch) for start in epochs}
    assert find_divergence(len(copied), epochs, ends, compacted=True) is None
    last = epochs[-1].leader_epoch
    assert goes_on(len(copied), last, ends[last], compacted=True)


def test_a_compacted_log_that_ends_before_the_position_is_a_truncation() -> None:
    epochs = (EpochStart(4, 50), EpochStart(5, 100))
    assert find_divergence(111, epochs, {5: (4, 105)}, compacted=True) == 105
    assert not goes_on(111, 5, (4, 105), compacted=True)
    assert find_divergence(111, epochs, {5: (4, 120)}, compacted=True) is None
    assert find_divergence(111, epochs, {5: (4, 120)}, compacted=False) == 100
    assert find_divergence(111, epochs, {5: (-1, -1), 4: (4, 80)}, compacted=True) == 80


@pytest.mark.parametrize("compacted", [False, True])
@given(LOGS, st.integers(0, 12), st.lists(st.integers(5, 8), max_size=6).map(sorted))
def test_a_copy_whose_log_does_not_go_on_is_always_judged_to_have_diverged(
    compacted: bool, copied: list[int], kept: int, written_since: list[int]
) -> None:
    """Else it would neither be read nor be told."""
    if not copied:
        return
    now, epochs = [*copied[:kept], *written_since], runs(copied)
    ends = {start.leader_epoch: leader_end(now, start.leader_epoch) for start in epochs}
    last = epochs[-1].leader_epoch
    diverged = find_divergence(len(copied), epochs, ends, compacted=compacted)
    assert goes_on(len(copied), last, ends[last], compacted=compacted) == (diverged is None)


def test_a_leader_that_changes_often_is_remembered_in_part() -> None:
    epochs = runs(range(20))
    assert len(epochs) == KEPT_EPOCHS
    assert epochs[-1] == EpochStart(19, 19)
    assert extended(epochs, [(19, 25)]) is epochs
