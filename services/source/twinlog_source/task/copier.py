"""The copy of one task: its partitions, the reading and the writing half, and the driver's commands to
them."""

import asyncio
import random
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.errors import KafkaError, StateError
from twinlog.kafka.raw import DataClientPool
from twinlog.model import Flow, TopicPartition
from twinlog_source.partitions.orders import SetPaused, Start
from twinlog_source.partitions.planner import SlotLimits
from twinlog_source.task.foreign_writes import ForeignWrites, RestingCopies
from twinlog_source.task.loss_judge import LogQuestions, LossJudge
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.fetch_schedule import Throttle
from twinlog_source.task.reading.source_reader import SourceReader
from twinlog_source.task.settings import CopySettings
from twinlog_source.task.stream.reports import Reporter
from twinlog_source.task.writing.preserved_copies import PreservedCopies
from twinlog_source.task.writing.round import OffsetSyncs
from twinlog_source.task.writing.target_writer import TargetWriter

CALL_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Copier:
    """Created by `open_copier`; call `assign` once, then `run` once."""

    flow: Flow
    dials: CopySettings
    source: DataClientPool
    clock: Clock
    source_reader: SourceReader
    target_writer: TargetWriter
    syncs: OffsetSyncs
    reporter: Reporter
    copies: dict[TopicPartition, PartitionCopy]
    source_topic_ids: dict[str, str]
    """By topic; "" = unknown. Only these topics are fetched."""
    target_topic_ids: dict[str, str]
    """By topic; "" = unknown. Only these topics are written."""
    by_target: dict[TopicPartition, PartitionCopy]
    throttle: Throttle
    foreign_writes: ForeignWrites
    resting: RestingCopies
    preserved: PreservedCopies | None = None
    """None if the flow has no preserved copies."""
    losses: LossJudge = field(init=False)

    def __post_init__(self) -> None:
        self.losses = LossJudge(
            flow=self.flow,
            questions=LogQuestions(self.source),
            target_writer=self.target_writer,
            preserved=self.preserved,
            topic_ids=self.source_topic_ids,
            on_gap=self.reporter.add_gap,
            fail_on_data_loss=self.dials.fail_on_data_loss,
            clock=self.clock,
        )
        self.source_reader.on_out_of_range = self.losses.on_out_of_range
        self.source_reader.on_other_leaders = self.losses.on_other_leaders
        self.source_reader.on_corrupt = self.losses.on_corrupt
        self.source_reader.on_rest = self.losses.on_rest

    def assign(self, start: Start) -> None:
        """Take the partitions and their start positions."""
        self.set_limits(start.limits)
        self.throttle.owe(start.debt, self.clock.monotonic())
        for assignment in start.assignments:
            partition = assignment.partition
            copy = PartitionCopy(
                partition=partition,
                target_topic=assignment.target_topic,
                policy=self.dials.policy(assignment),
                committed=assignment.position,
                random=random.random,
                epochs=assignment.leader_epochs,
                target_end=assignment.target_end,
                end_is_exact=assignment.target_end_is_exact,
                wrote_nothing=assignment.wrote_nothing,
                ends_rounds_with_marker=self.dials.exactly_once,
                markers_to_come=int(self.dials.exactly_once),
                compacted=assignment.compacted,
                shared=assignment.shared,
                origins={} if assignment.asks_origins else None,
            )
            copy.pause(paused=assignment.paused)
            self.copies[partition] = copy
            self.source_topic_ids[partition.topic] = assignment.source_topic_id
            self.target_topic_ids[assignment.target_topic] = assignment.target_topic_id
            self.by_target[copy.target] = copy
            if assignment.preserved is not None:
                self._require_preserved().assign(assignment, copy)
            if assignment.sync_pace is not None:
                self.syncs.paced.resume(partition, assignment.sync_pace, self.clock.monotonic())
            if assignment.prior_failure is not None:
                copy.restore_failure(assignment.prior_failure, self.clock.monotonic())
            if assignment.position_stored:
                self.target_writer.note_stored(partition, assignment.position)
            else:
                # Also a position of 0, so that a later start does not skip records before the first position.
                self.target_writer.store_soon(partition)

    async def run(self, stop: asyncio.Event) -> None:
        """Copy until `stop`; then commit what was sent. Raises KafkaError when the commit fails, or the ids
        are fenced."""
        copied, over = asyncio.Event(), asyncio.Event()
        failures: list[KafkaError] = []

        async def wake() -> None:
            await stop.wait()
            end()

        def end() -> None:
            over.set()
            self.source_reader.arrived.set()

        async def write_preserved(preserved: PreservedCopies) -> None:
            try:
                await preserved.run(copied)
            except KafkaError as error:
                failures.append(error)
                end()

        async with asyncio.TaskGroup() as group:
            waking = group.create_task(wake(), name="wake at stop")
            reading = group.create_task(self.source_reader.run(copied), name="source_reader")
            group.create_task(self.syncs.run(copied), name="offset syncs")
            looking = group.create_task(self.foreign_writes.run(copied), name="foreign writes")
            resting = group.create_task(self.resting.run(stop), name="copies at rest")
            if self.preserved is not None:
                group.create_task(write_preserved(self.preserved), name="preserved copies")
            try:
                await self.target_writer.run(over)
                if self.preserved is not None and not failures:
                    await self.preserved.drain()
                # Only then: what was found while the last positions are stored would not be on the log.
                reading.cancel()
                await asyncio.wait([reading])
                if not failures:
                    await self.target_writer.store_rest()
            except KafkaError as error:
                failures.append(error)
            finally:
                copied.set()
                # Cancel all of them: a fenced task ends without `stop`, and the driver waits for its last
                # message.
                for part in (reading, waking, looking, resting):
                    part.cancel()
        await self.syncs.close()
        if failures:
            raise failures[0]

    def set_paused(self, command: SetPaused) -> None:
        for partition in command.partitions:
            copy = self.copies.get(partition)
            if copy is not None:
                copy.pause(paused=command.paused)
        self.source_reader.wake()

    def set_limits(self, limits: SlotLimits) -> None:
        self.throttle.set_limits(
            limits.bytes_per_second or 0, limits.topic_bytes_per_second, self.clock.monotonic()
        )
        self.source_reader.wake()

    def _require_preserved(self) -> PreservedCopies:
        if self.preserved is None:
            raise StateError("a copy that keeps offsets was assigned, and no writer for it was prepared")
        return self.preserved
