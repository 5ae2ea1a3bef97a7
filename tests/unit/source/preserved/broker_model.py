"""A model of the leader of one partition and of what it knows about producers, for schedules in the unit
tier.

It follows storage/ProducerStateManager and the observations of docs/adr/0008: a batch is taken when its first
sequence number follows the last one; a batch with exactly the bounds of one of the last five is answered
with its old offset; a leader that has forgotten a producer takes any sequence number. Requests wait in the
queues of connections; a closed connection's queue may still be worked on.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

from twinlog.batches import Codec, Lane, LaneReason, OutgoingBatch
from twinlog.batches.header import HEADER_BYTES
from twinlog.batches.outgoing import OffsetRun
from twinlog_source.preserved.marker_numbers import MarkerState

MASK = 0x7FFFFFFF
REMEMBERED_BATCHES = 5
MARKER = -2
RECORD_BYTES = 100


def records(first: int, count: int, codec: Codec = Codec.NONE) -> OutgoingBatch:
    """A batch of the source, with `RECORD_BYTES` for each record."""
    content, runs = bytes(RECORD_BYTES * count - HEADER_BYTES), (OffsetRun(first, count),)
    return OutgoingBatch(codec, count, 0, 0, content, runs, first + count, Lane.RAW, LaneReason.UNOPENED)


class Refusal(Enum):
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    NOT_ENOUGH_REPLICAS = 19
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTION_COORDINATOR_FENCED = 52


class Entry(NamedTuple):
    """One offset of the log; `value` is None where no consumer sees a record."""

    writer: str
    value: int | None
    sequence: int
    """-1 = it has none; MARKER = the end of a transaction."""
    numbers: MarkerState | None = None
    """Of a marker that was written at the leader."""


class KnownBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass
class KnownProducer:
    last_sequence: int
    batches: deque[KnownBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


@dataclass(eq=False)
class Produce:
    writer: str
    base_sequence: int
    values: tuple[int, ...]
    connection: "Connection"
    outcome: int | Refusal | None = None


@dataclass(eq=False)
class EmptyRecords:
    """Records of nothing in a transaction that will be aborted."""

    filler_epoch: int
    count: int
    connection: "Connection"
    writer: str = "filler"
    outcome: int | Refusal | None = None


@dataclass(eq=False)
class Markers:
    """WriteTxnMarkers: each of them is appended by itself, so others may come between."""

    producer_epoch: int
    numbers: deque[int]
    connection: "Connection"
    writer: str = "filler"
    outcome: int | Refusal | None = None
    """How long the log was with the last one."""


Request = Produce | EmptyRecords | Markers


@dataclass(eq=False)
class Connection:
    """Requests in order; answers in order. A closed one delivers no answers."""

    requests: deque[Request] = field(default_factory=deque)
    answers: deque[Request] = field(default_factory=deque)
    closed: bool = False


@dataclass(eq=False)
class Leader:
    random: Random
    log: list[Entry] = field(default_factory=list)
    high_watermark: int = 0
    topic_id: str = "id"
    producers: dict[str, KnownProducer] = field(default_factory=dict)
    connections: list[Connection] = field(default_factory=list)
    filler_epoch: int = 0
    """Of the transactional id that fills holes."""
    marker_epoch: int = -1
    """Of the transactional id whose identities write markers at the leader."""
    marker_state: MarkerState = field(default_factory=MarkerState)
    """The numbers of their last marker."""
    epoch_starts: list[int] = field(default_factory=lambda: [0])
    """Of each leader, the present one last: where its records begin in the present log."""
    forgotten: set[str] = field(default_factory=set)
    """Producers that it forgot, and whose owners could not know that yet."""
    open_fill: int | None = None
    """Epoch of the transaction that the partition was added to."""
    may_repeat_marker: bool = False
    """The last transaction's end is in this log, and may not be in the coordinator's: one that starts again
    writes the marker again."""

    def connect(self) -> Connection:
        connection = Connection()
        self.connections.append(connection)
        return connection

    def work(self, connection: Connection, *, refuse: bool) -> None:
        """Take the connection's next request.

        Nothing is refused between a moment in which the leader forgot the producer and the next batch that
        it takes: docs/adr/0008 leaves that open.
        """
        request = connection.requests.popleft()
        if isinstance(request, Markers):
            self._append_marker(request)
            if request.numbers:
                connection.requests.appendleft(request)
                return
        elif refuse and request.writer not in self.forgotten:
            request.outcome = Refusal.NOT_ENOUGH_REPLICAS
        elif isinstance(request, EmptyRecords):
            request.outcome = self._append_empty(request)
        else:
            request.outcome = self.append(request)
        connection.answers.append(request)

    def has_answer(self, connection: Connection) -> bool:
        """acks=all: the answer to an append waits for the high watermark; answers keep their order."""
        if not connection.answers:
            return False
        first = connection.answers[0]
        if isinstance(first.outcome, Refusal) or first.outcome is None:
            return True
        if isinstance(first, Markers):
            return first.outcome <= self.high_watermark
        count = first.count if isinstance(first, EmptyRecords) else len(first.values)
        return first.outcome + count <= self.high_watermark

    def replicate(self) -> None:
        self.high_watermark = len(self.log)

    def forget_producers(self) -> None:
        """Their newest record is older than producer.id.expiration.ms."""
        self.forgotten.update(self.producers)
        self.producers.clear()
        self.marker_state = MarkerState()

    def fail_over(self, *, remembers: bool) -> None:
        """Another replica leads: it has what every replica had, and some of what followed. Connections
        end."""
        keep = self.random.randint(self.high_watermark, len(self.log))
        while 0 < keep < len(self.log) and self.log[keep].sequence == self.log[keep - 1].sequence >= 0:
            keep -= 1
        keep = max(keep, self.high_watermark)
        self._lead_from(keep, remembers=remembers)

    def lose_tail(self) -> None:
        """An unclean election: a replica leads that lacks records which were acknowledged."""
        keep = self.random.randint(0, len(self.log))
        while 0 < keep < len(self.log) and self.log[keep].sequence == self.log[keep - 1].sequence >= 0:
            keep -= 1
        self._lead_from(keep, remembers=True)

    def _lead_from(self, keep: int, *, remembers: bool) -> None:
        del self.log[keep:]
        self.high_watermark = keep
        self.epoch_starts = [*(min(start, keep) for start in self.epoch_starts), keep]
        self.producers.clear()
        # Brokers stamp markers themselves: their numbers are not forgotten with records of old times.
        kept = [entry.numbers for entry in self.log if entry.numbers is not None]
        self.marker_state = kept[-1] if kept else MarkerState()
        if remembers:
            self._learn_from_log()
        for connection in self.connections:
            connection.requests.clear()
            connection.closed = True

    @property
    def epoch(self) -> int:
        return len(self.epoch_starts) - 1

    def end_of_epoch(self, epoch: int) -> int:
        """OffsetForLeaderEpoch."""
        starts = self.epoch_starts
        return starts[epoch + 1] if epoch + 1 < len(starts) else len(self.log)

    def init_filler(self) -> int:
        """InitProducerId: ends what the id's former holder left open, and returns when that is written."""
        if self.open_fill is not None:
            self._write_marker()
        self.filler_epoch += 1
        self.may_repeat_marker = False
        return self.filler_epoch

    def repeat_marker(self) -> None:
        """The coordinator was killed between the marker and its own note that the transaction is over."""
        if self.may_repeat_marker:
            self.log.append(Entry("repeated", None, MARKER))

    def add_to_fill(self, epoch: int) -> bool:
        """AddPartitionsToTxn."""
        if epoch != self.filler_epoch:
            return False
        self.open_fill = epoch
        self.may_repeat_marker = False
        return True

    def end_fill(self, epoch: int) -> None:
        """EndTxn(abort)."""
        if epoch == self.filler_epoch and self.open_fill == epoch:
            self._write_marker()

    def _write_marker(self) -> None:
        self.log.append(Entry("filler", None, MARKER))
        self.open_fill = None
        self.may_repeat_marker = True

    def new_marker_epoch(self) -> int:
        """InitProducerId of the id that is never in a transaction."""
        self.marker_epoch += 1
        return self.marker_epoch

    def _append_marker(self, request: Markers) -> None:
        """The request's next one. What the one before met does not matter to it."""
        numbers = MarkerState(request.producer_epoch, request.numbers.popleft())
        if numbers.producer_epoch < self.marker_state.producer_epoch:
            request.outcome = Refusal.INVALID_PRODUCER_EPOCH
        elif numbers.coordinator_epoch < self.marker_state.coordinator_epoch:
            request.outcome = Refusal.TRANSACTION_COORDINATOR_FENCED
        else:
            self.marker_state = numbers
            self.log.append(Entry("filler", None, MARKER, numbers))
            request.outcome = len(self.log)

    def _append_empty(self, request: EmptyRecords) -> int | Refusal:
        if self.open_fill != request.filler_epoch:
            return Refusal.INVALID_TXN_STATE
        base = len(self.log)
        self.log.extend(Entry("filler", None, -1) for _ in range(request.count))
        return base

    def last_sequence(self, writer: str) -> int | None:
        """DescribeProducers."""
        known = self.producers.get(writer)
        return None if known is None else known.last_sequence

    def append(self, request: Produce) -> int | Refusal:
        known = self.producers.get(request.writer)
        last = (request.base_sequence + len(request.values) - 1) & MASK
        if known is not None:
            for batch in known.batches:
                if (batch.first_sequence, batch.last_sequence) == (request.base_sequence, last):
                    return batch.base_offset
            if request.base_sequence != (known.last_sequence + 1) & MASK:
                return Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.forgotten.discard(request.writer)
        base = len(self.log)
        self.log.extend(Entry(request.writer, value, request.base_sequence) for value in request.values)
        known = self.producers.setdefault(request.writer, KnownProducer(last))
        known.last_sequence = last
        known.batches.append(KnownBatch(request.base_sequence, last, base))
        return base

    def _learn_from_log(self) -> None:
        at = 0
        while at < len(self.log):
            entry, first = self.log[at], at
            while at < len(self.log) and self.log[at].sequence == entry.sequence:
                at += 1
            if entry.sequence >= 0:
                last = (entry.sequence + at - first - 1) & MASK
                known = self.producers.setdefault(entry.writer, KnownProducer(last))
                known.last_sequence = last
                known.batches.append(KnownBatch(entry.sequence, last, first))
