"""A task's reports about its partitions: only those that changed, and from time to time all."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import worker_service_pb2 as pb
from twinlog.batches import Lane
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog_source.log.gaps import Gap
from twinlog_source.partitions.reports import ForeignWrite
from twinlog_source.reasons import HELD, PartitionReason
from twinlog_source.task.partition import PartitionCopy, State
from twinlog_source.task.stream.foreign_write_messages import foreign_write_message
from twinlog_source.task.stream.hole_cost_messages import hole_cost_messages
from twinlog_source.task.stream.latency_messages import latency_message
from twinlog_source.task.stream.sync_paces import pace_message
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.syncs import OffsetSyncs
from twinlog_source.task.writing.target_writer import TargetWriter

EVERYTHING_SECONDS = 60.0
"""After this time, partitions without changes are reported again."""
SLOW_SECONDS = 3.0
"""Records without acknowledgement for this long are reported, long before the delivery time-out."""

STATES = {
    State.RUNNING: source_pb.PARTITION_STATE_RUNNING,
    State.PAUSED: source_pb.PARTITION_STATE_PAUSED,
    State.BACKOFF: source_pb.PARTITION_STATE_BACKOFF,
    State.FAULTED: source_pb.PARTITION_STATE_FAULTED,
}
LANES = {Lane.RAW: source_pb.LANE_RAW, Lane.RECODE: source_pb.LANE_RECODE}

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
    _gaps: dict[TopicPartition, list[Gap]] = field(default_factory=dict)
    _foreign_writes: dict[TopicPartition, list[ForeignWrite]] = field(default_factory=dict)
    _told: dict[TopicPartition, _Seen] = field(default_factory=dict)
    _everything_since: float | None = None
    _unacknowledged: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """Partitions with records in flight: their position, and since when it has not moved."""

    def add_gap(self, gap: Gap) -> None:
        self._gaps.setdefault(gap.partition, []).append(gap)

    def add_foreign_write(self, partition: TopicPartition, write: ForeignWrite) -> None:
        if not self.copies[partition].shared:
            self._foreign_writes.setdefault(partition, []).append(write)

    def report(self, *, everything: bool = False) -> pb.PartitionReports:
        """What changed since the last call; each gap is in one report only."""
        now = self.clock.monotonic()
        since = self._everything_since
        if everything or since is None or now - since >= EVERYTHING_SECONDS:
            self._told.clear()
            self._everything_since = now
        source_problem = self.source_problem()
        reports = pb.PartitionReports(
            transactions_committed=self.target_writer.committed_rounds,
            transactions_aborted=self.target_writer.aborted_rounds,
            offset_syncs=self.syncs.emitted,
            failures=self._failures(),
            source_throttled=self.source_throttled(),
            target_throttled=self.target_throttled(),
        )
        for partition, copy in self.copies.items():
            waited_seconds = self._waited_seconds(copy, now)
            preserved, is_stored = self.preserved.get(partition), self.target_writer.is_stored(partition)
            if preserved is None:
                problem = self.target_writer.target_problem or source_problem
            else:
                problem = source_problem or _lasting_problem(preserved, now)
            seen = (
                copy.committed,
                copy.end_offset,
                copy.log_start_offset,
                copy.state,
                copy.reason,
                copy.message,
                copy.lane,
                copy.counters.records,
                copy.counters.echoes,
                copy.retry_at,
                copy.repositioned,
                copy.withdrawn,
                copy.epochs,
                copy.needs_translation,
                copy.source_lost_from,
                copy.target_shortened_times,
                None
                if preserved is None
                else (*preserved.skipped, preserved.is_at_rest, preserved.is_quiet, is_stored),
                problem is None,
                waited_seconds >= SLOW_SECONDS,
                copy.waits(now),
                len(self._gaps.get(partition, ())),
                len(self._foreign_writes.get(partition, ())),
            )
            if self._told.get(partition) != seen:
                self._told[partition] = seen
                report = self._report(copy, problem, waited_seconds)
                if preserved is not None and is_stored:
                    report.preserved.skip_from = preserved.skip_from
                    report.preserved.skip_to = preserved.skip_to
                    if preserved.leader_epoch is not None:
                        report.preserved.leader_epoch = preserved.leader_epoch
                    report.needs_translation = copy.needs_translation
                    report.preserved_until = preserved.preserved_until
                if preserved is not None:
                    report.at_rest, report.quiet = preserved.is_at_rest, preserved.is_quiet
                    report.hole_costs.extend(hole_cost_messages(preserved.at_target.hole_cost, now))
                pace = self.syncs.paced.pace(partition, now) if everything else None
                if pace is not None:
                    report.sync_pace.CopyFrom(pace_message(pace))
                reports.partitions.append(report)
        self._gaps.clear()
        self._foreign_writes.clear()
        return reports

    def _failures(self) -> dict[str, int]:
        failures = Counter(self.target_writer.failures)
        failures.update(self.target_writer.source_reader.failures)
        for copy in self.copies.values():
            if copy.counters.failures_by_reason:
                failures.update(copy.counters.failures_by_reason)
        return dict(failures)

    def _waited_seconds(self, copy: PartitionCopy, now: float) -> float:
        """For how long nothing that was read has been acknowledged; 0 when nothing is in flight."""
        if copy.is_idle or copy.state is not State.RUNNING:
            self._unacknowledged.pop(copy.partition, None)
            return 0.0
        position, since = self._unacknowledged.get(copy.partition, (-1, now))
        if position != copy.committed:
            self._unacknowledged[copy.partition] = copy.committed, now
            return 0.0
        return now - since

    def _report(
        self, copy: PartitionCopy, problem: KafkaError | None, waited_seconds: float
    ) -> pb.PartitionReport:
        report = pb.PartitionReport(
            partition=types_pb2.TopicPartition(
                topic=copy.partition.topic, partition=copy.partition.partition
            ),
            position=copy.committed,
            source_end_offset=_or_unknown(copy.end_offset),
            log_start_offset=_or_unknown(copy.log_start_offset),
            state=STATES[copy.state],
            reason=copy.reason,
            message=copy.message,
            records=copy.counters.records,
            bytes=copy.counters.bytes,
            raw_records=copy.counters.raw_records,
            recoded_records=copy.counters.recoded_records,
            echoes=copy.counters.echoes,
            repositioned=copy.repositioned,
            withdrawn=copy.withdrawn,
            failures=copy.failures,
            leader_epochs=[
                pb.LeaderEpochStart(leader_epoch=each.leader_epoch, offset=each.offset)
                for each in copy.epochs
            ],
            target_end_offset=_or_unknown(copy.target_end),
            target_end_is_old=copy.target_end_is_old,
            target_shortened_to=_or_unknown(copy.target_shortened_to),
            target_shortened_at=copy.target_shortened_at,
            target_shortened_times=copy.target_shortened_times,
            lane=source_pb.LANE_UNSPECIFIED if copy.lane is None else LANES[copy.lane],
            latency=latency_message(copy.counters.latency.take()),
            record_age=latency_message(copy.counters.record_age.take()),
        )
        copy.shortenings_told = copy.target_shortened_times
        if copy.state is State.RUNNING and problem is not None:
            report.state = source_pb.PARTITION_STATE_BACKOFF
            report.reason, report.message = problem.reason, str(problem)
        elif waited_seconds >= SLOW_SECONDS:
            report.reason = PartitionReason.TARGET_SLOW
            report.message = (
                f"the target has acknowledged nothing for {SLOW_SECONDS:g} s; the task keeps trying"
            )
        elif copy.state is State.RUNNING and (waits := copy.waits(self.clock.monotonic())):
            report.reason, report.message = waits, HELD[waits]
        if copy.source_lost_from is not None:
            report.source_lost_from = copy.source_lost_from
        if copy.retry_at is not None:
            report.retry_in.CopyFrom(_duration(max(0.0, copy.retry_at - self.clock.monotonic())))
        if copy.latency_seconds is not None:
            report.replication_latency.CopyFrom(_duration(copy.latency_seconds))
        report.gaps.extend(
            pb.Gap(
                from_offset=gap.from_offset,
                to_offset=gap.to_offset,
                reason=gap.reason,
                found_at=_timestamp(gap.found_at_ms),
            )
            for gap in self._gaps.get(copy.partition, ())
        )
        report.foreign_writes.extend(
            foreign_write_message(write) for write in self._foreign_writes.get(copy.partition, ())
        )
        return report


def _lasting_problem(preserved: PreservedCopy, now: float) -> KafkaError | None:
    """Why nothing is written to a preserved copy; each is written, and fails, separately."""
    at_target = preserved.at_target
    lasts = at_target.problem is not None and now - at_target.problem_since >= SLOW_SECONDS
    return at_target.problem if lasts else None


def _or_unknown(offset: int | None) -> int:
    return -1 if offset is None else offset


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


def _timestamp(wall_ms: int) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMilliseconds(wall_ms)
    return timestamp
