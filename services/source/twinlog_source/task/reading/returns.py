"""Notices that somebody else copies the copies of a partition back to it, so that its records go round. Pure:
takes `now`.

What Twinlog copies back it knows by its producer ids (docs/adr/0017). Others leave no trace in a batch. So a
few records are watched: the same record, with its timestamp, key, value and headers, is back again and again,
each time after it was copied. A few batches are opened for that. An application may also write it again and
again: then it comes also while nothing is copied for some of its rounds.

Watched is a timestamp, and of the records with it those with the least hashes: of the same records the same
ones, in whatever batches they come. Where timestamps are coarse, more have it than may be opened. What is
opened for one is bounded: `BURST_BYTES` at once, again where a round begins, `BURSTS` times in all, and
`BYTES_PER_SECOND`. A loop that keeps the order is noticed within `RETURNS` + 1 rounds of two timestamps, the
pause between them, and twice the hold and `AGAIN` rounds; where nothing shows where a round begins, or the
order changes, it takes as many times longer as less of a round is opened.
"""

import math
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import (
    CURRENT_MAGIC,
    HEADER_BYTES,
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
HOLD_ROUNDS: Final = 10
"""For so many of the record's rounds nothing is copied. Of a loop it is there once then, and comes again when
copies go on; it does not if an application wrote the same record often within a coarse timestamp."""
WRITTEN: Final = 3
"""So often it is there then if an application writes it."""
AGAIN: Final = 2
"""So often it has to come within as many rounds then."""
HOLD_SECONDS: Final = (5.0, 1800.0)
QUIET_SECONDS: Final = (3600.0, 86_400.0)
"""How long nothing is looked for after nothing came again, and after an application went on to write."""
PERIODS_SECONDS: Final = (20.0, 300.0, 3600.0)
"""How long a timestamp is watched until another one is taken. A round over a slow copier takes long."""
SOON_SECONDS: Final = 2.0
TOGETHER_SECONDS: Final = 3600.0
BYTES_PER_SECOND: Final = 64 * 1024
BURST_BYTES: Final = 2 * 1024 * 1024
BURSTS: Final = 2 * RETURNS
ROUND_SECONDS: Final = 0.5
"""A round begins when nothing has had the timestamp for so long."""
REMEMBERED: Final = 16
"""Of the records with a timestamp."""


@dataclass(slots=True)
class _Seen:
    """A record that was copied, or will be."""

    offset: int
    """Where it was first."""
    at: float
    returns: int = 0
    is_alike: bool = False
    """It came again before it can have been copied: others are like it, or what was sent is not noted yet."""


@dataclass(slots=True)
class _Watched:
    timestamp_ms: int
    at: float
    bytes_left: float = BURST_BYTES
    """That may be opened for it, as of `at`."""
    bursts: int = BURSTS
    looked_to: int = -1
    """The offset of the newest record that was opened for it."""
    returns: int = 0
    """The most of its records."""
    records: dict[int, _Seen] = field(default_factory=dict)
    """By their hashes."""

    def may_open(self, now: float) -> bool:
        seconds, self.at = now - self.at, now
        self.bytes_left = min(BURST_BYTES, self.bytes_left + seconds * BYTES_PER_SECOND)
        if seconds >= ROUND_SECONDS:
            self._burst()
        return self.bytes_left > 0

    def _burst(self) -> None:
        if self.bursts:
            self.bursts, self.bytes_left = self.bursts - 1, BURST_BYTES

    def open(self, batch: Batch) -> Iterator[OpenRecord]:
        """Its records that have the timestamp."""
        opened = open_records(batch)
        self.bytes_left -= sum(len(body) for _, _, body in opened)
        self.looked_to = batch.header.last_offset
        return (record for record in opened if record[1] == self.timestamp_ms)

    def remember(self, key: int, offset: int, now: float) -> None:
        if len(self.records) >= REMEMBERED:
            others = [each for each, seen in self.records.items() if not (seen.returns or seen.is_alike)]
            if not others or key >= (worst := max(others)):
                return
            del self.records[worst]
        self.records[key] = _Seen(offset, now)

    def found(self, key: int, sent: int) -> int:
        """A record that is remembered was there again: how often by now."""
        seen = self.records[key]
        if seen.offset >= sent:
            seen.is_alike = True
        if seen.is_alike:
            return 0
        seen.returns += 1
        if seen.returns > self.returns:
            self.returns = seen.returns
            self._burst()
        return seen.returns


@dataclass(slots=True)
class _Trial:
    """Nothing is copied for a while, to see whether the record comes nevertheless, and then whether it comes
    again."""

    watched: _Watched
    key: int
    hold_seconds: float
    until: float
    offset: int
    """Where the record was last."""
    round_offsets: float
    """How far the log grew from round to round."""
    end: int | None = None
    """Where the log ended then."""
    over_at: float = math.inf
    """When nothing is looked for any more."""
    found: int = 0
    """Before `end`."""
    again: int = 0
    """Behind it."""
    is_sample: bool = False
    """Not all before `end` was opened."""
    is_second: bool = False
    """What an application writes now and then may stay away once by chance."""

    def is_application(self, end: int) -> bool:
        """The record came while nothing was copied. Where not all was opened: the log grew as if it did."""
        grew = self.is_sample and end - self.offset >= self.round_offsets * HOLD_ROUNDS / 2
        return grew or self.found >= WRITTEN

    def see(self, batch: Batch, end: int, now: float) -> None:
        watched = self.watched
        if batch.header.last_offset <= watched.looked_to:
            return
        if not watched.may_open(now):
            self.is_sample |= batch.header.base_offset < end
            return
        offsets = [record[0] for record in watched.open(batch) if _key(record) == self.key]
        self.found += sum(offset < end for offset in offsets)
        if offsets and offsets[-1] >= end:
            self.again += 1


@dataclass(slots=True)
class Returns:
    """The records of one partition that are watched."""

    _watched: dict[int, _Watched] = field(default_factory=dict)
    """By the index of their period."""
    _taken_at: dict[int, float] = field(default_factory=dict)
    _back: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECORDS))
    """When records had returned often enough, and their hashes."""
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
            if due is not None:
                self._take(due, view, echoes, now)
            watched = [each.timestamp_ms for each in self._watched.values()]
            for batch in self._candidates(view, watched, echoes):
                self._compare(batch, sent, now)
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
        if trial.end is None:
            trial.end, trial.watched.bursts = end, BURSTS
        for batch in self._candidates(view, [trial.watched.timestamp_ms], echoes):
            trial.see(batch, trial.end, now)
        is_application = trial.is_application(trial.end)
        if trial.again >= AGAIN and not is_application:
            if trial.is_second:
                return math.inf
            offset, seconds = next(iter_batches(view)).header.base_offset, trial.hold_seconds
            trial.watched.looked_to = offset - 1  # It is fetched again then.
            self._trial = _Trial(
                trial.watched, trial.key, seconds, now + seconds, offset, trial.round_offsets, is_second=True
            )
            return seconds
        if trial.over_at == math.inf and _next_offset(view) >= trial.end:
            trial.over_at = now + trial.hold_seconds
        if is_application or now >= trial.over_at:
            self._trial, self._quiet_until = None, now + QUIET_SECONDS[is_application]
            self._watched.clear()
            self._back.clear()
        return 0.0

    def _candidates(
        self, view: memoryview, timestamps_ms: Sequence[int], echoes: Mapping[int, tuple[int, int]]
    ) -> Iterator[Batch]:
        """Nearly no batch is opened, or even read: that costs more than all else here."""
        if not timestamps_ms:
            return
        for position in _positions(view, timestamps_ms):
            batch = read_batch(view, position)
            if batch is not None and _counts(batch.header, echoes):
                yield batch

    def _compare(self, batch: Batch, sent: int, now: float) -> None:
        header = batch.header
        for index, each in list(self._watched.items()):
            may_have_it = header.base_timestamp_ms <= each.timestamp_ms <= header.max_timestamp_ms
            if not may_have_it or header.last_offset <= each.looked_to or not each.may_open(now):
                continue
            before = each.looked_to
            for key, offset in {_key(record): record[0] for record in each.open(batch)}.items():
                if key not in each.records:
                    each.remember(key, offset, now)
                elif each.found(key, sent) >= RETURNS:
                    del self._watched[index], self._taken_at[index]
                    self._came_back(each, key, offset, now)
                    break
            if self._trial is not None:
                # It is fetched again then.
                self._trial.watched.looked_to = before
                return
            if each.records and all(seen.is_alike for seen in each.records.values()):
                del self._watched[index]
                self._taken_at[index] += SOON_SECONDS - PERIODS_SECONDS[index]

    def _came_back(self, watched: _Watched, key: int, offset: int, now: float) -> None:
        self._back.append((now, key))
        while now - self._back[0][0] > TOGETHER_SECONDS:
            self._back.popleft()
        if len({each for _, each in self._back}) >= RECORDS:
            least, most = HOLD_SECONDS
            first = watched.records[key]
            hold_seconds = min(most, max(least, HOLD_ROUNDS * (now - first.at) / RETURNS))
            round_offsets = (offset - first.offset) / RETURNS
            self._trial = _Trial(watched, key, hold_seconds, now + hold_seconds, offset, round_offsets)

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

    def _take(self, index: int, view: memoryview, echoes: Mapping[int, tuple[int, int]], now: float) -> None:
        """The newest timestamp that no other one is watched for, if there are several."""
        known = {each.timestamp_ms for each in self._watched.values()}
        times = [each.header.max_timestamp_ms for each in iter_batches(view) if _counts(each.header, echoes)]
        if times:
            new = [each for each in times if each not in known]
            self._taken_at[index] = now
            self._watched[index] = _Watched((new or times)[-1], now)


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


def _key(record: OpenRecord) -> int:
    _, timestamp_ms, body = record
    return int.from_bytes(blake2b(body, digest_size=8, salt=timestamp_ms.to_bytes(8, signed=True)).digest())


def _next_offset(view: memoryview) -> int:
    """The offset after the last whole batch; 0 for none."""
    return max((each.header.next_offset for each in iter_batches(view)), default=0)


def _counts(header: BatchHeader, echoes: Mapping[int, tuple[int, int]]) -> bool:
    begin, end = echoes.get(header.producer_id, (0, 0))
    is_echo = begin <= header.base_offset < end
    return header.magic == CURRENT_MAGIC and not header.is_control and header.record_count > 0 and not is_echo
