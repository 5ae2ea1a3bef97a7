"""Walks two logs side by side, record by record, to find where offsets of the one lie in the other. Pure.

Both logs are seen as their visible records in order: no markers, nothing aborted. One is a copy of the other,
with differences that a mirror leaves: records copied twice (a restart at least once), records missing on
either side (compaction, retention, a gap), records not copied yet. The walk compares record with record;
where they differ it looks for the nearest place from which both continue alike.

What it promises: an answer is never ahead of the record asked for. Where a record occurs several times in the
copy the first occurrence from which the logs continue alike is taken, so records may be read twice but
none is skipped. Without the producers' timestamps this holds only while the logs do not differ: see
`pair_walks`.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import NamedTuple

from twinlog_checkpoint.translation.history import OffsetPair

WINDOWS = (64, 512, 4096)
"""Records looked at on each side to find the way again, wider each time."""
_CONTEXT_RECORDS = 8
"""How many following records confirm a place; half of them must be found on the other side."""
_LEARN_EVERY = 256
"""A pair is learned from every so many matches, so that the next walk starts nearer."""


class Print(NamedTuple):
    """What is compared of a record. A NamedTuple, as one is made per record."""

    offset: int
    timestamp_ms: int | None
    """None when the log's time is the broker's own (LogAppendTime): it says nothing then."""
    content: int
    """Hash of key and value."""


class Need(Enum):
    """What a walk wants next."""

    SOURCE = "SOURCE"
    TARGET = "TARGET"
    NOTHING = "NOTHING"
    """Every offset has its answer, or none more can be had."""


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
    """On the target; None when LOST."""


class EntryCheck(Enum):
    """Whether the pair that a walk enters at is what it says: one and the same record."""

    SAME = "SAME"
    UNSEEN = "UNSEEN"
    """At least one side no longer shows it."""
    DIFFERENT = "DIFFERENT"


def same_record(source: Print, target: Print) -> bool:
    """Equal key and value, and equal timestamps where both logs keep the producer's."""
    return source.content == target.content and (
        source.timestamp_ms == target.timestamp_ms
        or source.timestamp_ms is None
        or target.timestamp_ms is None
    )


class Walk:
    """One walk for a rising series of source offsets.

    Call `step`, feed what it needs, repeat until it needs nothing; then `answers` holds every wanted offset.
    """

    def __init__(
        self, wanted: Iterable[int], *, pinned: bool = True, entry: OffsetPair | None = None
    ) -> None:
        """`pinned`: the target is fed from a place that is surely not behind the first wanted record's copy.

        Unpinned, the very first source record must be found, or the walk is lost: were it skipped because the
        target was entered too late, the answer would be ahead. `entry`: the pair that both sides are fed
        from; when its records differ the walk is lost, as nothing is sure then.
        """
        self._pinned = pinned
        self._entry = entry
        self.entry_check = EntryCheck.UNSEEN
        self._pending = deque(sorted(set(wanted)))
        self._source: deque[Print] = deque()
        self._target: deque[Print] = deque()
        self._source_ended = False
        self._target_ended = False
        self._last: OffsetPair | None = None
        self._matches = 0
        self.first_match: OffsetPair | None = None
        self.jumps = 0
        """How often the logs differed where they were compared, and the way was found again further on."""
        self.has_no_times = False
        """A log has the broker's own times: records with equal contents cannot be told apart."""
        self.way_lost = False
        """It was looked for and not found: a log may hold few records of those that the other has."""
        self.answers: dict[int, Answer] = {}
        self.learned: list[OffsetPair] = []

    @property
    def last_match(self) -> OffsetPair | None:
        """The furthest pair so far."""
        return self._last

    def feed_source(self, prints: Iterable[Print], *, ended: bool) -> None:
        """Records that follow those fed before; `ended`: there are no more."""
        self._feed(self._source, prints)
        self._source_ended = ended

    def feed_target(self, prints: Iterable[Print], *, ended: bool) -> None:
        self._feed(self._target, prints)
        self._target_ended = ended

    def _feed(self, side: "deque[Print]", prints: Iterable[Print]) -> None:
        before = len(side)
        side.extend(prints)
        if len(side) > before:
            self.has_no_times = self.has_no_times or side[-1].timestamp_ms is None

    def step(self) -> Need:
        """Go on as far as the records at hand allow."""
        while self._pending:
            if not self._source or not self._target:
                need = self._missing_side()
                if need is not Need.NOTHING:
                    return need
                self._end(Outcome.AT_END)
            elif self._entry_differs():
                self._end(Outcome.LOST)
            elif self._pinned and same_record(self._source[0], self._target[0]):
                self._match(self._source.popleft(), self._target.popleft())
            else:
                need = self._find_way()
                if need is not Need.NOTHING:
                    return need
        return Need.NOTHING

    def forget_behind(self, upstream: int | None, *, keep_answers: bool) -> None:
        """Forget what was found behind an offset (None = the end); and all that was found before it as well,
        unless `keep_answers`."""
        limit = float("inf") if upstream is None else upstream
        self.answers = {offset: told for offset, told in self.answers.items() if offset <= limit}
        self.learned = [pair for pair in self.learned if keep_answers and pair.upstream <= limit]
        if self._last is not None and (not keep_answers or self._last.upstream > limit):
            self._last = self.learned[-1] if self.learned else None
        if not keep_answers:
            self.first_match = None
            self.answers = dict.fromkeys(self.answers, Answer(Outcome.LOST, None))

    def _missing_side(self) -> Need:
        if not self._source and not self._source_ended:
            return Need.SOURCE
        if not self._target and not self._target_ended:
            return Need.TARGET
        return Need.NOTHING

    def _entry_differs(self) -> bool:
        entry, self._entry = self._entry, None
        source, target = self._source[0], self._target[0]
        if entry is None or (source.offset, target.offset) != (entry.upstream, entry.downstream):
            return False
        same = same_record(source, target)
        self.entry_check = EntryCheck.SAME if same else EntryCheck.DIFFERENT
        return not same

    def _match(self, source: Print, target: Print) -> None:
        pair = self._last = OffsetPair(source.offset, target.offset)
        self.first_match = self.first_match or pair
        self._matches += 1
        if self._matches % _LEARN_EVERY == 0:
            self.learned.append(pair)
        if self._pending[0] > source.offset:
            return
        self.learned.append(pair)
        while self._pending and self._pending[0] <= source.offset:
            self.answers[self._pending.popleft()] = Answer(Outcome.MATCH, target.offset)

    def _end(self, outcome: Outcome) -> None:
        """No more can be matched: give every pending offset the same answer."""
        if self._last is None:
            outcome = Outcome.LOST
        offset = self._last.downstream + 1 if self._last and outcome is Outcome.AT_END else None
        if self._last is not None:
            self.learned.append(self._last)
        while self._pending:
            self.answers[self._pending.popleft()] = Answer(outcome, offset)

    def _find_way(self) -> Need:
        """The logs differ here: drop what stands before the nearest place where they agree again."""
        for size in WINDOWS:
            if len(self._source) < size and not self._source_ended:
                return Need.SOURCE
            if len(self._target) < size and not self._target_ended:
                return Need.TARGET
            source = Window(
                tuple(islice(self._source, size)), ended=self._source_ended and len(self._source) <= size
            )
            target = Window(
                tuple(islice(self._target, size)), ended=self._target_ended and len(self._target) <= size
            )
            place = find_place(source, target, pinned=self._pinned)
            if place is not None:
                self.jumps += self._pinned or place != (0, 0)
                self._pinned = True
                for _ in range(place[0]):
                    self._source.popleft()
                for _ in range(place[1]):
                    self._target.popleft()
                return Need.NOTHING
        self.way_lost = True
        all_of_target_seen = self._target_ended and len(self._target) <= WINDOWS[-1]
        # Records at the target's end that are found nowhere were copied twice, or are gone from the source.
        self._end(Outcome.AT_END if all_of_target_seen else Outcome.LOST)
        return Need.NOTHING


class Window:
    """The next records of one side, and where each lies."""

    def __init__(self, records: Sequence[Print], *, ended: bool) -> None:
        """`ended`: the log has no more."""
        self.records = records
        self.ended = ended
        self._by_content: dict[int, list[int]] = {}
        self._by_time: dict[tuple[int | None, int], list[int]] = {}
        for index, record in enumerate(records):
            self._by_content.setdefault(record.content, []).append(index)
            # Looked up by time as well: thousands of equal values are nothing rare.
            self._by_time.setdefault((record.timestamp_ms, record.content), []).append(index)

    def places(self, record: Print) -> Sequence[int]:
        """Rising indexes of what is the same record."""
        if record.timestamp_ms is None:
            return self._by_content.get(record.content, ())
        same_time = self._by_time.get((record.timestamp_ms, record.content), ())
        no_time = self._by_time.get((None, record.content), ())
        return sorted((*same_time, *no_time)) if no_time else same_time

    def following(self, index: int) -> Sequence[Print] | None:
        """The records that confirm a place; None when the window ends before them and the log does not."""
        found = self.records[index + 1 : index + 1 + _CONTEXT_RECORDS]
        return found if self.ended or len(found) == _CONTEXT_RECORDS else None


def find_place(source: Window, target: Window, *, pinned: bool = True) -> tuple[int, int] | None:
    """The first source record that is found on the target, and the first place where it is, confirmed.

    Returns their indexes; None when no place is sure, so that more records have to be looked at. Unpinned,
    only the very first source record will do.
    """
    furthest = _furthest_place(source, target)
    for i, record in enumerate(source.records if pinned else source.records[:1]):
        places = target.places(record)
        only_one = pinned and len(places) == 1 and len(source.places(record)) == 1
        for j in places:
            if j > furthest:
                break
            if only_one or _goes_on_alike(source, i, target, j):
                return i, j
    return None


def _furthest_place(source: Window, target: Window) -> int:
    """Beyond it some source record would have its only copies among the target records that are dropped."""
    last_copies = (target.places(record)[-1] for record in target.records if source.places(record))
    return min(last_copies, default=len(target.records))


def _goes_on_alike(source: Window, i: int, target: Window, j: int) -> bool:
    """Whether what follows on one side is found, in order, on the other: half of it suffices.

    Compaction may have taken records from either side, so it is enough that one side's are found in the
    other.
    """
    after_source, after_target = source.following(i), target.following(j)
    if after_source is None or after_target is None:
        return False
    if not after_source or not after_target:
        return True
    in_target = _found_in_order(after_source, target, j)
    in_source = _found_in_order(after_target, source, i)
    return 2 * in_target >= len(after_source) or 2 * in_source >= len(after_target)


def _found_in_order(records: Sequence[Print], window: Window, start: int) -> int:
    """How many of `records` are in the window after index `start`, each after the one before."""
    found = 0
    for record in records:
        places = window.places(record)
        at = bisect_right(places, start)
        if at < len(places):
            found, start = found + 1, places[at]
    return found
