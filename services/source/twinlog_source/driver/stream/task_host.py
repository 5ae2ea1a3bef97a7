"""The driver's side of the tasks' control streams: provides settings and start positions, takes reports."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog_source.driver.epoch import Epoch, Slot
from twinlog_source.driver.epoch_jobs import EpochJobs
from twinlog_source.driver.instruments import FlowInstruments
from twinlog_source.driver.state import FlowState
from twinlog_source.driver.stream.task_settings import TaskSettings
from twinlog_source.partitions.events import Assigned, Copied, ForeignKnown, GapFound, Reported
from twinlog_source.partitions.orders import Echoes, ForeignWrite, Route, Start, TaskReport, TaskSetup
from twinlog_source.partitions.planner import share_debt
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.reasons import EndReason
from twinlog_source.records.pipe import PipeJob

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHost:
    """What the tasks of a flow ask of its driver, and tell it."""

    state: FlowState
    tasks: TaskSettings
    jobs: EpochJobs
    instruments: FlowInstruments

    def epoch_of(self, number: int) -> Epoch | None:
        return self.jobs.epoch_of(number)

    def prepare(self, epoch: Epoch, slot: Slot) -> TaskSetup:
        slot.heard_at = self.state.clock.monotonic()
        names = {partition.topic for partition in slot.partitions}
        topics = {name: self.state.topics[name] for name in names if name in self.state.topics}
        setup = self.tasks.prepare(
            epoch.number,
            slot.index,
            positions_partition_count=self.state.positions.partition_count,
            writer=self.state.control.writer,
        )
        return replace(
            setup,
            traceparent=epoch.trace,
            source_topics=tuple(topics),
            target_topics=tuple(topic.target_topic for topic in topics.values()),
        )

    async def rejoin(self, epoch: Epoch, slot: Slot) -> Start:
        # The new task initialised the slot's ids before it said Prepared, so the lost one is already fenced.
        await self.state.reread(slot.partitions)
        self._require_right(epoch)
        log.info("task_rejoined", flow=str(epoch.flow), epoch=epoch.number, slot=slot.index)
        return self.start(epoch, slot)

    async def reopened(self, epoch: Epoch, slot: Slot) -> Mapping[TopicPartition, int]:
        try:
            # This reads the log to the end that it has now: whatever the ids had in flight is decided there.
            await self.state.confirm()
        finally:
            slot.heard_at = self.state.clock.monotonic()
        self._require_right(epoch)
        if self.state.positions.has_lost:
            # The log may be behind the task, which ends: its last report is written to the log again.
            raise StateError("its log has lost positions", reason=EndReason.EPOCH_OVER)
        known = self.state.positions.known()
        return {partition: known[partition] for partition in slot.partitions if partition in known}

    async def store_producer(self, slot: Slot, producer_id: int, transactional_id: str) -> None:
        # Also for a task that copies no more: whoever uses the id, its batches are the flow's.
        try:
            await self.state.ownership.producers.store({producer_id: transactional_id})
        finally:
            slot.heard_at = self.state.clock.monotonic()

    async def who_wrote(self, slot: Slot, asked: Mapping[TopicPartition, Collection[int]]) -> Echoes:
        found = await self.state.origins.judge(asked, self.state.topics)
        judged, state = {partition for partition, _ in found}, self.state
        copied_back = {partition for (partition, _), (begin, end) in found.items() if begin < end}
        # Who is copied back may write, which was not known while these were counted.
        known = state.control.foreign
        told = [known[each] for each in copied_back & known.keys() if known[each].records]
        if told:
            await state.confirm()
            await state.record([replace(each, records=0, writes=(), acknowledged_by="") for each in told])
        for partition in copied_back:
            if partition not in known or not known[partition].acknowledged_by:
                state.note(ForeignKnown(partition=partition, records=0, writes=()))
        await state.origins.remember(judged, state.topics, state.journal, state.confirm)
        return found

    async def want_routes(self, partition: TopicPartition, names: Collection[str]) -> Collection[Route]:
        return await self.state.routes.want(partition, names)

    async def run_pipe(self, job: PipeJob) -> None:
        flow = self.tasks.flow
        assert flow.expressions is not None, "its tasks have nothing for Spark to do"
        await self.jobs.runner.workers.run_pipe(flow.flow, flow.expressions, job)

    def _require_right(self, epoch: Epoch) -> None:
        self.state.ownership.require_claim()
        if epoch.ending:
            raise StateError(f"epoch {epoch.number} is over", reason=EndReason.EPOCH_OVER)

    def observe(self, epoch: Epoch, slot: Slot, report: TaskReport) -> None:
        if epoch.closed:
            return
        slot.heard_at = now = self.state.clock.monotonic()
        reported = Reported(slot=slot.index, report=report, now_ms=self.state.clock.now_ms())
        effects = self.state.table.apply(reported, now)
        self.instruments.copied([each for each in effects if isinstance(each, Copied)])
        self.instruments.task_counted(slot.counted, report.counters)
        slot.counted = report.counters
        for effect in effects:
            if isinstance(effect, GapFound):
                self.state.ledger.enter(effect.gap)
        for each in report.partitions:
            for write in each.foreign_writes:
                self._foreign(epoch, each.partition, write)

    def _foreign(self, epoch: Epoch, partition: TopicPartition, write: ForeignWrite) -> None:
        """Another producer wrote to a copy."""
        row = self.state.table.rows.get(partition)
        if row is None:
            return
        self.instruments.foreign(row, write.records)
        log.warning(
            "foreign_write",
            flow=str(epoch.flow),
            reason=PreservedReason.FOREIGN_WRITE,
            topic=row.target_topic,
            partition=partition.partition,
            from_offset=write.from_offset,
            to_offset=write.to_offset,
            records=write.records,
            producer_id=write.producer_id,
            producer_epoch=write.producer_epoch,
            written_at_ms=write.written_at_ms,
        )

    def start(self, epoch: Epoch, slot: Slot) -> Start:
        """The start positions and the limits of the slot's task."""
        slot.heard_at = now = self.state.clock.monotonic()
        assignments = []
        for partition in slot.partitions:
            row = self.state.row(partition)
            if row is None or row.copy is None:
                # A task that rejoins gets neither partitions that leave the flow nor a copy that has ended.
                continue
            self.state.table.apply(Assigned(partition=partition, slot=slot.index), now)
            assignments.append(self.state.assignment(partition))
        limits = self.state.orders.throttles(epoch.plan, now=now)
        slot.limits = limits[slot.index]
        slot.paused = self.state.control.paused(slot.partitions)
        debt = share_debt(epoch.debts, limits)[slot.index]
        return Start(assignments=tuple(assignments), limits=slot.limits, debt=debt)
