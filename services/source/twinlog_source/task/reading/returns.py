"""Notices that somebody else copies the copies of a partition back to it, so that its records go round. Pure:
takes `now`.

What Twinlog copies back it knows by its producer ids (docs/adr/0017). Others leave no trace in a batch. So a
few records are watched: the same record, with its timestamp, key, value and headers, is back again and again,
each time after it was copied. A few batches are opened for that. An application may also write it again and
again: then it comes also while nothing is copied for some of its rounds.
"""

import math
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    HIGHEST_OFFSET,
    LOG_OVERHEAD_BYTES,
    Batch,
    BatchHeader,
    iter_batches,
    read_batch,
)
from twinlog.batches.records import open_records
from twinlog.errors import WireFormatError

RETURNS: Final = 4
"""A producer without idempotence writes a batch that is not acknowledged at most four times
(delivery.timeout.ms and request.timeout.ms), and more only if somebody wants it."""
RECORDS: Final = 2
"""So many different records have to come back: others that are written again and again are alike."""
HOLD_ROUNDS: Final = 5
"""For so many of the record's rounds nothing is copied. Of a loop it is there once then."""
HOLD_SECONDS: Final = (5.0, 1800.0)
QUIET_SECONDS: Final = 86_400.0
"""How long nothing is looked for after an application had written the records."""
PERIODS_SECONDS: Final = (20.0, 300.0, 3600.0)
"""How long a record is waited for until another one is taken. A round over a slow copier takes long."""
SOON_SECONDS: Final = 2.0
TOGETHER_SECONDS: Final = 3600.0
BYTES_PER_SECOND: Final = 256 * 1024
BURST_BYTES: Final = 8 * 1024 * 1024
"""Opened for a record at most. Where more may have it, nearly all timestamps are alike, and another one is
taken."""
LARGEST_BYTES: Final = 256 * 1024
"""Of a batch that is opened to take a record from it."""
MOST_BATCHES: Final = 8


@dataclass(slots=True)
class _Watched:
    """A record that was copied, or will be."""

    record: OpenRecord
    last_offset: int
    """Where it was seen last."""
    at: float
    bytes_left: float = BURST_BYTES
    """That may be opened for it, as of `at`."""
    returns: int = 0


@dataclass(slots=True)
class _Trial:
    """Nothing is copied for a while, to see whether the record comes nevertheless."""

    watched: _Watched
    until: float
    end: int | None = None
    """Where the log ended then."""
    found: int = 0


@dataclass(slots=True)
class Returns:
    """The records of one partition that are watched."""

    _watched: dict[int, _Watched] = field(default_factory=dict)
    """By the index of their period."""
    _taken_at: dict[int, float] = field(default_factory=dict)
    _back: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECORDS))
    """When records had returned often enough, and their timestamps."""
    _trial: _Trial | None = None
    _quiet_until: float = 0.0

    def look(
        self,
        records: bytes | memoryview,
        *,
        echoes: Mapping[int, tuple[int, int]],
        sent: int,
        end: int,
        now: float,
    ) -> float:
        """Look at fetched records before they are copied, and tell how many seconds nothing may be copied;
        infinite: they go round.

        `echoes`: as in `CopyPolicy`; those are left out. `sent`: what lies behind cannot be on the target
        yet. `end`: the end of the log."""
        view = memoryview(records)
        try:
            if self._trial is not None:
                return self._judge(self._trial, view, echoes, end, now)
            due = self._due(now)
            for batch in self._candidates(view, [*self._watched.values()], echoes):
                self._compare(batch, sent, now)
            if due is not None:
                self._take(due, [each for each in iter_batches(view) if _counts(each.header, echoes)], now)
        except WireFormatError:
            return 0.0  # Told where the batch is prepared.
        return self._held_seconds(now)

    def _held_seconds(self, now: float) -> float:
        return 0.0 if self._trial is None else max(0.0, self._trial.until - now)

    def _judge(
        self,
        trial: _Trial,
        view: memoryview,
        echoes: Mapping[int, tuple[int, int]],
        end: int,
        now: float,
    ) -> float:
        if now < trial.until:
            return self._held_seconds(now)
        trial.end = end if trial.end is None else trial.end
        watched = trial.watched
        for batch in self._candidates(view, [watched], echoes):
            back = _copies(watched, open_records(batch), before=trial.end)
            trial.found += len(back)
            watched.last_offset = max(watched.last_offset, *back) if back else watched.last_offset
        if trial.found < HOLD_ROUNDS - 2:
            return math.inf if _next_offset(view) >= trial.end else 0.0
        self._trial, self._quiet_until = None, now + QUIET_SECONDS
        self._watched.clear()
        self._back.clear()
        return 0.0

    def _candidates(
        self, view: memoryview, watched: Sequence[_Watched], echoes: Mapping[int, tuple[int, int]]
    ) -> Iterator[Batch]:
        """Nearly no batch is opened, or even read: that costs more than all else here."""
        if not watched:
            return
        for position in _positions(view, [each.record[1] for each in watched]):
            batch = read_batch(view, position)
            if batch is not None and _counts(batch.header, echoes):
                yield batch

    def _compare(self, batch: Batch, sent: int, now: float) -> None:
        header = batch.header
        found: list[OpenRecord] | None = None
        for index, each in list(self._watched.items()):
            offset, timestamp_ms, _ = each.record
            may_have_it = header.base_timestamp_ms <= timestamp_ms <= header.max_timestamp_ms
            if not may_have_it or header.last_offset <= each.last_offset:
                continue
            allowed_bytes = min(BURST_BYTES, each.bytes_left + (now - each.at) * BYTES_PER_SECOND)
            each.at, each.bytes_left = now, allowed_bytes - header.size_bytes
            if each.bytes_left < 0:
                del self._watched[index]
                continue
            found = open_records(batch) if found is None else found
            back = _copies(each, found)
            if not back:
                continue
            if offset >= sent:
                # Nobody can have copied it back: others are like it, or what was sent is not noted yet.
                del self._watched[index]
                self._taken_at[index] += SOON_SECONDS - PERIODS_SECONDS[index]
                continue
            before, each.last_offset, each.returns = each.last_offset, back[-1], each.returns + 1
            each.bytes_left = BURST_BYTES
            if each.returns >= RETURNS:
                del self._watched[index]
                self._came_back(each, (now - self._taken_at.pop(index)) / RETURNS, now)
                if self._trial is not None:
                    each.last_offset = before
                    return

    def _came_back(self, watched: _Watched, round_seconds: float, now: float) -> None:
        self._back.append((now, watched.record[1]))
        while now - self._back[0][0] > TOGETHER_SECONDS:
            self._back.popleft()
        if len({timestamp_ms for _, timestamp_ms in self._back}) >= RECORDS:
            least, most = HOLD_SECONDS
            self._trial = _Trial(watched, now + min(most, max(least, HOLD_ROUNDS * round_seconds)))

    def _due(self, now: float) -> int | None:
        """The period for which it is time to watch another record."""
        if now < self._quiet_until:
            return None
        for index, period in enumerate(PERIODS_SECONDS):
            watched = self._watched.get(index)
            waits_seconds = 10 * period if watched is not None and watched.returns else period
            if now >= self._taken_at.get(index, now - waits_seconds) + waits_seconds:
                return index
        return None

    def _take(self, index: int, batches: list[Batch], now: float) -> None:
        known = {each.record[1] for each in self._watched.values()} | {when for _, when in self._back}
        small = [each for each in batches if each.header.size_bytes <= LARGEST_BYTES][-MOST_BATCHES:]
        records = (each for batch in reversed(small) for each in reversed(open_records(batch)))
        record = next((each for each in records if each[1] not in known), None)
        if record is not None:
            self._taken_at[index] = now
            self._watched[index] = _Watched(record, record[0], now)


def _positions(view: memoryview, timestamps_ms: Sequence[int]) -> Iterator[int]:
    """Where the batches begin that may have a record with one of these timestamps. Ends at damaged bytes."""
    position, last = 0, len(view) - HEADER_BYTES
    while position <= last:
        length, first_ms, last_ms = _TIMES.unpack_from(view, position)
        if length < 0:
            return
        for each in timestamps_ms:
            if first_ms <= each <= last_ms:
                yield position
                break
        position += LOG_OVERHEAD_BYTES + length


_TIMES: Final = struct.Struct(">8xi15xqq")
"""Of a batch in format v2: its length, and the timestamps of its first record and of its newest one."""


def _copies(watched: _Watched, records: Sequence[OpenRecord], before: int = HIGHEST_OFFSET) -> list[int]:
    """The offsets behind its last one where the record is again."""
    return [
        offset
        for offset, timestamp_ms, body in records
        if watched.last_offset < offset < before and (timestamp_ms, body) == watched.record[1:]
    ]


def _next_offset(view: memoryview) -> int:
    """The offset after the last whole batch; 0 for none."""
    return max((each.header.next_offset for each in iter_batches(view)), default=0)


def _counts(header: BatchHeader, echoes: Mapping[int, tuple[int, int]]) -> bool:
    begin, end = echoes.get(header.producer_id, (0, 0))
    is_echo = begin <= header.base_offset < end
    return header.magic == CURRENT_MAGIC and not header.is_control and header.record_count > 0 and not is_echo
