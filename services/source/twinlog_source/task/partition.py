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

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.backoff import Jitter, backoff_seconds
from twinlog.batches import Lane
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.partitions.latency import LatencyHistogram
from twinlog_source.reasons import PartitionReason

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


class State(StrEnum):
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    BACKOFF = "BACKOFF"
    FAULTED = "FAULTED"


def retry_wait(failures: int, jitter: float) -> float:
    """Seconds until the next try after so many failures in a row before this one; `jitter` in [0, 1)."""
    return backoff_seconds(
        failures,
        first=FIRST_RETRY_SECONDS,
        longest=LONGEST_RETRY_SECONDS,
        jitter=Jitter.EQUAL,
        random=jitter,
    )


@dataclass(slots=True, kw_only=True)
class Counters:
    """What this task did for a partition since it was assigned."""

    records: int = 0
    bytes: int = 0
    raw_records: int = 0
    recoded_records: dict[str, int] = field(default_factory=dict)
    """By the reason that kept a batch from being copied unopened."""
    failures_by_reason: dict[str, int] = field(default_factory=dict)
    """Failures by reason."""
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    """Source timestamp to acknowledgement, since the last report."""
    record_age: LatencyHistogram = field(default_factory=LatencyHistogram)
    """When it was read, since the last report."""


@dataclass(slots=True, kw_only=True)
class PartitionCopy:
    """One partition as its task copies it; all offsets are the source's."""

    partition: TopicPartition
    target_topic: str
    committed: int
    """Next offset to copy: everything below is committed on the target, or was not to be copied."""
    random: Callable[[], float]
    compacted: bool = False
    """The source topic is compacted, or may be."""
    keeps_offsets: bool = False
    """Its records have the source's offsets on the target; the end of the copy is the position."""
    is_full: bool = False
    """Enough of it is on its way to the target: no more is fetched for now."""
    needs_translation: bool = False
    """Its copy cannot keep the offsets from `committed` on: nothing more is read."""
    fetched: int = field(init=False)
    """Next offset to fetch; ahead of `committed` by what is queued or sent."""
    sent: int = field(init=False)
    """Next offset to send; ahead of `committed` by what the open transaction holds."""
    state: State = State.RUNNING
    reason: str = ""
    message: str = ""
    reason_before: str = ""
    """The reason of the previous state."""
    retry_at: float | None = None
    """Monotonic seconds; None = not by itself."""
    end_offset: int | None = None
    """End of what may be copied of the source's log; None = not known."""
    log_start_offset: int | None = None
    counters: Counters = field(default_factory=Counters)
    generation: int = 0
    """Raised by every rewind: what was fetched for an older generation is thrown away."""
    held: bool = False
    rounds: int = 0
    """How many rounds that are not over have chunks of it, if only chunks that hold nothing but a fault."""
    restarts: int = 0
    """How often its position was decided elsewhere."""
    lane: Lane | None = None
    """The lane of the last copied batch."""
    latency_seconds: float | None = None
    """Source timestamp to acknowledgement of the last copied batch."""
    failures: int = 0
    """In a row, also those of the tasks before."""
    epochs: tuple[EpochStart, ...] = ()
    """Leader epochs of what is committed, the last one of the record before `committed`; empty = unknown."""
    fetched_epoch: int | None = None
    """The leader epoch of the record before `fetched`; None = unknown."""
    target_end: int | None = None
    """Target offset after the last record written, by this task or one before; None = unknown."""
    target_shortened_to: int | None = None
    """Where the target continued after it had lost records; None = not seen."""
    target_shortened_at: int | None = None
    """Source offset of the record that was written there: the target may have lost what lies before it."""
    target_shortened_times: int = 0
    """How often that was seen: the same records may be lost twice at the same place."""
    shortenings_told: int = 0
    """Of these, how many the driver was told of."""
    repositioned: int = 0
    """Id of the last command to continue elsewhere that is carried out and stored."""
    withdrawn: int = 0
    """Id of the last such command that was withdrawn before it was stored."""
    not_before: float = 0.0
    """Monotonic seconds before which nothing more of it may be copied (`Horizon`)."""
    not_before_reason: str = ""
    end_is_exact: bool = False
    """Nothing of ours lies behind `target_end` that consumers see."""
    ends_rounds_with_marker: bool = False
    """Its rounds are transactions: the marker of each takes an offset."""
    markers_to_come: int = 0
    """Of rounds that are committed: so many may lie at `target_end`, also of the round before where rounds
    overlap."""
    source_lost_from: int | None = None
    """The source lost what was copied from here on, and somebody has to decide; None = it did not."""
    settling: bool = False
    """Its position was moved by command and is not on the log yet: nothing is fetched."""
    _paused: bool = False

    def __post_init__(self) -> None:
        self.fetched = self.sent = self.committed
        self.fetched_epoch = self.epochs[-1].leader_epoch if self.epochs else None

    def fetchable(self, now: float) -> bool:
        """Whether the next fetch includes it; a back-off that is over ends here."""
        if (
            self.state in (State.BACKOFF, State.FAULTED)
            and self.retry_at is not None
            and now >= self.retry_at
        ):
            self._continue()
        stands_still = self.held or self.settling or self.is_full or self.needs_translation
        return self.state is State.RUNNING and not stands_still and now >= self.not_before

    @property
    def takes_answers(self) -> bool:
        """Whether the answer to a fetch that was under way may be copied. Not once the partition was paused,
        moved or set aside meanwhile: the records are fetched again when it continues."""
        return self.state is State.RUNNING and not self.settling and not self.needs_translation

    def wait_until(self, at: float, reason: str) -> None:
        """Copy nothing that is behind `fetched` before this moment, in monotonic seconds."""
        self.not_before, self.not_before_reason = at, reason

    def waits(self, now: float) -> str:
        """Why nothing more of it may be copied now; empty: it may."""
        return self.not_before_reason if now < self.not_before else ""

    def commit(self, position: int) -> None:
        """The target has committed everything below `position`."""
        assert position >= self.committed, (self.partition, self.committed, position)
        if position > self.committed:
            # Not by a chunk that holds only a fault: its next try would come as soon as the first one.
            self.failures = 0
        self.committed = position

    def reached_end(self) -> None:
        """The source has nothing after `fetched`. With nothing on its way either, earlier failures are over:
        the next one is the first again."""
        if self.is_idle:
            self.failures = 0

    @property
    def is_idle(self) -> bool:
        """Nothing is fetched, queued or sent that is not committed, and no fault is about to be told."""
        return self.fetched == self.committed and not self.rounds

    @property
    def has_more(self) -> bool:
        """Whether the source's log continues behind what is fetched."""
        return self.end_offset is not None and self.fetched < self.end_offset

    def written(
        self, base_offset: int, record_count: int, first_source_offset: int
    ) -> tuple[int, int] | None:
        """Records of it, the first of them this one of the source, were committed on the target at
        `base_offset`. The answer: a range of target offsets before them that is not ours, unless it is
        aborted."""
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
        """One that the driver was not told of yet is one with it: rather too much is told as lost than too
        little."""
        if self.target_shortened_to is not None and self.shortenings_told < self.target_shortened_times:
            base_offset = min(base_offset, self.target_shortened_to)
            first_source_offset = max(first_source_offset, self.target_shortened_at or 0)
        self.target_shortened_to, self.target_shortened_at = base_offset, first_source_offset
        self.target_shortened_times += 1

    def others_wrote(self, begin: int, end: int) -> None:
        """What lies between where the copy ended and this target offset was looked at: it is not ours."""
        if self.target_end == begin and self.is_idle:
            self.target_end, self.markers_to_come = end, 0

    def end_round(self) -> None:
        """A round that held records of it is committed: once for each round, in their order. Its marker may
        lie behind the records of the next one."""
        self.markers_to_come += self.ends_rounds_with_marker

    def rewind(self) -> None:
        """Throw away what is queued and sent: the transaction that held it was aborted."""
        self.sent = self.committed
        self.rounds = 0
        self.end_is_exact = False
        self.drop_queued()

    def drop_queued(self) -> None:
        """Throw away what is fetched but not sent."""
        self.fetched = self.sent
        self.fetched_epoch = self.epochs[-1].leader_epoch if self.epochs and self.is_idle else None
        self.generation += 1
        self.held = False
        self.not_before = 0.0

    def restart_at(self, position: int) -> None:
        """Continue from a position that was decided elsewhere (the log, an operator, a recorded gap).

        Only while nothing is sent, or what was sent is aborted.
        """
        self.committed = position
        self.restarts += 1
        self.source_lost_from = None
        self.epochs = ()
        self.rewind()

    def hold(self) -> None:
        """Fetch no more until the fault behind what was queued is told by `fail`, or a rewind forgets it."""
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
        """Set the partition aside: BACKOFF when a retry may help, FAULTED when somebody must act.

        Both try again by themselves, with growing waits up to a minute: what was repaired heals without a
        command. `keep_in_flight` when only reading failed: what was read before may still be committed.
        """
        self.held = False
        if not keep_in_flight:
            self.drop_queued()
        if wait_seconds is None:
            wait_seconds = retry_wait(self.failures, self.random())
        self.failures += 1
        self.counters.failures_by_reason[reason] = self.counters.failures_by_reason.get(reason, 0) + 1
        self._become(State.BACKOFF if retriable else State.FAULTED, reason, message)
        self.retry_at = now + wait_seconds

    def give_up_offsets(self, *, reason: str, message: str) -> None:
        """The copy cannot keep the source's offsets from `committed` on. Final: the driver assigns the
        partition again, as one with offsets of its own."""
        self.needs_translation = True
        self.rewind()
        self._become(State.FAULTED, reason, message)

    def restore_failure(
        self, *, state: State, reason: str, message: str, failures: int, retry_at: float
    ) -> None:
        """The task before had set the partition aside: it stays so, and its next try is no sooner."""
        self._become(state, reason, message)
        self.failures, self.retry_at = failures, retry_at

    def retry_now(self) -> None:
        """An operator acted: retry at once."""
        self.failures = 0
        if self.needs_translation:
            return
        if self.state in (State.BACKOFF, State.FAULTED):
            self._continue()
            self.reason_before = ""

    def pause(self, *, paused: bool) -> None:
        """Pause by command, or take the pause back. A fault stays visible while paused."""
        self._paused = paused
        if paused and self.state is State.RUNNING:
            self.drop_queued()
            self._continue()
        elif not paused and self.state is State.PAUSED:
            self._become(State.RUNNING)

    def _continue(self) -> None:
        """Be copied, or paused where that is the order."""
        if self._paused:
            self._become(State.PAUSED, PartitionReason.PAUSED_BY_OPERATOR)
        else:
            self._become(State.RUNNING)

    def _become(self, state: State, reason: str = "", message: str = "") -> None:
        self.reason_before = self.reason
        self.state, self.reason, self.message, self.retry_at = state, reason, message, None
