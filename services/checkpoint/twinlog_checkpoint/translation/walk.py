"""Where offsets of one log lie in the other: what a comparison of both, from a place on, shows of them. Pure.

One log is a copy of the other, with differences that a mirror leaves: records copied twice (a restart at
least once), records missing on either side (compaction, retention, a gap), records not copied yet.

What it promises: an answer is never ahead of the record asked for. Where a record occurs several times in the
copy one is taken from which the logs continue alike, so records may be read twice but none is skipped.
Without the producers' timestamps this holds only while the logs do not differ: see `Walk.is_sure`.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from twinlog.batches import Batch, open_records
from twinlog.comparison.align import SETTLED_RUN, Pair, aligning_tokens
from twinlog.comparison.records import Entry
from twinlog.comparison.results import Results
from twinlog.comparison.sides import Window
from twinlog_checkpoint.translation.history import OffsetPair

_FIRST_MILESTONE = 256
"""A pair is kept after so many matches, then after twice as many each time, so that the next walk starts
nearer."""


class Outcome(Enum):
    MATCH = "MATCH"
    """The record was found and compared."""
    AT_END = "AT_END"
    """Nothing at or after the offset has been copied: the place after the last copied record."""
    NOT_BEFORE = "NOT_BEFORE"
    """The record is gone from its own log, and its copy does not lie before the offset."""
    LOST = "LOST"
    """The logs differ so much that the way was not found again."""


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    offset: int | None
    """In the other log; None when LOST."""


LOST = Answer(Outcome.LOST, None)


class EntryCheck(Enum):
    """Whether the pair that a walk enters at is what it says: one and the same record."""

    SAME = "SAME"
    UNSEEN = "UNSEEN"
    """At least one side no longer shows it."""
    DIFFERENT = "DIFFERENT"


def same_record(here: Entry, there: Entry) -> bool:
    """Equal key and value, and equal timestamps where both logs keep the producer's."""
    return (here.key, here.value) == (there.key, there.value) and (
        here.timestamp_ms == there.timestamp_ms or None in (here.timestamp_ms, there.timestamp_ms)
    )


@dataclass(slots=True)
class Repeats:
    """Equal records of the source, by the first and the last of each: content does not tell which of them a
    copy has."""

    _spans: dict[object, tuple[int, int]] = field(default_factory=dict)

    def add(self, token: object, offset: int) -> None:
        """Rising offsets."""
        first, _ = self._spans.get(token, (offset, offset))
        self._spans[token] = first, offset

    def divide_at(self, place: int) -> bool:
        """Whether no record before is equal to one at the place or behind it: each is on one side."""
        return not any(first < place <= last for first, last in self._spans.values())

    def names(self, place: int) -> bool:
        """As `divide_at`, and the record there occurs once: its copy is no other's."""
        return not any(first <= place <= last and first < last for first, last in self._spans.values())


@dataclass(kw_only=True)
class Walk(Results):
    """The answers for a rising series of offsets, from the results of a comparison that begins at or before
    the first of them. Drive the comparison until `is_done`, then call `finish`."""

    wanted: deque[int]
    """Rising; those that have no answer yet."""
    pinned: bool = True
    """The other log is entered at a place that is surely not behind the first wanted record's copy.

    Unpinned, the very first record here must be found, or the walk is lost: were it skipped because the other
    log was entered too late, the answer would be ahead."""
    entry: OffsetPair | None = None
    """The pair that both sides are entered at; when its records differ the walk is lost, as nothing is sure
    then."""
    next_pair: OffsetPair | None = None
    """The next known pair behind the first wanted offset: a walk without times goes on to it."""
    answers: dict[int, Answer] = field(default_factory=dict)
    learned: list[OffsetPair] = field(default_factory=list)
    milestone: OffsetPair | None = None
    """To be kept, if what follows it does not speak against it."""
    kept: list[OffsetPair] = field(default_factory=list)
    """Pairs far before those wanted: the next walk starts there if this one is cut off."""
    repeats: Repeats = field(default_factory=Repeats)
    """Of the source, around what was found; none where both logs have equally many records."""
    entry_check: EntryCheck = EntryCheck.UNSEEN
    first_match: OffsetPair | None = None
    last_match: OffsetPair | None = None
    """The furthest pair so far."""
    differences: int = 0
    """How often the logs differed where they were compared."""
    is_lost: bool = False
    """The way was not found, or leads nowhere: a log may hold few records of those that the other has."""
    is_even: bool | None = None
    """Both logs show equally many records before `next_pair`; None: it was not reached."""
    _passed: int = 0
    """Matches."""
    _next_milestone: int = _FIRST_MILESTONE

    @property
    def has_no_times(self) -> bool:
        """A log has the broker's own times: records with equal contents cannot be told apart."""
        return not self.proof.timestamps_compared

    @property
    def can_be_sure(self) -> bool:
        """Without times and without a pair nothing that is found is."""
        return not self.has_no_times or self.entry is not None or self.next_pair is not None

    @property
    def is_done(self) -> bool:
        if not self.can_be_sure:
            return True  # No more is read.
        if self.is_lost or self.wanted or not self._is_settled:
            return self.is_lost
        may_prove = self.next_pair is not None and self.is_even is None and not self.differences
        return not (self.has_no_times and may_prove)

    @property
    def _is_settled(self) -> bool:
        """A record found without a pair may be another one like it: what follows has to confirm it."""
        return self.pinned or self.proof.records >= SETTLED_RUN

    @property
    def is_sure(self) -> bool:
        """Whether no record was taken for another one with the same contents.

        Where a log has no times and the copy lacks records, or holds some twice, that may be a later one. So
        what is found there counts only between two known pairs between which both logs show equally many
        records, or behind the newest one, and while no difference is met.
        """
        is_placed = self.can_be_sure and (self.next_pair is None or self.is_even is True)
        return not self.has_no_times or (self.differences == 0 and is_placed)

    def finish(self) -> None:
        """No more can be matched: give every wanted offset that is left the same answer."""
        if self.last_match is None or self.is_lost:
            rest = LOST
        else:
            rest = Answer(Outcome.AT_END, self.last_match.downstream + 1)
        self.answers |= dict.fromkeys(self.wanted, rest)
        self.wanted.clear()
        if self.last_match is not None:
            self.learned.append(self.last_match)
        if not self.has_no_times:
            return
        limit = float("inf") if self.next_pair is None else self.next_pair.upstream
        self.answers = {
            offset: told if self.is_sure else LOST for offset, told in self.answers.items() if offset <= limit
        }
        self.learned = [pair for pair in self.learned if self.is_sure and pair.upstream <= limit]
        if not self.is_sure:
            self.first_match = self.last_match = None

    # ------------------------------------------------------------------------------ results of the comparison

    def add_equal_batches(self, source: Batch, target: Batch) -> None:
        super().add_equal_batches(source, target)
        header, shift = source.header, target.header.base_offset - source.header.base_offset
        if (self.wanted and self.wanted[0] <= header.last_offset) or not header.is_dense:
            offsets = [record[0] for record in open_records(source)]
        else:
            offsets = [header.base_offset, header.last_offset]
            self._passed += header.record_count
        self._match(offsets, [offset + shift for offset in offsets])

    def add_equal_records(self, source: Sequence[int], target: Sequence[int]) -> None:
        super().add_equal_records(source, target)
        self._match(source, target)

    def add_windows(
        self, source: Window, target: Window, begins: Pair, pairs: Sequence[Pair], cut: Pair
    ) -> None:
        is_settled = self.first_match is None or self._is_settled
        super().add_windows(source, target, begins, pairs, cut)
        self.hunks.clear()
        is_whole = source.is_complete and target.is_complete
        matched_to = (pairs[-1][0] + 1, pairs[-1][1] + 1) if pairs else (0, 0)
        if not is_settled or (self.first_match is None and self._enters_wrong(source, target, pairs)):
            self.is_lost = True
            return
        self.differences += (
            any(pair != (index, index) for index, pair in enumerate(pairs)) or cut != matched_to
        )
        if (cut != matched_to and not is_whole) or _skips_some(source, target, pairs):
            # Nothing confirms the last matches, or what follows them is not known.
            self.is_lost = True
            return
        self._match(
            [source.entries[index].offset for index, _ in pairs],
            [target.entries[index].offset for _, index in pairs],
        )

    def add_too_different(self, from_offset: int) -> None:
        self.is_lost = True

    def _enters_wrong(self, source: Window, target: Window, pairs: Sequence[Pair]) -> bool:
        first, there = source.entries[0].offset, target.entries[0].offset
        found = pairs[0] if pairs else (-1, -1)
        if self.entry == OffsetPair(first, there) and found != (0, 0):
            self.entry_check = EntryCheck.DIFFERENT
            return True
        return not self.pinned and found[0] != 0

    def _match(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Take equal records: rising offsets on both sides."""
        if not source:
            return
        if self.first_match is None:
            self.first_match = OffsetPair(source[0], target[0])
            if self.first_match == self.entry:
                self.entry_check = EntryCheck.SAME
        if self.next_pair is not None and self.is_even is None and source[-1] >= self.next_pair.upstream:
            at = bisect_left(source, self.next_pair.upstream)
            before = self.last_match.downstream if self.last_match is not None else -1
            self.is_even = before < self.next_pair.downstream and at == bisect_left(
                target, self.next_pair.downstream
            )
        while self.wanted and self.wanted[0] <= source[-1]:
            at = bisect_left(source, self.wanted[0])
            self.learned.append(OffsetPair(source[at], target[at]))
            self.answers[self.wanted.popleft()] = Answer(Outcome.MATCH, target[at])
        self.last_match = OffsetPair(source[-1], target[-1])
        self._passed += len(source)
        if self.milestone is None and self._passed >= self._next_milestone:
            self._next_milestone = 2 * self._passed
            self.milestone = self.last_match


def _skips_some(source: Window, target: Window, pairs: Sequence[Pair]) -> bool:
    """Whether a record here has its only copy among those that were passed there without a match."""
    here, there = aligning_tokens(source, target)
    first_here: dict[object, int] = {}
    for index in range(len(here) - 1, -1, -1):
        first_here[here[index]] = index
    last_there = {token: index for index, token in enumerate(there)}
    passed = (0, 0)
    for pair in pairs:
        for index in range(passed[1], pair[1]):
            token = there[index]
            if last_there[token] == index and first_here.get(token, -1) >= passed[0]:
                return True
        passed = pair[0] + 1, pair[1] + 1
    return False
