"""Requests for markers that come late, in parts and in any order: at most one of those that were sent on the
same numbers is carried out."""

from dataclasses import dataclass, field
from random import Random

import pytest

from twinlog_source.preserved.marker_numbers import (
    LARGEST,
    STEP,
    MarkerState,
    first_number,
    following_numbers,
)
from unit.histories import histories

SCHEDULES = histories(400, 60_000)
LENGTH = 12
STEPS = 90


@dataclass(eq=False)
class Request:
    """Numbers that are not tried yet."""

    producer_epoch: int
    numbers: list[int]
    was_refused: bool = False


@dataclass(eq=False)
class Log:
    """Where the leader appends markers, and records whose sequence number follows."""

    source: list[bool]
    """Which offsets show a record."""
    entries: list[int | None] = field(default_factory=list)
    """Number of the record at each offset, None of a marker."""
    state: MarkerState = field(default_factory=MarkerState)

    def try_next(self, request: Request) -> None:
        number = request.numbers.pop(0)
        known = self.state
        if request.producer_epoch < known.producer_epoch or number < known.coordinator_epoch:
            request.was_refused = True
            return
        self.state = MarkerState(request.producer_epoch, number)
        self.entries.append(None)

    def append_record(self, number: int) -> None:
        records = sum(entry is not None for entry in self.entries)
        if number == records:
            self.entries.append(number)

    @property
    def is_the_source_so_far(self) -> bool:
        shown, records = [], 0
        for shows in self.source:
            shown.append(records if shows else None)
            records += shows
        return self.entries == shown[: len(self.entries)]


@dataclass(eq=False)
class Owner:
    """Reads the end with the numbers, and fills; it may be replaced, sleep and wake up at any time."""

    log: Log
    epoch: int
    end: int | None = None
    state: MarkerState = field(default_factory=MarkerState)
    request: Request | None = None

    def read(self) -> None:
        self.end, self.state = len(self.log.entries), self.log.state

    def act(self) -> Request | None:
        """A request that is on its way from now on."""
        if self.request is not None:
            self._take_answer(self.request)
        elif self.end is None:
            self.read()
        elif self.end < len(self.log.source):
            if self.log.source[self.end]:
                self.log.append_record(sum(self.log.source[: self.end]))
                self.end += 1
            else:
                return self._fill(self.end)
        return None

    def lose_answer(self, epoch: int) -> None:
        """What it sent stays on its way."""
        if self.request is not None:
            self.request, self.end, self.epoch = None, None, epoch

    def _take_answer(self, request: Request) -> None:
        if request.numbers:
            return
        assert self.end is not None
        self.request = None
        if request.was_refused:
            self.end = None

    def _fill(self, end: int) -> Request | None:
        if self.state.producer_epoch > self.epoch:
            self.end = None
            return None
        if self.state.producer_epoch < self.epoch:
            number = first_number(self.state, self.epoch)
            assert number is not None
            numbers = [number]
        else:
            count = 0
            while end + count < len(self.log.source) and not self.log.source[end + count]:
                count += 1
            following = following_numbers(self.state, count)
            assert following is not None
            numbers = list(following)
        self.state = MarkerState(self.epoch, numbers[-1])
        self.end = end + len(numbers)
        self.request = Request(self.epoch, list(numbers))
        return self.request


def _run(seed: int) -> Log:
    random = Random(seed)
    log = Log([random.random() < 0.4 for _ in range(LENGTH)])
    owners = [Owner(log, 0)]
    on_their_way: list[Request] = []
    newest_epoch = 0
    for _ in range(STEPS):
        choice = random.random()
        owner = random.choice(owners)
        if choice < 0.45:
            request = owner.act()
            if request is not None:
                on_their_way.append(request)
        elif choice < 0.8:
            waiting = [each for each in on_their_way if each.numbers]
            if waiting:
                log.try_next(random.choice(waiting))
        elif newest_epoch < STEP - 2:
            newest_epoch += 1
            if choice < 0.9:
                owner.lose_answer(newest_epoch)
            else:
                owners.append(Owner(log, newest_epoch))
        assert log.is_the_source_so_far, f"seed {seed}: {log.entries} of {log.source}"
    _finish(log, Owner(log, newest_epoch + 1))
    for late in on_their_way:
        while late.numbers:
            log.try_next(late)
    return log


def _finish(log: Log, owner: Owner) -> None:
    """The newest owner alone comes to the end."""
    for _ in range(60 * LENGTH):
        request = owner.act()
        while request is not None and request.numbers:
            log.try_next(request)


@pytest.mark.parametrize("block", range(4))
def test_no_hole_is_filled_twice_however_late_and_in_what_order_requests_are_carried_out(block: int) -> None:
    for seed in range(block * SCHEDULES // 4, (block + 1) * SCHEDULES // 4):
        log = _run(seed)
        assert len(log.entries) == LENGTH, f"seed {seed}: {log.entries} of {log.source}"
        assert log.is_the_source_so_far, f"seed {seed}: {log.entries} of {log.source}"


def test_two_first_requests_on_one_state_exclude_each_other() -> None:
    state = MarkerState(7, 1000)
    for older in range(8, 8 + STEP - 2):
        for newer in range(older + 1, 8 + STEP - 1):
            below, above = first_number(state, newer), first_number(state, older)
            assert below is not None
            assert above is not None
            # The one that comes second is refused: for its epoch, or for its number.
            assert state.coordinator_epoch <= below < above


def test_a_first_request_excludes_every_marker_that_is_still_to_come_of_another() -> None:
    state = MarkerState(7, 1000)
    following = following_numbers(state, 5)
    assert following is not None
    for written in range(5):
        between = MarkerState(7, following[written - 1]) if written else state
        for newer in range(8, 200):
            first = first_number(between, newer)
            assert first is not None
            assert between.coordinator_epoch <= first < following[written]


def test_numbers_that_end_are_not_used() -> None:
    assert first_number(MarkerState(0, LARGEST - 10), 1) is None
    assert following_numbers(MarkerState(0, LARGEST - 100), 2) is None
    assert following_numbers(MarkerState(0, LARGEST - STEP), 1) is not None
    assert not following_numbers(MarkerState(0, LARGEST), 0)
