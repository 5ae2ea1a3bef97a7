"""Records that come back again and again after they were copied."""

from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from twinlog.batches import Codec, NewRecord, Seal, build_batch, sealed
from twinlog_source.task.reading.returns import PERIODS_SECONDS, RETURNS, Returns

Record = tuple[int, bytes]
ECHOING = 7
NOBODY: dict[int, tuple[int, int]] = {}


class Log:
    """What a partition's answers have, and what of it was copied."""

    def __init__(self) -> None:
        self.returns = Returns()
        self.end = self.sent = 0
        self.now = 0.0

    def arrives(self, *records: Record, producer_id: int = -1, codec: Codec = Codec.NONE) -> bool:
        """One batch. Whether the partition goes round."""
        new = [NewRecord(b"k", value, at) for at, value in records]
        data = (
            self.end.to_bytes(8) + sealed(build_batch(new, codec=codec), Seal(producer_id, 0, 0, False))[8:]
        )
        echoes = {ECHOING: (0, 1 << 62)}
        found = self.returns.are_endless(data, echoes=echoes, sent=self.sent, now=self.now)
        self.end += len(records)
        self.now += 0.1
        return found

    def is_copied(self) -> None:
        self.sent = self.end


def rounds(log: Log, new: Iterable[Sequence[Record]], codec: Codec = Codec.NONE) -> int:
    """Everything that was copied comes back in the next round. How many rounds it took to notice it."""
    there: list[Record] = []
    for number, written in enumerate(new):
        for batch in (written, there[: len(there) // 2], there[len(there) // 2 :]):
            if batch and log.arrives(*batch, codec=codec):
                return number
        log.is_copied()
        there += written
    return -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("size", [1, 50])
def test_a_loop_is_noticed_within_some_rounds(codec: Codec, size: int) -> None:
    times = count(1000)
    new = [[(next(times), b"v%d" % number) for _ in range(size)] for number in range(40)]
    assert 0 < rounds(Log(), new, codec) <= 3 * RETURNS


def test_a_loop_that_begins_later_is_noticed() -> None:
    log, times = Log(), count(1000)
    for number in range(500):
        assert not log.arrives((next(times), b"%d" % number))
        log.is_copied()
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
            assert not log.arrives(*batch)
            log.is_copied()


def test_what_is_fetched_again_has_not_come_back() -> None:
    log = Log()
    for _ in range(20):
        log.end = 0
        assert not any(log.arrives((number, b"v")) for number in range(10))
        log.is_copied()


def test_what_the_flow_back_has_copied_does_not_count() -> None:
    log = Log()
    for number in range(200):
        assert not log.arrives((number, b"v"))
        log.is_copied()
        for _ in range(2 * RETURNS):
            assert not log.arrives((number, b"v"), producer_id=ECHOING)


def test_damaged_bytes_are_told_elsewhere() -> None:
    assert not Returns().are_endless(b"\xff" * 100, echoes=NOBODY, sent=0, now=0.0)
