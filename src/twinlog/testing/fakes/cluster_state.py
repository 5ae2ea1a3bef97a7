"""The contents of a fake cluster: logs with transactions and holes, topics, groups."""

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import CommittedOffset, EpochEnd, FetchedRecords
from twinlog.model import Record, TopicPartition
from twinlog.testing.broker.calls import KAFKA_4_3
from twinlog.testing.broker.configs import TOPIC_CONFIG_DEFAULTS, RefusedError, check

_RECORD_OVERHEAD_BYTES = 70
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Transaction(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class _Entry(NamedTuple):
    """One used offset: a record, or a marker when `record` is None."""

    offset: int
    record: Record | None
    transaction: int | None
    size_bytes: int = _RECORD_OVERHEAD_BYTES


_offset = itemgetter(0)


@dataclass(slots=True)
class FakeLog:
    """One partition's log, in the order of offsets. Those without an entry are holes, as compaction leaves
    them."""

    start: int = 0
    end: int = 0
    epoch_starts: list[int] = field(default_factory=lambda: [0])
    """Where each leader epoch began, from epoch 0 on."""
    _entries: list[_Entry] = field(default_factory=list)
    _transactions: dict[int, Transaction] = field(default_factory=dict)

    @property
    def last_stable(self) -> int:
        """First offset of the first open transaction, else the end."""
        still_open = {number for number, outcome in self._transactions.items() if outcome is Transaction.OPEN}
        if not still_open:
            return self.end
        unstable = (entry.offset for entry in self._entries if entry.transaction in still_open)
        return next(unstable, self.end)

    def append(self, record: Record, transaction: int | None = None) -> int:
        """Append a record (its own offset is replaced) and return its offset."""
        offset = self.end
        # Thousands of records a test: `replace` takes three times as long.
        placed = Record(
            offset=offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_type=record.timestamp_type,
            producer_id=record.producer_id,
        )
        size_bytes = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        self._entries.append(_Entry(offset, placed, transaction, size_bytes))
        self.end = offset + 1
        return offset

    def begin(self) -> int:
        """Start a transaction; `append` and `finish` take its number."""
        number = len(self._transactions)
        self._transactions[number] = Transaction.OPEN
        return number

    def finish(self, transaction: int, outcome: Transaction) -> None:
        """End a transaction: a marker takes one offset."""
        self._transactions[transaction] = outcome
        self._entries.append(_Entry(self.end, None, None))
        self.end += 1

    def remove(self, offsets: set[int]) -> None:
        """Make holes, as compaction does."""
        self._entries = [entry for entry in self._entries if entry.offset not in offsets]

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self._entries = [entry for entry in self._entries if entry.offset >= self.start]

    def truncate(self, end: int) -> None:
        """Remove everything from `end` on, as an unclean leader election may."""
        self._entries = [entry for entry in self._entries if entry.offset < end]
        self.end = min(self.end, end)
        self.start = min(self.start, self.end)
        self.elect()

    @property
    def leader_epoch(self) -> int:
        return len(self.epoch_starts) - 1

    def elect(self) -> None:
        """Have another leader, which has the log as it is."""
        self.epoch_starts = [*(min(start, self.end) for start in self.epoch_starts), self.end]

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where the records of an epoch end."""
        later = self.epoch_starts[epoch + 1 :]
        return EpochEnd(min(epoch, self.leader_epoch), later[0] if later else self.end)

    def read(self, offset: int, *, read_committed: bool, max_bytes: int) -> FetchedRecords:
        """The result of a fetch from `offset` now. The caller has checked the range."""
        limit = self.last_stable if read_committed else self.end
        hidden = self._aborted() if read_committed else ()
        records: list[Record] = []
        next_offset = offset
        taken_bytes = 0
        complete = True
        first = bisect_left(self._entries, offset, key=_offset)
        # Unit tests spend much of their time here.
        for at, record, transaction, size_bytes in islice(self._entries, first, None):
            if at >= limit:
                break
            if taken_bytes and taken_bytes + size_bytes > max_bytes:
                complete = False
                break
            taken_bytes += size_bytes
            next_offset = at + 1
            if record is not None and (not hidden or transaction not in hidden):
                records.append(record)
        return FetchedRecords(
            records=records,
            next_offset=max(next_offset, limit) if complete else next_offset,
            log_start_offset=self.start,
            high_watermark=limit,
        )

    def first_at(self, timestamp_ms: int) -> int | None:
        found = (
            entry.offset
            for entry in self._entries
            if entry.record is not None and entry.record.timestamp_ms >= timestamp_ms
        )
        return next(found, None)

    def records(self) -> Sequence[Record]:
        """Every remaining record, including uncommitted and aborted ones."""
        return [entry.record for entry in self._entries if entry.record is not None]

    def _aborted(self) -> Collection[int]:
        """The numbers of the aborted transactions."""
        return {number for number, outcome in self._transactions.items() if outcome is Transaction.ABORTED}


@dataclass(slots=True)
class FakeTopic:
    topic_id: str
    replication_factor: int
    logs: list[FakeLog]
    configs: dict[str, str]
    """Only configs set on the topic."""

    def config(self, name: str) -> str:
        return self.configs.get(name, TOPIC_CONFIG_DEFAULTS[name])


@dataclass(slots=True)
class FakeGroup:
    state: str = "EMPTY"
    group_type: str = "classic"
    protocol_type: str = ""
    """The members' protocol in Kafka's name: "consumer", "share", "streams", "connect"; "" of a group that
    only ever committed."""
    member_count: int = 0
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    refusal_code: int = 0
    """Kafka's error for every request about it; 0 = none."""


def check_topic_name(name: str, doing: str, alias: str) -> None:
    """Raises FatalKafkaError TOPIC_INVALID."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise from_code(ErrorCode.invalid_topic_exception, doing, alias=alias)


def check_config(name: str, value: str | None, doing: str, alias: str) -> None:
    """Raises FatalKafkaError CONFIG_REFUSED for what a broker refuses; None takes a config away."""
    try:
        check(name, TOPIC_CONFIG_DEFAULTS.get(name, "") if value is None else value, KAFKA_4_3)
    except RefusedError as refused:
        raise from_code(ErrorCode.invalid_config, doing, alias=alias, detail=str(refused)) from refused
