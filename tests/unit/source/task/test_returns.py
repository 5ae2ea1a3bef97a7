"""Records that come back again and again after they were copied."""

import math
import random
from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from twinlog.batches import Codec, NewRecord, Seal, build_batch, sealed
from twinlog_source.task.reading.returns import PERIODS_SECONDS, RETURNS, Returns

Record = tuple[int, bytes | None]
ECHOING = 7


class Log:
    """A partition, and how far it is copied."""

    def __init__(self) -> None:
        self.returns = Returns()
        self.batches: list[tuple[int, bytes, Sequence[Record]]] = []
        self.end = self.sent = 0
        self.now = 0.0
        self.held_until = 0.0
        self.is_endless = False

    def arrives(self, *records: Record, producer_id: int = -1, codec: Codec = Codec.NONE) -> None:
        """One batch is written."""
        new = [NewRecord(b"k", value, at) for at, value in records]
        data = (
            self.end.to_bytes(8) + sealed(build_batch(new, codec=codec), Seal(producer_id, 0, 0, False))[8:]
        )
        self.batches.append((self.end, data, () if producer_id == ECHOING else records))
        self.end += len(records)

    def copy(self, *, seconds: float = 0.3) -> list[Record]:
        """What is copied of what has arrived, after some time."""
        self.now += seconds
        if self.now < self.held_until or self.is_endless:
            return []
        copied: list[Record] = []
        for base, data, records in [each for each in self.batches if each[0] >= self.sent]:
            hold = self.returns.look(
                data, echoes={ECHOING: (0, 1 << 62)}, sent=self.sent, end=self.end, now=self.now
            )
            if hold:
                self.is_endless, self.held_until = hold == math.inf, self.now + hold
                break
            self.sent = base + max(1, len(records))
            copied += records
        return copied


def rounds(log: Log, new: Iterable[Sequence[Record]], codec: Codec = Codec.NONE) -> int:
    """Everything that was copied comes back in the next round. How many rounds it took to notice it."""
    back: list[Record] = []
    dice = random.Random(7)
    for number, written in enumerate(new):
        # Applications write at any time of a round.
        at, cut = dice.randrange(len(back) + 1), dice.randrange(len(back) + 1)
        around = [*back[:at], *written, *back[at:]]
        for batch in (around[:cut], around[cut:]):
            if batch:
                log.arrives(*batch, codec=codec)
        back = log.copy()
        if log.is_endless:
            return number
    return -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("size", [1, 50])
def test_a_loop_is_noticed_within_some_rounds(codec: Codec, size: int) -> None:
    times = count(1000)
    new = [[(next(times), b"v%d" % number) for _ in range(size)] for number in range(120)]
    assert 0 < rounds(Log(), new, codec) <= 90


def test_a_loop_that_begins_later_is_noticed() -> None:
    log, times = Log(), count(1000)
    for number in range(500):
        log.arrives((next(times), b"%d" % number))
        log.copy()
    new = [[(next(times), b"new")] for _ in range(int(20 * PERIODS_SECONDS[0]))]
    assert rounds(log, new) > 0


def test_what_is_no_loop_is_left_alone() -> None:
    times = count(1000)
    for written in (
        [[(next(times), b"same")] for _ in range(1000)],
        [[(5, b"same")] for _ in range(1000)],
        [[(5, b"%d" % number)] for number in range(1000)],
        [[(1000 + number - number % 7 * 3, b"late %d" % number)] for number in range(1000)],
        # A batch that was not acknowledged, written by a producer without idempotence.
        [[(number // 4, b"again %d" % (number // 4))] for number in range(1000)],
    ):
        log = Log()
        for batch in written:
            log.arrives(*batch)
            log.copy()
            assert not log.held_until
        assert log.sent == log.end


@pytest.mark.parametrize("times", [4, 5, 6, 7, 8, 9, 20])
def test_heartbeats_and_tombstones_with_coarse_timestamps_go_on(times: int) -> None:
    """The same record often within one second, each copied before the next one comes."""
    log = Log()
    for number in range(3000):
        log.arrives((number // times * 1000, b"alive"), (number // times * 1000, None))
        log.copy(seconds=1 / times)
        assert not log.is_endless
    log.copy(seconds=60)
    assert log.sent == log.end


@pytest.mark.parametrize("seconds", [3.0, 90.0, 500.0])
def test_an_application_that_writes_the_same_records_again_and_again_goes_on(seconds: float) -> None:
    """Reference data, each time with the timestamp of its last change."""
    log = Log()
    for _ in range(60):
        for number in range(10):
            log.arrives((number, b"reference"))
        log.copy(seconds=seconds)
        assert not log.is_endless
    assert log.held_until, "it was looked at"
    log.copy(seconds=seconds)
    assert log.sent == log.end


def test_an_application_that_writes_the_same_records_now_and_then_goes_on() -> None:
    """Reference data that are asked for at any time."""
    for seed in range(60):
        log, dice = Log(), random.Random(seed)
        due = [dice.expovariate(0.1) for _ in range(2)]
        while log.now < 1500:
            for number, at in enumerate(due):
                if at <= log.now:
                    log.arrives((number, b"reference"))
                    due[number] += dice.expovariate(0.1)
            log.copy(seconds=5)
            log.batches = [each for each in log.batches if each[0] >= log.sent]
            assert not log.is_endless, seed


@pytest.mark.parametrize("seconds", [20.0, 300.0])
def test_an_application_that_writes_more_again_and_again_than_is_opened_goes_on(seconds: float) -> None:
    """Reference data, all with the timestamp of the last delivery."""
    log, data = Log(), [(1000, b"%d" % index + bytes(16 << 10)) for index in range(64)]
    for _ in range(20):
        for first in range(0, len(data), 8):
            log.arrives(*data[first : first + 8])
            log.copy(seconds=0.05)
        log.copy(seconds=seconds)
        assert not log.is_endless
    assert log.held_until, "it was looked at"


@pytest.mark.parametrize("coarse_ms", [1000, 86_400_000])
def test_a_loop_is_noticed_where_more_has_a_timestamp_than_is_opened(coarse_ms: int) -> None:
    """24 MiB come at once, and go round in other batches, each time with 24 MiB more every minute."""
    log, back = Log(), list[Record]()
    for number in range(40):
        new = [
            (int(log.now * 1000) // coarse_ms * coarse_ms, bytes((number, index)) * (64 << 10))
            for index in range(0 if number % 20 else 192)
        ]
        around = [*back, *new]
        for first in range(0, len(around), 4 + number % 3):
            log.arrives(*around[first : first + 4 + number % 3])
        back = log.copy(seconds=3)
        if log.is_endless:
            break
    assert 2 * RETURNS < number < 35


def test_what_is_fetched_again_has_not_come_back() -> None:
    log = Log()
    for number in range(10):
        log.arrives((number, b"v"))
    for _ in range(20):
        log.copy()
        log.sent = 0
        assert not log.held_until


def test_what_the_flow_back_has_copied_does_not_count() -> None:
    log = Log()
    for number in range(200):
        log.arrives((number, b"v"))
        log.copy()
        for _ in range(2 * RETURNS):
            log.arrives((number, b"v"), producer_id=ECHOING)
            log.copy()
            assert not log.held_until


def test_damaged_bytes_are_told_elsewhere() -> None:
    assert Returns().look(b"\xff" * 100, echoes={}, sent=0, end=1, now=0.0) == 0
