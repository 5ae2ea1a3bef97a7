"""Decides what to write next to the copy of one partition that keeps the source's offsets. Pure: no I/O, no
clock.

The copy is written by plain idempotent batches, so the end of its log is the position. The state machine
decides when a batch may be sent, when a hole of the source is filled, and when the end of the log has to be
read again:

    UNSURE ──ReadEnd──▶ SURE ──Append──▶ SURE        several batches in flight
                         (filled ranges below the end are first compared with the source: `FillProof`)
      ▲                  │ └──Fill────▶ UNSURE        a hole: alone, with nothing in flight
      └── refusal, or lost answer ─────┘
    any ── an answer with another base offset, or foreign records in the log ──▶ FOREIGN

Invariants (tests of the same names check them under random schedules):
P1 The record at offset o of the copy is the record at offset o of the source, or o is invisible in both.
P2 Nothing is written before the end of the copy was read.
P3 A batch whose answer is unknown is not sent again before the end was read with nothing else in flight.
P4 Only offsets that the source does not show are filled.
P5 Two writers of one partition leave the log that one would have left.
P6 No position passes a record because something that looks like a filled hole is at its offset.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.batches import OutgoingBatch
from twinlog_source.preserved.append_steps import SEQUENCE_MASK, FillProof, Hole, ReadEnd, Send, Tail


class Phase(StrEnum):
    UNSURE = "UNSURE"
    """The end of the copy is not known: nothing is written before it was read."""
    READING = "READING"
    FILLING = "FILLING"
    SURE = "SURE"
    FOREIGN = "FOREIGN"
    """Another producer wrote to the copy: nothing more is written."""


@dataclass(slots=True, kw_only=True)
class AppendLog:
    """One partition. Offer the source's items from `wanted` on, carry out what `next` returns, and report the
    outcome."""

    max_in_flight_bytes: int
    """The limit of unanswered bytes; one batch is always allowed."""
    pack_below_bytes: int = 0
    """Batches that wait behind an unanswered one are joined up to this size; 0 = never."""
    acknowledged: int = 0
    """Every offset below is on the target."""
    wanted: int = 0
    """The next source offset to offer."""
    generation: int = 0
    """Raised when earlier offers are void: offer again from `wanted`."""
    phase: Phase = Phase.UNSURE
    foreign_at: int | None = None
    """The offset of the first foreign record, once the phase is FOREIGN."""
    has_lost_records: bool = False
    """With phase FOREIGN: an answer showed the foreign record, and the log is shorter than before. Records
    that were checked may be lost, with others in their place."""
    _queue: deque[OutgoingBatch | Hole] = field(default_factory=deque)
    _in_flight: deque[Send] = field(default_factory=deque)
    in_flight_bytes: int = 0
    _returned: list[Send] = field(default_factory=list)
    """Batches that were refused or not answered, until the end of the log shows which of them it has."""
    _next_sequence: int | None = None
    """None = the number of the next batch is its offset, so that the log shows a batch that was written at
    another offset."""
    _may_pipeline: bool = False
    """The leader knows the writer, so it refuses every batch that follows a refused one."""
    _proof: FillProof | None = None
    """What has to be compared with the source before the end of the copy is its position."""
    _checked_to: int = 0
    """Below this offset the copy was written by this writer, or searched for foreign records."""
    leader_epoch: int | None = None
    """The epoch of the leader of that log; None = unknown."""
    _leader_epoch_read: int | None = None
    """The epoch of the leader that answered last."""
    _end_under_epoch: int = 0
    """Where the log of that leader was seen to end."""

    @classmethod
    def starting_at(
        cls,
        position: int,
        *,
        max_in_flight_bytes: int,
        pack_below_bytes: int = 0,
        leader_epoch: int | None = None,
    ) -> "AppendLog":
        """The state of a copy that was written up to about `position`, which was checked in the log of
        `leader_epoch`; the first ReadEnd finds its actual end."""
        return cls(
            max_in_flight_bytes=max_in_flight_bytes,
            pack_below_bytes=pack_below_bytes,
            acknowledged=position,
            wanted=position,
            _checked_to=position,
            leader_epoch=leader_epoch,
            _end_under_epoch=position,
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued, in flight, or being filled."""
        return not self._queue and not self._in_flight and self.phase is not Phase.FILLING

    @property
    def is_end_read(self) -> bool:
        """Whether nothing was acknowledged since the end of the log was read."""
        return self.acknowledged <= self._end_under_epoch

    def epoch_that_reached(self, offset: int) -> int | None:
        """The leader epoch under which the log was seen to reach this offset; None = it was not."""
        return self.leader_epoch if offset <= self._end_under_epoch else None

    @property
    def is_proving(self) -> bool:
        """Whether offered items are not written, but compared with the content of the copy."""
        return self._proof is not None

    @property
    def last_hole(self) -> int:
        """How many offsets the hole has that the next offered item continues; 0 = it continues none."""
        last = self._queue[-1] if self._queue else None
        is_being_filled = self.phase is Phase.FILLING and len(self._queue) == 1
        return last.count if isinstance(last, Hole) and not is_being_filled else 0

    def offer(self, items: Iterable[OutgoingBatch | Hole], *, next_offset: int) -> None:
        """Offer the items of the source between `wanted` and `next_offset`, in order and without gaps."""
        at = self.wanted
        for item in items:
            assert item.first == at, (item.first, at)
            at = item.end
            if self._proof is not None:
                generation = self.generation
                self._compare(item, self._proof)
                if self.phase is Phase.FOREIGN or self.generation != generation:
                    return  # The other offered items are void.
                if self._proof is None and at != next_offset:
                    # The rest was offered to be compared, so nobody has checked whether it may be written.
                    self._drop_queue(at)
                    return
                continue
            # A hole that is being filled keeps the length that it had at the beginning.
            before = self.last_hole
            if isinstance(item, Hole) and before:
                self._queue[-1] = Hole(item.first - before, before + item.count)
            else:
                self._queue.append(item)
        assert at == next_offset, (at, next_offset)
        self.wanted = next_offset

    def next(self) -> ReadEnd | Send | Hole | None:
        """The next action; a hole is to be filled. None = wait for an answer or for more items. The action
        counts as begun."""
        if self.phase is Phase.UNSURE:
            if self._in_flight:
                return None
            self.phase = Phase.READING
            return ReadEnd(self._checked_to, self.leader_epoch)
        if self.phase is not Phase.SURE or not self._queue:
            return None
        head = self._queue[0]
        if isinstance(head, Hole):
            if self._in_flight:
                return None
            self.phase = Phase.FILLING
            return head
        if self._in_flight and not self._may_send_behind(head):
            return None
        return self._send()

    def answered(self, sent: Send, base_offset: int) -> None:
        """The leader, and every replica in sync, has the batch at `base_offset`."""
        self._take_back(sent)
        if base_offset != sent.first:
            self.has_lost_records = base_offset < sent.first
            self._become_foreign(min(base_offset, sent.first))
            return
        if self.phase is not Phase.SURE:
            # A batch before it was refused. A leader that forgot the writer since then takes this one,
            # whatever lies in the place of the refused one: the end is read again from before both.
            return
        self._may_pipeline = True
        # The batch is at its place, so everything before it is in the log as well.
        self.acknowledged = max(self.acknowledged, sent.end)
        self._checked_to = max(self._checked_to, self.acknowledged)

    def refused(self, sent: Send) -> None:
        """The batch was refused, or the answer is lost. Report a lost answer only when its connection is
        closed."""
        self._take_back(sent)
        if self.phase is not Phase.FOREIGN:
            self._returned.append(sent)
            self._lose_certainty()

    def meet_connection(self) -> None:
        """The next request would be the first one on a new connection, so the log may be that of another
        leader. A leader that lacks the filled offsets at the end would accept the next batch at the wrong
        offset, because fillers have no sequence numbers. So read the end again before sending."""
        if self.phase is Phase.SURE and not self._in_flight and self._queue and self._proof is None:
            self._lose_certainty()

    def doubt(self) -> None:
        """Another producer may have written to a copy at rest: read its end again."""
        if self.phase is Phase.SURE and self.is_idle and self._proof is None:
            self._lose_certainty()

    def filled(self, *, for_certain: bool = False) -> None:
        """Filling has ended. `for_certain` means that the log ends right behind the hole on every replica;
        otherwise the end of the log has to be read."""
        if self.phase is not Phase.FILLING:
            return
        if not for_certain:
            self._lose_certainty()
            return
        hole = self._queue.popleft()
        self.phase = Phase.SURE
        self.acknowledged = self._checked_to = hole.end

    def not_filled(self) -> None:
        """Filling was not begun: the log has nothing of it."""
        if self.phase is Phase.FILLING:
            self.phase = Phase.SURE

    def end_read(self, tail: Tail) -> None:
        """The answer to ReadEnd."""
        assert self.phase is Phase.READING
        assert not self._in_flight
        if tail.foreign_from is not None and not tail.filled:
            self._become_foreign(tail.foreign_from)
            return
        self.phase = Phase.SURE
        self._leader_epoch_read = tail.leader_epoch
        self._next_sequence = tail.next_sequence
        self._may_pipeline = tail.knows_writer
        if not tail.filled:
            self._continue_at(tail.end)
            return
        is_foreign = tail.foreign_from is not None
        end = tail.end if tail.foreign_from is None else tail.foreign_from
        self._proof = FillProof(end, is_foreign, deque(tail.filled))
        self._prove(self._proof)

    def end_not_read(self) -> None:
        """The end could not be read: it is read again."""
        if self.phase is Phase.READING:
            self.phase = Phase.UNSURE

    def believe(self, until: int | None = None) -> None:
        """Accept the filled offsets below `until` without comparison, or all of them: the source lacks the
        records for it by now, or an operator moves the position."""
        if self._proof is None:
            return
        if until is not None:
            self._proof.forget_below(until)
            if self._proof.filled:
                self._compare_from(self._proof.filled[0].first)
                return
        self._end_proof(self._proof)

    def forget_queued(self) -> None:
        """Offered items that were not sent are void (a pause, a failure); sent ones stay."""
        if self.phase is Phase.FILLING:
            hole = self._queue[0]
            self._drop_queue(hole.end)
            self._queue.append(hole)
            return
        sent = [*self._in_flight, *self._returned]
        self._drop_queue(max((each.end for each in sent), default=self.acknowledged))

    # ----------------------------------------------------------------------------------------------

    def _prove(self, proof: FillProof) -> None:
        """Compare the offered items with the copy; items that do not suffice for the comparison have to be
        offered again."""
        sent = sorted(self._returned, key=lambda each: each.first)
        items = [*(batch for each in sent for batch in each.batches), *self._queue]
        at = proof.filled[0].first
        for item in items:
            if item.first > at or item.first >= proof.end:
                break
            at = max(at, item.end)
            if not proof.agrees(item):
                self._become_foreign(max(item.first, proof.filled[0].first))
                return
            if not proof.filled:
                self._end_proof(proof)
                return
        self._returned.clear()
        self._compare_from(proof.filled[0].first)

    def _compare_from(self, offset: int) -> None:
        self.acknowledged = self._checked_to = offset
        self._drop_queue(offset)

    def _compare(self, item: OutgoingBatch | Hole, proof: FillProof) -> None:
        """Compare an offered item with the content of the copy."""
        if not proof.agrees(item):
            self._become_foreign(max(item.first, proof.filled[0].first))
            return
        self.wanted = item.end
        self.acknowledged = self._checked_to = min(item.end, proof.end)
        if not proof.filled:
            self._end_proof(proof)

    def _end_proof(self, proof: FillProof) -> None:
        self._proof = None
        if proof.is_foreign:
            self._become_foreign(proof.end)
        else:
            self._continue_at(proof.end)

    def _may_send_behind(self, head: OutgoingBatch) -> bool:
        if not self._may_pipeline:
            return False
        return self.in_flight_bytes + head.size_bytes <= self.max_in_flight_bytes

    def _send(self) -> Send:
        batches = [self._pop()]
        size = batches[0].size_bytes
        while self._in_flight and self._queue:
            head = self._queue[0]
            if isinstance(head, Hole) or head.codec != batches[0].codec:
                break
            if size + head.size_bytes > self.pack_below_bytes:
                break
            batches.append(self._pop())
            size += head.size_bytes
        sequence = batches[0].first & SEQUENCE_MASK if self._next_sequence is None else self._next_sequence
        sent = Send(tuple(batches), sequence, size)
        self._next_sequence = (sequence + sent.end - sent.first) & SEQUENCE_MASK
        self._in_flight.append(sent)
        self.in_flight_bytes += size
        return sent

    def _pop(self) -> OutgoingBatch:
        head = self._queue.popleft()
        assert isinstance(head, OutgoingBatch)
        return head

    def _take_back(self, sent: Send) -> None:
        self._in_flight.remove(sent)
        self.in_flight_bytes -= sent.size_bytes

    def _lose_certainty(self) -> None:
        self.phase = Phase.UNSURE
        self._may_pipeline = False

    def _become_foreign(self, offset: int) -> None:
        self.phase = Phase.FOREIGN
        self.foreign_at = offset if self.foreign_at is None else min(self.foreign_at, offset)
        self._proof = None
        self._returned.clear()
        self._queue.clear()

    def _continue_at(self, end: int) -> None:
        """Continue at the copy's end with the queued items from there on; if some are missing, they have to
        be offered again."""
        self.acknowledged = self._checked_to = end
        self.leader_epoch = self._leader_epoch_read
        self._end_under_epoch = end
        for sent in sorted(self._returned, key=lambda each: each.first, reverse=True):
            self._queue.extendleft(reversed(sent.batches))
        self._returned.clear()
        while self._queue and self._queue[0].end <= end:
            self._queue.popleft()
        head = self._queue[0] if self._queue else None
        if isinstance(head, Hole) and head.first < end:
            self._queue[0] = Hole(end, head.end - end)
        if not self._is_whole_from(end):
            self._drop_queue(end)

    def _is_whole_from(self, end: int) -> bool:
        """Whether the queue has everything between `end` and `wanted`."""
        at = end
        for item in self._queue:
            if item.first != at:
                return False
            at = item.end
        return at == self.wanted

    def _drop_queue(self, wanted: int) -> None:
        self._queue.clear()
        self.wanted = wanted
        self.generation += 1
