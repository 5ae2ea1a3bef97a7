"""A task's reports about its partitions: only those that changed, and from time to time all."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog_source.log.gaps import Gap
from twinlog_source.log.hanging import HANGING
from twinlog_source.partitions.orders import (
    ForeignWrite,
    PartitionReport,
    PartitionState,
    SkippedRange,
    TaskCounters,
    TaskReport,
)
from twinlog_source.reasons import HELD, PartitionReason
from twinlog_source.records.changing import AtSpark
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.round import OffsetSyncs
from twinlog_source.task.writing.target_writer import TargetWriter

EVERYTHING_SECONDS = 60.0
"""After this time, partitions without changes are reported again."""
SLOW_SECONDS = 3.0
"""Records without acknowledgement for this long are reported, long before the delivery time-out."""

_Seen = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class Reporter:
    copies: Mapping[TopicPartition, PartitionCopy]
    target_writer: TargetWriter
    syncs: OffsetSyncs
    source_problem: Callable[[], KafkaError | None]
    source_throttled: Callable[[], bool]
    """Whether a quota of the source delays the task now."""
    target_throttled: Callable[[], bool]
    clock: Clock
    preserved: Mapping[TopicPartition, PreservedCopy] = field(default_factory=dict)
    """Those of `copies` that are preserved."""
    late_seconds: float = 30.0
    """How long after its answer was lost a batch may still get onto a preserved copy."""
    at_spark: Mapping[TopicPartition, AtSpark] = field(default_factory=dict)
    _gaps: dict[TopicPartition, list[Gap]] = field(default_factory=dict)
    _foreign_writes: dict[TopicPartition, list[ForeignWrite]] = field(default_factory=dict)
    _told: dict[TopicPartition, _Seen] = field(default_factory=dict)
    _everything_since: float | None = None
    _unacknowledged: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """Partitions with records in flight, or an examined copy: their position, and since when it has not
    moved."""

    def add_gap(self, gap: Gap) -> None:
        self._gaps.setdefault(gap.partition, []).append(gap)

    def add_foreign_write(self, partition: TopicPartition, write: ForeignWrite) -> None:
        if not self.copies[partition].shared:
            self._foreign_writes.setdefault(partition, []).append(write)

    def report(self, *, everything: bool = False) -> TaskReport:
        """What changed since the last call; each gap is in one report only."""
        now = self.clock.monotonic()
        since = self._everything_since
        if everything or since is None or now - since >= EVERYTHING_SECONDS:
            self._told.clear()
            self._everything_since = now
        source_problem = self.source_problem()
        reports: list[PartitionReport] = []
        for partition, copy in self.copies.items():
            waited_seconds = self._waited_seconds(copy, now)
            preserved, is_stored = self.preserved.get(partition), self.target_writer.is_stored(partition)
            if preserved is None:
                is_slow = waited_seconds >= SLOW_SECONDS
                lacks = self.target_writer.leaderless(copy.target) if is_slow else None
                problem = self.target_writer.target_problem or source_problem or lacks or _hidden(copy)
            else:
                problem = source_problem or _lasting_problem(preserved, now)
            seen = (
                copy.committed,
                copy.end_offset,
                copy.state,
                copy.reason,
                copy.message,
                copy.lane,
                copy.counters.records,
                copy.counters.echoes,
                copy.retry_at,
                copy.epochs,
                copy.needs_translation,
                copy.source_lost_from,
                copy.target_shortened_times,
                None
                if preserved is None
                else (*preserved.skipped, self._is_at_rest(preserved, now), preserved.is_quiet, is_stored),
                problem is None,
                waited_seconds >= SLOW_SECONDS,
                copy.waits(now),
                self._waits_for_spark(copy, now),
                len(self._gaps.get(partition, ())),
                len(self._foreign_writes.get(partition, ())),
            )
            if self._told.get(partition) != seen:
                self._told[partition] = seen
                report = self._report(copy, problem, waited_seconds)
                if preserved is not None:
                    at_rest = self._is_at_rest(preserved, now)
                    report = replace(report, at_rest=at_rest, is_quiet=preserved.is_quiet)
                    if is_stored:
                        report = replace(
                            report,
                            skipped=SkippedRange(first=preserved.skip_from, end=preserved.skip_to),
                            leader_epoch=preserved.leader_epoch,
                            needs_translation=copy.needs_translation,
                            preserved_until=preserved.preserved_until,
                        )
                if everything:
                    report = replace(report, sync_pace=self.syncs.paced.pace(partition, now))
                reports.append(report)
        gaps = tuple(gap for found in self._gaps.values() for gap in found)
        self._gaps.clear()
        self._foreign_writes.clear()
        return TaskReport(
            partitions=tuple(reports),
            gaps=gaps,
            counters=TaskCounters(
                transactions_committed=self.target_writer.committed_rounds,
                transactions_aborted=self.target_writer.aborted_rounds,
                offset_syncs=self.syncs.emitted,
                failures=self._failures(),
            ),
            source_throttled=self.source_throttled(),
            target_throttled=self.target_throttled(),
        )

    def _is_at_rest(self, preserved: PreservedCopy, now: float) -> bool:
        return preserved.is_at_rest and now >= preserved.lost_at + self.late_seconds

    def _failures(self) -> dict[str, int]:
        failures = Counter(self.target_writer.failures)
        failures.update(self.target_writer.source_reader.failures)
        for copy in self.copies.values():
            if copy.counters.failures_by_reason:
                failures.update(copy.counters.failures_by_reason)
        return dict(failures)

    def _is_examined(self, copy: PartitionCopy) -> bool:
        preserved = self.preserved.get(copy.partition)
        return preserved is not None and not copy.needs_translation and preserved.is_examined

    def _waited_seconds(self, copy: PartitionCopy, now: float) -> float:
        """For how long nothing that was read has been acknowledged, or the copy has been examined; 0 when
        nothing is in flight."""
        waits = not copy.is_idle or self._is_examined(copy)
        if not waits or copy.state is not PartitionState.RUNNING:
            self._unacknowledged.pop(copy.partition, None)
            return 0.0
        position, since = self._unacknowledged.get(copy.partition, (-1, now))
        if position != copy.committed:
            self._unacknowledged[copy.partition] = copy.committed, now
            return 0.0
        return now - since

    def _report(
        self, copy: PartitionCopy, problem: KafkaError | None, waited_seconds: float
    ) -> PartitionReport:
        now = self.clock.monotonic()
        state, reason, message = self._standing(copy, problem, waited_seconds, now)
        copy.shortenings_told = copy.target_shortened_times
        return PartitionReport(
            partition=copy.partition,
            position=copy.committed,
            state=state,
            reason=reason,
            message=message,
            source_end=copy.end_offset,
            retry_in_seconds=None if copy.retry_at is None else max(0.0, copy.retry_at - now),
            failures=copy.failures,
            records=copy.counters.records,
            bytes=copy.counters.bytes,
            raw_records=copy.counters.raw_records,
            recoded_records=dict(copy.counters.recoded_records),
            echoes=copy.counters.echoes,
            lane=copy.lane,
            replication_latency_ns=(
                None if copy.latency_seconds is None else int(copy.latency_seconds * 1e9)
            ),
            latency=copy.counters.latency.take(),
            record_age=copy.counters.record_age.take(),
            target_end=copy.target_end,
            target_end_is_old=copy.target_end_is_old,
            wrote_nothing=copy.wrote_nothing,
            target_shortened_to=copy.target_shortened_to,
            target_shortened_at=copy.target_shortened_at,
            target_shortened_times=copy.target_shortened_times,
            leader_epochs=copy.epochs,
            source_lost_from=copy.source_lost_from,
            foreign_writes=() if copy.shared else tuple(self._foreign_writes.get(copy.partition, ())),
        )

    def _standing(
        self, copy: PartitionCopy, problem: KafkaError | None, waited_seconds: float, now: float
    ) -> tuple[PartitionState, str, str]:
        """State, reason and message, as the driver shows them."""
        if copy.state is PartitionState.RUNNING and problem is not None:
            return PartitionState.BACKOFF, problem.reason, str(problem)
        if waited_seconds >= SLOW_SECONDS and self._is_examined(copy):
            words = "where it ends is being found out; a task that had it before may still write to it"
            return copy.state, PartitionReason.COMPARING, words
        if waited_seconds >= SLOW_SECONDS:
            # A request is answered, and a round committed, as a whole.
            words = (
                f"the target has acknowledged nothing for {SLOW_SECONDS:g} s of this and what was sent"
                " with it; the task keeps trying"
            )
            return copy.state, PartitionReason.TARGET_SLOW, words
        if copy.state is PartitionState.RUNNING and (waits := copy.waits(now)):
            return copy.state, waits, HELD[waits]
        return self._waits_for_spark(copy, now) or (copy.state, copy.reason, copy.message)

    def _waits_for_spark(self, copy: PartitionCopy, now: float) -> tuple[PartitionState, str, str] | None:
        """As `_standing`; None = it does not, or not for long."""
        found = self.at_spark.get(copy.partition)
        if found is None or copy.state is not PartitionState.RUNNING:
            return None
        if found.problem is not None:
            return PartitionState.BACKOFF, found.problem.reason, str(found.problem)
        if now - found.since >= SLOW_SECONDS:
            # No reason: it is known when the job fails, or finds no core.
            return copy.state, "", "Spark has not changed its next records yet"
        return None


def _hidden(copy: PartitionCopy) -> KafkaError | None:
    told = "consumers of the copy do not see its last records: a transaction hangs there"
    return TransientKafkaError(told, reason=HANGING) if copy.is_hidden else None


def _lasting_problem(preserved: PreservedCopy, now: float) -> KafkaError | None:
    """Why nothing is written to a preserved copy; each is written, and fails, separately."""
    lasts = preserved.problem is not None and now - preserved.problem_since >= SLOW_SECONDS
    return preserved.problem if lasts else None
