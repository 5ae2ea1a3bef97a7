"""Owners of one preserved copy against the model of its leader: the real decisions of a task and of its
driver, with the smallest engine around them.

A task's position and what it says beside it reach the log in one commit; a task is killed between any two of
its steps. What the driver makes of the log and of the task's last words decides who comes next.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from twinlog.batches import NewRecord, OutgoingBatch, Prepared, build_batch
from twinlog.batches.outgoing import OffsetRun
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.raw import ProducerIdentity
from twinlog.model import TopicPartition
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.partitions.orders import PartitionReport, SkippedRange, TaskAssignment
from twinlog_source.preserved.append_log import AppendLog, Phase
from twinlog_source.preserved.append_steps import Hole, ReadEnd, Send, Tail
from twinlog_source.preserved.marker_numbers import MarkerState, first_number, following_numbers
from twinlog_source.preserved.own_batches import (
    FirstForeign,
    ForeignLook,
    is_marker_at,
)
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.answers import PreparedChunk
from twinlog_source.task.reading.fetch_schedule import ReadShares
from twinlog_source.task.writing.preserved_copies import PreservedCopies
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.preserved_writer import Changed
from unit.source.preserved.broker_model import (
    Connection,
    EmptyRecords,
    Leader,
    Markers,
    Produce,
    Refusal,
    Request,
)
from unit.source.preserved.driver_model import P, PositionsLog
from unit.source.preserved.tail_model import FILLER, IDS, OURS, headers, own_before, tail_of
from unit.source.task.halves import preserved_of

LARGEST = 5
MOST_MARKERS = 4
"""The longest hole that is filled at the leader."""
_BATCHES = {count: build_batch([NewRecord(None, b"x", 0)] * count) for count in range(1, LARGEST + 1)}


def batch_of(first: int, count: int) -> OutgoingBatch:
    return _BATCHES[count]._replace(runs=(OffsetRun(first, count),), next_source_offset=first + count)


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run what waits for nothing."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


@dataclass(eq=False)
class Owner:
    """One task: its preserved copy and the smallest engine around it."""

    random: Random
    leader: Leader
    source: list[bool]
    log: PositionsLog
    assignment: TaskAssignment
    at_leader: bool = False
    """The target lets it write markers at the leader."""
    others_may_write: Callable[[], bool] = lambda: False
    """Whether the lease of an owner before is not over."""
    sent: dict[Request, Send] = field(default_factory=dict)
    reading: ReadEnd | None = None
    filling: Hole | None = None
    fill_stage: int = 0
    filler_epoch: int = -1
    marker_epoch: int = field(init=False)
    marker_state: MarkerState | None = None
    """None = it has to be read."""
    writing: Markers | None = None
    filled_count: int = 0
    """Of the hole, by markers at the leader that were answered."""
    awake: bool = True
    fenced: bool = False
    """Its commits fail: another owner has taken its ids over."""
    to_store: list[NewRecord] | None = None
    """What the next commit stores beside the position; None = nothing has moved."""
    connection: Connection = field(init=False)
    known_connection: Connection | None = None
    """On which the end was read or a batch was sent last, as of a `PreservedCopy`."""
    copies: PreservedCopies = field(init=False)
    copy: PartitionCopy = field(init=False)
    at_target: PreservedCopy = field(init=False)
    appends: AppendLog = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.leader.connect()
        self.marker_epoch = self.leader.new_marker_epoch()
        self.copies = preserved_of(
            FakeClock(),
            ProducerIdentity(IDS[OURS], 0),
            foreign_write=self._foreign_write,
            tell_foreign=lambda _partition, _write: None,
            delete_before=self._delete_before,
            store_position=self._store_position,
            is_stored=lambda _: self.to_store is None,
            wake_reader=lambda: None,
            shares=ReadShares(),
        )
        self.copy = PartitionCopy(
            partition=P, target_topic="t", committed=self.assignment.position, random=lambda: 1.0
        )
        self.copies.assign(self.assignment, self.copy)
        self.at_target = self.copies.by_source[P]
        self.appends = self.at_target.appends
        self.appends.max_in_flight_bytes, self.appends.pack_below_bytes = 600, 250

    def step(self) -> None:
        """The next of the things it may do."""
        if self.connection.closed:
            self._reconnect()
        choice = self.random.random()
        if choice < 0.25:
            self._offer()
        elif choice < 0.6:
            self._act()
        elif choice < 0.65:
            self.copies.store_positions()
        elif choice < 0.7:
            self.commit()
        elif self.leader.has_answer(self.connection):
            self._take_answer()
        elif self.reading is not None:
            self._read_end()
        elif self.filling is not None:
            if self.at_leader and self.fill_stage == 0:
                self._fill_at_leader(self.filling)
            elif self.writing is None:
                self._fill(self.filling)
        elif self.copies.judge.waiting and not self._may_grow:
            at_once(self.copies.judge.look_at(self.copies.by_source[P]))

    @property
    def _may_grow(self) -> bool:
        """Somebody's request, also of its own on a connection that was closed, may still be carried out."""
        late = any(each.requests for each in self.leader.connections if each is not self.connection)
        return late or self.others_may_write()

    def commit(self) -> None:
        """Its transaction: all of it, or nothing when its ids are fenced."""
        records, self.to_store = self.to_store, None
        if records is not None and not self.fenced:
            self.log.commit(self.copy.committed, records)

    def leave(self) -> PartitionReport | None:
        """End in order, when nothing is on its way: the last words."""
        if not self.appends.is_idle or self.reading is not None or self.fenced:
            return None
        self.copies.store_positions()
        self.commit()
        return self.report()

    def report(self) -> PartitionReport:
        """As the task's reporter says it."""
        report = PartitionReport(partition=P, position=self.copy.committed, reason=self.copy.reason)
        preserved = self.copies.by_source[P]
        if self.to_store is not None:
            return report
        return replace(
            report,
            skipped=SkippedRange(first=preserved.skip_from, end=preserved.skip_to),
            leader_epoch=preserved.leader_epoch,
            needs_translation=self.copy.needs_translation,
            preserved_until=preserved.preserved_until,
        )

    @property
    def is_current(self) -> bool:
        """Where it would write next is the end of the log."""
        if self.appends.phase is not Phase.SURE:
            return self.reading is None and self.filling is None
        ends = [sent.end for sent in self.sent.values()]
        return max(ends, default=self.appends.acknowledged) == len(self.leader.log)

    # ----------------------------------------------------------------------------------------------

    @property
    def changed(self) -> Changed:
        return self.copies.writer.changed

    def _store_position(self, partition: TopicPartition, records: list[NewRecord]) -> None:
        self.to_store = [*(self.to_store or ()), *records]

    async def _delete_before(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        raise AssertionError

    async def _foreign_write(
        self, partition: TopicPartition, foreign_at: int, lost_since: int | None, topic_id: str
    ) -> FirstForeign:
        if topic_id != self.leader.topic_id:
            raise TransientKafkaError("another topic", reason="TARGET_RECREATED")
        if self.leader.high_watermark != len(self.leader.log):
            raise TransientKafkaError("being replicated", reason="HIGH_WATERMARK_BEHIND")
        lost_from = foreign_at if lost_since is None else self.leader.end_of_epoch(lost_since)
        if lost_from < foreign_at:
            return FirstForeign(-1, lost_from, 0)
        judged = ForeignLook(foreign_at, own_before(self.leader, foreign_at))
        for header in headers(self.leader, foreign_at):
            judged.see(header)
        return judged.found

    def _offer(self) -> None:
        """A fetch: from where the copy is read."""
        copy = self.copy
        if not copy.fetchable(0.0):
            return
        begin = at = copy.fetched
        stop = min(len(self.source), at + self.random.randint(1, 12))
        batches = []
        while at < stop:
            end = at + 1
            if self.source[at]:
                longest = min(stop, at + self.random.randint(1, LARGEST))
                while end < longest and self.source[end]:
                    end += 1
                batches.append(batch_of(at, end - at))
            at = end
        if at > begin:
            copy.fetched = at
            prepared = Prepared(batches=tuple(batches), next_offset=at)
            chunk = PreparedChunk(copy=copy, generation=copy.generation, prepared=prepared, held_bytes=100)
            self.copies.offer(chunk)

    def _act(self) -> None:
        if self.at_target.target not in self.copies.writer.partitions:
            return
        if self.known_connection is not self.connection:
            self.appends.meet_connection()
        match self.appends.next():
            case Send() as sent:
                self.known_connection = self.connection
                values = tuple(range(sent.first, sent.end))
                request = Produce(OURS, sent.base_sequence, values, self.connection)
                self.sent[request] = sent
                self.connection.requests.append(request)
            case ReadEnd() as reading:
                self.known_connection = self.connection
                self.reading = reading
            case Hole() as filling:
                self.filling = filling
            case None:
                pass

    def _take_answer(self) -> None:
        request = self.connection.answers.popleft()
        if isinstance(request, Markers):
            if request is self.writing:
                self._markers_answered(request)
            return
        if isinstance(request, EmptyRecords):
            self.fill_stage = 2 if isinstance(request.outcome, int) else 3
            return
        sent = self.sent.pop(request)
        if isinstance(request.outcome, Refusal):
            self.appends.refused(sent)
        else:
            assert request.outcome is not None
            self.appends.answered(sent, request.outcome)
        self.changed(self.at_target)

    def _reconnect(self) -> None:
        """The answers of the closed connection are lost."""
        for sent in self.sent.values():
            self.appends.refused(sent)
        self.sent.clear()
        if self.filling is not None and self.fill_stage == 1:
            self.fill_stage = 3
        if self.writing is not None:
            # It may be carried out late: what is sent next has to exclude it.
            self.writing, self.marker_state, self.fill_stage = None, None, 3
            self.marker_epoch = self.leader.new_marker_epoch()
        self.connection = self.leader.connect()
        self.changed(self.at_target)

    def _read_end(self) -> None:
        assert self.reading is not None
        leader, reading = self.leader, self.reading
        self.reading = None
        if leader.high_watermark != len(leader.log) or (self.fenced and not self.at_leader):
            self.appends.end_not_read()
            return
        if not self.fenced:
            self.filler_epoch = leader.init_filler()
        leader.replicate()
        end, last = len(leader.log), leader.last_sequence(OURS)
        if end < reading.checked_from and leader.topic_id != self.assignment.target_topic_id:
            self.appends.end_not_read()
            return
        foreign, filled = tail_of(leader, reading)
        if last is not None:
            tail = Tail(end, (last + 1) & 0x7FFFFFFF, True, foreign, filled, leader.epoch)
        else:
            tail = Tail(end, own_before(self.leader, end).next_sequence, False, foreign, filled, leader.epoch)
        self.appends.end_read(tail)
        self.changed(self.at_target)

    def _fill_at_leader(self, fill: Hole) -> None:
        """Step by step, as `LeaderFiller` does it: read the numbers with the end, write one marker, then the
        others; what is longer is left to a transaction."""
        leader = self.leader
        if self.writing is not None:
            return
        if self.marker_state is None:
            if not len(leader.log) == leader.high_watermark == fill.first:
                self.fill_stage = 3
                return
            self.marker_state = leader.marker_state
            if self.marker_state.producer_epoch > self.marker_epoch:
                self.marker_state, self.fill_stage = None, 3
                self.marker_epoch = leader.new_marker_epoch()
            return
        left = fill.count - self.filled_count
        if self.marker_state.producer_epoch < self.marker_epoch:
            number = first_number(self.marker_state, self.marker_epoch)
            assert number is not None
            self._write_markers([number])
        elif left == 0:
            self.fill_stage = 4
        elif fill.count > MOST_MARKERS:
            self._begin_transaction(fill)
        else:
            numbers = following_numbers(self.marker_state, left)
            assert numbers is not None
            self._write_markers(numbers)

    def _write_markers(self, numbers: Sequence[int]) -> None:
        self.writing = Markers(self.marker_epoch, deque(numbers), self.connection)
        self.marker_state = MarkerState(self.marker_epoch, numbers[-1])
        self.filled_count += len(numbers)
        self.connection.requests.append(self.writing)

    def _markers_answered(self, request: Markers) -> None:
        self.writing = None
        if isinstance(request.outcome, Refusal):
            self.marker_state, self.fill_stage = None, 3

    def _begin_transaction(self, fill: Hole) -> None:
        left = fill.count - self.filled_count
        if not self.leader.add_to_fill(self.filler_epoch):
            self.fill_stage = 3
        elif left == 1:
            self.fill_stage = 2
        else:
            self.fill_stage = 1
            self.connection.requests.append(EmptyRecords(self.filler_epoch, left - 1, self.connection))

    def _fill(self, fill: Hole) -> None:
        """Step by step, as the filler does it: add the partition, write the empty records, end the
        transaction, look where the log ends."""
        leader = self.leader
        if self.fill_stage == 0:
            self._begin_transaction(fill)
        elif self.fill_stage == 2:
            leader.end_fill(self.filler_epoch)
            self.fill_stage = 4 if leader.filler_epoch == self.filler_epoch else 3
        elif self.fill_stage == 4 and leader.high_watermark < fill.first + fill.count:
            # A marker that was lost with its leader: it is not waited for for ever.
            self.fill_stage = 3 if self.random.random() < 0.05 else 4
        elif self.fill_stage in (3, 4):
            last = fill.first + fill.count - 1
            is_certain = self.fill_stage == 4 and leader.high_watermark == last + 1
            is_certain = is_certain and is_marker_at(headers(leader, last)[0], last, IDS[FILLER])
            self.filling, self.fill_stage, self.filled_count = None, 0, 0
            if not is_certain:
                self.marker_state = None
            self.appends.filled(for_certain=is_certain)
            self.changed(self.at_target)
