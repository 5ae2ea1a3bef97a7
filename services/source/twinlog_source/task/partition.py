"""The state of one partition in its task: a small machine that takes `now` and never does I/O.

RUNNING ──failure──▶ BACKOFF ──1 s to 60 s──▶ RUNNING      a retry may help
   │                    │
   └──pause──▶ PAUSED ◀─┘   resume ▶ RUNNING
   └──loss with policy `fail`, RECORD_TOO_LARGE, … ──▶ FAULTED ──1 s to 60 s──▶ RUNNING      somebody must act

Invariant A: `committed` only moves by `commit` and `restart_at`; `committed <= sent <= fetched`.
Invariant B: after `rewind` the next fetch begins at `committed`, after `drop_queued` at `sent`: nothing is
sent twice.
Invariant C: a partition that is not RUNNING has a reason.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinlog.backoff import Jitter, backoff_seconds
from twinlog.batches import CopyPolicy, Lane
from twinlog.batches.prepared import LeaderEpoch
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.partitions.orders import PartitionState, PriorFailure
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.reading.returns import Returns

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


def retry_wait(failures: int, jitter: float) -> float:
    """Seconds until the next try, after this many failures in a row; `jitter` in [0, 1)."""
    return backoff_seconds(
        failures,
        first=FIRST_RETRY_SECONDS,
        longest=LONGEST_RETRY_SECONDS,
        jitter=Jitter.EQUAL,
        random=jitter,
    )


@dataclass(slots=True, kw_only=True)
class Counters:
    """What this task has done for a partition since it was assigned."""

    records: int = 0
    bytes: int = 0
    raw_records: int = 0
    recoded_records: dict[str, int] = field(default_factory=dict)
    """By the reason why a batch was not copied raw, or a record of it not at all."""
    echoes: int = 0
    """Records that were left out because they are copies of what the target has already."""
    failures_by_reason: dict[str, int] = field(default_factory=dict)
    """Failures by reason."""
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """From source timestamp to acknowledgement, since the last report."""
    record_age: LatencyHistogram = field(default_factory=LatencyHistogram)
    """The age when read, since the last report."""


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """One partition in its task; all offsets are the source's."""

    partition: TopicPartition
    target_topic: str
    committed: int
    """The next offset to copy: everything below is committed on the target, or is not to be copied."""
    random: Callable[[], float]
    policy: CopyPolicy = field(default_factory=CopyPolicy)
    """How its batches are copied."""
    compacted: bool = False
    """The source topic is compacted, or may be."""
    shared: bool = False
    """Others write to the target topic, and are meant to."""
    origins: dict[int, tuple[int, int]] | None = None
    """By producer id of the source's batches, where they are echoes, as in `CopyPolicy.echoes`, as far as the
    driver was asked; None = the source has none."""
    returns: Returns = field(default_factory=Returns)
    """Whether somebody else copies it back, where the source may have copies of the target."""
    keeps_offsets: bool = False
    """The copy is preserved: its end is the position."""
    is_full: bool = False
    """Enough of it is in flight to the target: no more is fetched for now."""
    held_bytes: int = 0
    """Of a preserved copy: what was fetched and is not acknowledged."""
    needs_translation: bool = False
    """The copy cannot keep the offsets from `committed` on: nothing more is read."""
    target: TopicPartition = field(init=False)
    fetched: int = field(init=False)
    """The next offset to fetch; ahead of `committed` by what is queued or sent."""
    sent: int = field(init=False)
    """The next offset to send; ahead of `committed` by the content of the open transaction."""
    state: PartitionState = PartitionState.RUNNING
    reason: str = ""
    message: str = ""
    reason_before: str = ""
    """The reason of the previous state."""
    retry_at: float | None = None
    """Monotonic seconds; None = the partition does not retry by itself."""
    end_offset: int | None = None
    """The end of what may be copied of the source's log; None = unknown."""
    counters: Counters = field(default_factory=Counters)
    generation: int = 0
    """Raised by every rewind: chunks of an older generation are discarded."""
    held: bool = False
    rounds: int = 0
    """How many open rounds have chunks of it, including chunks with only a fault."""
    restarts: int = 0
    """How often its position was set from outside."""
    lane: Lane | None = None
    """The lane of the last copied batch."""
    latency_seconds: float | None = None
    """From source timestamp to acknowledgement of the last copied batch."""
    failures: int = 0
    """The number of failures in a row, including those of earlier tasks."""
    on_trial: bool = False
    """It was FAULTED, and nothing was committed and no failure that a retry may heal came since: the same
    records may be refused again. Alone in a round it could not be told from a cluster that is away."""
    epochs: tuple[EpochStart, ...] = ()
    """The leader epochs of the committed records, the last one of the record before `committed`; empty =
    unknown."""
    is_log_doubted: bool = True
    """The source's log may have lost its tail and grown again since it was last known to go on from here: the
    task has just begun, or could not read it for a while. Records show it; where there are none, the leader
    is asked."""
    target_end: int | None = None
    """The target offset after the last record that this or an earlier task wrote; None = unknown."""
    target_shortened_to: int | None = None
    """Where the target continued after it had lost records; None = no loss was seen."""
    target_shortened_at: int | None = None
    """The source offset of the record that was written there: the target may have lost records before it."""
    target_shortened_times: int = 0
    """How often a loss was seen: the same records may be lost twice at the same place."""
    shortenings_told: int = 0
    """How many of these losses were reported to the driver."""
    not_before: float = 0.0
    """Nothing more of the partition may be copied before this time, in monotonic seconds (`Horizon`)."""
    not_before_reason: str = ""
    end_is_exact: bool = False
    """Nothing of ours that consumers see lies behind `target_end`."""
    is_hidden: bool = False
    """Consumers have not seen the end of this copy for some time: a transaction of ours hangs there."""
    ends_rounds_with_marker: bool = False
    """Its rounds are transactions: the marker of each takes an offset."""
    wrote_nothing: bool = False
    """Neither this task nor an earlier one has sent anything to the target."""
    markers_to_come: int = 0
    """How many markers of committed rounds may be at `target_end`; also of the previous round where rounds
    overlap."""
    source_lost_from: int | None = None
    """The source lost copied records from here on, and an operator has to decide; None = it did not."""
    _paused: bool = False
    _fetched_epoch: int | None = None
    _sent_epoch: int | None = None
    """The leader epochs of the records before `fetched` and `sent` while those are ahead of `committed`; None
    = unknown."""

    def __post_init__(self) -> None:
        self.fetched = self.sent = self.committed
        self.target = TopicPartition(self.target_topic, self.partition.partition)

    def fetchable(self, now: float) -> bool:
        """Whether the next fetch includes it. A back-off that is over ends here."""
        if self.state is not PartitionState.RUNNING:
            if self.state is PartitionState.PAUSED or self.retry_at is None or now < self.retry_at:
                return False
            self._try_again()
        stands_still = self.held or self.is_full or self.needs_translation
        return not stands_still and now >= self.not_before and self.state is PartitionState.RUNNING

    @property
    def fetched_epoch(self) -> int | None:
        """The leader epoch of the record before `fetched`; None = unknown."""
        return self._epoch_before(self.fetched, self._fetched_epoch)

    def _epoch_before(self, offset: int, noted: int | None) -> int | None:
        if offset != self.committed:
            return noted
        return self.epochs[-1].leader_epoch if self.epochs else None

    def fetch_to(self, next_offset: int, epochs: Sequence[LeaderEpoch]) -> None:
        """What lies before `next_offset` was fetched, under these leader epochs."""
        self._fetched_epoch = epochs[-1].epoch if epochs else self.fetched_epoch
        self.fetched = next_offset

    def send_to(self, next_offset: int, epochs: Sequence[LeaderEpoch]) -> None:
        """What was fetched before `next_offset` is being sent."""
        before = self._epoch_before(self.sent, self._sent_epoch)
        self._sent_epoch = epochs[-1].epoch if epochs else before
        self.sent = next_offset

    def send_from(self, offset: int) -> None:
        """What was sent from this offset on is void."""
        if offset != self.sent:
            self.sent, self._sent_epoch = offset, None
        self.drop_queued()

    @property
    def takes_answers(self) -> bool:
        """Whether the answer to a fetch in flight may be copied. Not if the partition was paused, moved or
        set aside meanwhile: the records are fetched again when it continues."""
        return self.state is PartitionState.RUNNING and not self.needs_translation

    def wait_until(self, at: float, reason: str) -> None:
        """Copy nothing behind `fetched` before this moment, in monotonic seconds."""
        self.not_before, self.not_before_reason = at, reason

    def waits(self, now: float) -> str:
        """Why nothing more of it may be copied now; empty: it may."""
        return self.not_before_reason if now < self.not_before else ""

    @property
    def target_end_is_old(self) -> bool:
        """More of ours than up to `target_end` may be on the target: `committed` was decided elsewhere, or
        was read from the log after a round whose outcome is not known."""
        return self.target_end is not None and not (self.end_is_exact or self.keeps_offsets)

    def commit(self, position: int) -> None:
        """The target has committed everything below `position`."""
        assert position >= self.committed, (self.partition, self.committed, position)
        if position > self.committed:
            # Not for a chunk with only a fault: the wait before its next try would begin again at the
            # shortest.
            self.failures, self.on_trial = 0, False
        self.committed = position

    def found_nothing(self) -> None:
        """An answer had no records. If the source's log ends here (otherwise other partitions have used up
        the bytes of the request) and nothing is in flight, earlier failures are over, and the next one counts
        as the first."""
        if self.is_idle and not self.has_more:
            self.failures = 0

    @property
    def is_idle(self) -> bool:
        """Whether everything fetched, queued or sent is committed, and no fault is about to be reported."""
        return self.fetched == self.committed and not self.rounds

    @property
    def has_more(self) -> bool:
        """Whether the source's log continues behind what is fetched."""
        return self.end_offset is not None and self.fetched < self.end_offset

    def written(
        self, base_offset: int, record_count: int, first_source_offset: int
    ) -> tuple[int, int] | None:
        """Records of it, beginning with this offset of the source, were committed on the target at
        `base_offset`. Return a range of target offsets before them that is foreign unless it is aborted."""
        unexplained = None
        if self.target_end is not None and base_offset < self.target_end:
            self._note_shortened(base_offset, first_source_offset)
            self.markers_to_come = 0
        elif self.target_end is not None and self.end_is_exact:
            between = base_offset - self.target_end
            if between > self.markers_to_come:
                unexplained = self.target_end, base_offset
            self.markers_to_come = max(0, self.markers_to_come - between)
        else:
            self.markers_to_come = 0
        self.target_end = base_offset + record_count
        self.end_is_exact = not self.keeps_offsets
        return unexplained

    def _note_shortened(self, base_offset: int, first_source_offset: int) -> None:
        """Add a loss. It is joined with one that was not reported yet: a reported range may be too large,
        never too small."""
        if self.target_shortened_to is not None and self.shortenings_told < self.target_shortened_times:
            base_offset = min(base_offset, self.target_shortened_to)
            first_source_offset = max(first_source_offset, self.target_shortened_at or 0)
        self.target_shortened_to, self.target_shortened_at = base_offset, first_source_offset
        self.target_shortened_times += 1

    def others_wrote(self, begin: int, end: int) -> None:
        """The range between the end of the copy and this target offset was checked: it is foreign."""
        if self.target_end == begin and self.is_idle:
            self.target_end, self.markers_to_come = end, 0

    def end_round(self) -> None:
        """A round with records of it is committed; called once for each round, in order. Its marker may be
        behind the records of the next round."""
        self.markers_to_come += self.ends_rounds_with_marker

    def rewind(self) -> None:
        """Discard what is queued and sent: the transaction was aborted."""
        self.sent = self.committed
        self.rounds = 0
        self.end_is_exact = False
        self.drop_queued()

    def drop_queued(self) -> None:
        """Discard what is fetched but not sent."""
        self.fetched = self.sent
        self._fetched_epoch = self._sent_epoch
        self.generation += 1
        self.held = False
        self.not_before = 0.0

    def restart_at(self, position: int) -> None:
        """Continue from a position that was set from outside (the log, an operator, a recorded gap).

        Only while nothing is sent, or what was sent is aborted.
        """
        self.committed = position
        self.restarts += 1
        self.source_lost_from = None
        self.epochs = ()
        self.rewind()

    def hold(self) -> None:
        """Fetch no more until `fail` reports the fault behind what is queued, or a rewind removes it."""
        self.held = True

    def fail(
        self,
        *,
        reason: str,
        message: str,
        retriable: bool,
        now: float,
        keep_in_flight: bool = False,
        wait_seconds: float | None = None,
    ) -> None:
        """Set the partition aside: BACKOFF if a retry may help, FAULTED if an operator must act.

        Both retry by themselves, with growing waits up to a minute: when the cause is removed, the partition
        continues without a command; with `wait_seconds=math.inf` it waits for one. `keep_in_flight` if only
        reading failed: what was read before may still be committed.
        """
        self.held = False
        if not keep_in_flight:
            self.drop_queued()
        if wait_seconds is None:
            wait_seconds = retry_wait(self.failures, self.random())
        self.failures += 1
        self.counters.failures_by_reason[reason] = self.counters.failures_by_reason.get(reason, 0) + 1
        self._become(PartitionState.BACKOFF if retriable else PartitionState.FAULTED, reason, message)
        self.retry_at = now + wait_seconds if wait_seconds < math.inf else None

    def give_up_offsets(self, *, reason: str, message: str) -> None:
        """The copy cannot keep the source's offsets from `committed` on. Final, and no fault: the partition
        waits until the driver assigns it again as a translated one."""
        self.needs_translation = True
        self.rewind()
        self._become(PartitionState.WAITING, reason, message)

    def restore_failure(self, prior: PriorFailure, now: float) -> None:
        """The earlier task had set the partition aside: it stays so, and is not retried earlier."""
        is_fault, wait_seconds = prior.state is PartitionState.FAULTED, prior.retry_in_seconds
        self._become(
            PartitionState.FAULTED if is_fault else PartitionState.BACKOFF, prior.reason, prior.message
        )
        self.failures = prior.failures
        if wait_seconds is not None:
            self.retry_at = now + min(wait_seconds, LONGEST_RETRY_SECONDS)
        self.source_lost_from = prior.source_lost_from

    def pause(self, *, paused: bool) -> None:
        """Pause by an operator's command, or end the pause. A fault stays visible during the pause."""
        self._paused = paused
        if paused and self.state is PartitionState.RUNNING:
            self.drop_queued()
            self._continue()
        elif not paused and self.state is PartitionState.PAUSED:
            self._become(PartitionState.RUNNING)

    def _try_again(self) -> None:
        self.on_trial = self.state is PartitionState.FAULTED
        self._continue()

    def _continue(self) -> None:
        """Copy, or pause if that is ordered."""
        if self._paused:
            self._become(PartitionState.PAUSED, PartitionReason.PAUSED_BY_OPERATOR)
        else:
            self._become(PartitionState.RUNNING)

    def _become(self, state: PartitionState, reason: str = "", message: str = "") -> None:
        self.reason_before = self.reason
        self.state, self.reason, self.message, self.retry_at = state, reason, message, None
