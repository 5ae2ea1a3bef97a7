"""Decides how a copy continues when its source lost records: it stops, leaves a gap, or fills it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from twinlog.batches import NewRecord
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd, OffsetSpec
from twinlog.kafka.raw import DataClientPool, epoch_ends, list_offsets
from twinlog.model import Flow, TopicPartition
from twinlog_source.log.gaps import Gap, gap_record
from twinlog_source.preserved.append_steps import PreservedReason
from twinlog_source.reasons import PartitionReason
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.bounds import Loss, LossReason, find_divergence, find_loss, goes_on, settles
from twinlog_source.task.writing.preserved_copies import PreservedCopies
from twinlog_source.task.writing.preserved_copy import Why, hole_words
from twinlog_source.task.writing.target_writer import TargetWriter

# Requests to the leaders of the source about their logs. An error only affects its partition.

ANSWER_SECONDS = 30.0
UNSUPPORTED = "UNSUPPORTED_VERSION"
"""The reason for a broker that is too old for requests about the ends of leader epochs."""


@dataclass(frozen=True, slots=True)
class LogQuestions:
    source: DataClientPool

    async def offsets(
        self, spec: OffsetSpec, copies: Sequence[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        partitions = [copy.partition for copy in copies]
        try:
            return await list_offsets(self.source, spec, partitions, timeout_seconds=ANSWER_SECONDS)
        except KafkaError as error:
            return dict.fromkeys(partitions, error)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        """Where the records of leader epochs end."""
        try:
            return await epoch_ends(self.source, epochs, timeout_seconds=ANSWER_SECONDS)
        except KafkaError as error:
            return dict.fromkeys(epochs, error)

    async def divergences(
        self, copies: Sequence[PartitionCopy]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        """Where each log stopped being the one that was copied; None while it is."""
        found: dict[TopicPartition, int | KafkaError | None] = {}
        ends: dict[TopicPartition, dict[int, EpochEnd]] = {copy.partition: {} for copy in copies}
        left = {copy.partition: list(copy.epochs) for copy in copies}
        compacted = {copy.partition: copy.compacted for copy in copies}
        while wanted := {each: epochs.pop().leader_epoch for each, epochs in left.items() if epochs}:
            for partition, end in (await self.epoch_ends(wanted)).items():
                epoch = wanted[partition]
                if isinstance(end, KafkaError):
                    found[partition] = None if end.reason == UNSUPPORTED else end
                    left[partition].clear()
                    continue
                ends[partition][epoch] = end
                if settles(epoch, end.epoch, compacted=compacted[partition]):
                    left[partition].clear()
        for copy in copies:
            if copy.partition not in found:
                found[copy.partition] = find_divergence(
                    copy.committed, copy.epochs, ends[copy.partition], compacted=copy.compacted
                )
        return found


_NO_EPOCH = -1
"""In a request for the end of an epoch: no epoch is known."""
TRUNCATION_DOUBT_SECONDS = 5.0
LATE_LOOK_SECONDS = 0.25
"""How long after the last late batch may have come a partition is judged again."""
AGAIN_SECONDS = 0.25
"""How soon a partition is fetched again, and judged, that was neither moved nor set aside."""
_OFFSETS_END = ": from there on the copy is translated; or delete the target topic, and it is copied again"


@dataclass(slots=True, kw_only=True)
class LossJudge:
    flow: Flow
    questions: LogQuestions
    target_writer: TargetWriter
    preserved: PreservedCopies | None
    topic_ids: Mapping[str, str]
    """Of the source's topics."""
    on_gap: Callable[[Gap], None]
    """Called with each gap."""
    fail_on_data_loss: bool
    clock: Clock

    async def on_out_of_range(self, copies: Sequence[PartitionCopy]) -> None:
        """The source does not have the positions: find out what is missing, then continue or stop, by
        policy."""
        self._pause(copies)
        await self._judge([copy for copy in copies if copy.is_idle])

    async def on_other_leaders(self, copies: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
        """Ask the leaders whether their logs continue where the copies stand; judge those that do not."""
        epochs = {
            copy.partition: _NO_EPOCH if copy.fetched_epoch is None else copy.fetched_epoch for copy in copies
        }
        return await self._ask(copies, epochs, at_rest=False)

    async def on_rest(self, copies: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
        """Ask the leaders of logs that end where the copies stand whether they hold what was copied; judge
        those that do not. Return those, and those of which that is not known yet."""
        epochs = {copy.partition: copy.fetched_epoch for copy in copies if copy.fetched_epoch is not None}
        return await self._ask([copy for copy in copies if copy.partition in epochs], epochs, at_rest=True)

    async def _ask(
        self, copies: Sequence[PartitionCopy], epochs: Mapping[TopicPartition, int], *, at_rest: bool
    ) -> Collection[TopicPartition]:
        """`at_rest`: nothing is to be read, so only an answer about the epoch counts, and one that does not
        come is no failure."""
        refused: set[TopicPartition] = set()
        diverged: list[PartitionCopy] = []
        generations = {copy.partition: copy.generation for copy in copies}
        ends = await self.questions.epoch_ends(epochs)
        for copy in copies:
            partition, end = copy.partition, ends[copy.partition]
            if isinstance(end, KafkaError):
                if end.retriable if at_rest else end.reason != UNSUPPORTED:
                    refused.add(partition)
                    if not at_rest and copy.generation == generations[partition]:
                        self._not_answered(copy, end)
            elif at_rest and end.epoch < 0:
                continue
            elif not goes_on(copy.fetched, epochs[partition], end, compacted=copy.compacted):
                refused.add(partition)
                if copy.is_idle:
                    diverged.append(copy)
        self._pause([copy for copy in copies if copy.partition in refused])
        await self._judge(diverged)
        return refused

    def _pause(self, copies: Sequence[PartitionCopy]) -> None:
        """Do not fetch again at once from where the source was not believed to continue: while records are in
        flight, or where the leaders find nothing missing, the answer would be the same. Whatever moves the
        partition, or sets it aside, ends the pause."""
        again_at = self.clock.monotonic() + AGAIN_SECONDS
        for copy in copies:
            if copy.not_before < again_at:
                copy.wait_until(again_at, "")

    def _is_believed(self, copy: PartitionCopy, until: int) -> bool:
        """Whether the position was only read again to prove the end of its copy, and the source no longer has
        those records below `until`: then it continues behind them."""
        if self.preserved is None or not copy.keeps_offsets:
            return False
        return self.preserved.believe(copy.partition, until)

    async def _judge(self, copies: Sequence[PartitionCopy]) -> None:
        """Ask the leaders about all of them together, and decide for each separately."""
        if not copies:
            return
        generations = {copy.partition: copy.generation for copy in copies}
        starts = await self.questions.offsets(OffsetSpec.EARLIEST, copies)
        ends = await self.questions.offsets(OffsetSpec.LATEST, copies)
        divergences = await self.questions.divergences(copies)
        for copy in copies:
            partition = copy.partition
            if copy.generation != generations[partition] or not copy.is_idle:
                continue  # It was moved meanwhile, so the answer is not about its present position.
            start, end, diverged_at = starts[partition], ends[partition], divergences[partition]
            unanswered = next((one for one in (start, end, diverged_at) if isinstance(one, KafkaError)), None)
            if unanswered is not None:
                self._not_answered(copy, unanswered)
                continue
            assert isinstance(start, int)
            assert isinstance(end, int)
            assert not isinstance(diverged_at, KafkaError)
            self._decide(copy, start, end, diverged_at)

    def _decide(self, copy: PartitionCopy, start: int, end: int, diverged_at: int | None) -> None:
        """The source's log has the offsets from `start` to `end`, and differs from the copied records from
        `diverged_at` on."""
        loss = find_loss(
            position=copy.committed, log_start_offset=start, log_end_offset=end, diverged_at=diverged_at
        )
        if loss is None:
            return
        if loss.reason is LossReason.RETENTION and self._is_believed(copy, start):
            return
        if loss.reason is LossReason.TRUNCATION and copy.reason_before not in (
            PartitionReason.TRUNCATION_SUSPECTED,
            PartitionReason.DATA_LOSS,
        ):
            # A log that ends before the position may belong to a recreated topic. The driver compares topic
            # ids, and then assigns another position.
            copy.fail(
                reason=PartitionReason.TRUNCATION_SUSPECTED,
                message=f"the source log ended at {loss.from_offset}, before the position {copy.committed}",
                retriable=True,
                now=self.clock.monotonic(),
                wait_seconds=TRUNCATION_DOUBT_SECONDS,
            )
            return
        if loss.reason is LossReason.TRUNCATION:
            loss = self._up_to_the_end(copy, loss)
        if self.fail_on_data_loss:
            self._stop(copy, loss)
        elif copy.keeps_offsets:
            assert self.preserved is not None
            self._leave_out_of_preserved(copy, loss, self.preserved)
        else:
            self._leave_out(copy, loss)
            copy.restart_at(loss.resume_at)

    def _up_to_the_end(self, copy: PartitionCopy, loss: Loss) -> Loss:
        """A truncated source can no longer prove what is filled in its copy: the position is the end of the
        copy, which holds what the source lost up to there."""
        epochs = copy.epochs
        if self.preserved is None or not copy.keeps_offsets or not self.preserved.believe(copy.partition):
            return loss
        # They show the loss again, when the source has grown past the end of the copy meanwhile.
        copy.epochs = epochs
        return replace(loss, to_offset=copy.committed)

    def _stop(self, copy: PartitionCopy, loss: Loss) -> None:
        is_truncation = loss.reason is LossReason.TRUNCATION
        if is_truncation:
            copy.source_lost_from = loss.from_offset
        copy.fail(
            reason=PartitionReason.DATA_LOSS,
            message=f"{loss.reason}: the source does not hold offsets {loss.from_offset} to"
            f" {loss.to_offset - 1} any more (twinlog.on.data.loss=fail); set the position to continue"
            f"{_OFFSETS_END if copy.keeps_offsets and is_truncation else ''}",
            retriable=False,
            now=self.clock.monotonic(),
        )

    def _leave_out_of_preserved(self, copy: PartitionCopy, loss: Loss, preserved: PreservedCopies) -> None:
        """Fill what the copy lacks, or end the copy there."""
        partition, taken = copy.partition, preserved.by_source[copy.partition]
        if not taken.is_at_rest:
            return  # It is judged again.
        if loss.reason is LossReason.TRUNCATION:
            shorter = f"the source log of {partition} ended at {loss.from_offset}"
            doubt: Why = PartitionReason.TRUNCATION_SUSPECTED, f"{shorter}, before its position"
            held = f"{shorter}, and the copy holds what the source lost up to {loss.to_offset}"
            why: Why = PreservedReason.SOURCE_TRUNCATED, held
        elif preserved.fills(taken, loss.from_offset, loss.to_offset):
            self._leave_out(copy, loss, preserved.positions.fact_of(taken, skip_to=loss.resume_at))
            preserved.skip(taken, loss.resume_at)
            return
        else:
            words = hole_words(partition, loss.from_offset, loss.to_offset)
            doubt = why = PreservedReason.HOLE_TOO_LONG, words
        wait_seconds = preserved.look_when_still(taken)
        if wait_seconds > 0:
            # Lost records may still come late to the copy, among records with other offsets (rule 8 of
            # docs/adr/0008): it is judged again after that.
            copy.fail(
                reason=doubt[0],
                message=doubt[1],
                retriable=True,
                now=self.clock.monotonic(),
                wait_seconds=wait_seconds + LATE_LOOK_SECONDS,
            )
            return
        self._leave_out(copy, loss)
        preserved.end(taken, loss.resume_at, loss.from_offset, why)

    def on_corrupt(self, copy: PartitionCopy, until: int) -> None:
        """Go on behind a batch that cannot be read."""
        loss = Loss(
            reason=LossReason.CORRUPT_BATCH, from_offset=copy.committed, to_offset=until, resume_at=until
        )
        self._leave_out(copy, loss)
        copy.restart_at(until)

    def _leave_out(self, copy: PartitionCopy, loss: Loss, *facts: NewRecord) -> None:
        """Move the position, and store the gap that it leaves: both or neither."""
        gap = Gap(
            partition=copy.partition,
            from_offset=loss.from_offset,
            to_offset=loss.to_offset,
            reason=loss.reason,
            found_at_ms=self.clock.now_ms(),
            topic_id=self.topic_ids.get(copy.partition.topic, ""),
        )
        self.on_gap(gap)
        self.target_writer.store_soon(
            copy.partition, [NewRecord(*gap_record(self.flow, gap), gap.found_at_ms), *facts]
        )

    def _not_answered(self, copy: PartitionCopy, error: KafkaError) -> None:
        copy.fail(
            reason=error.reason,
            message=f"source: {error}",
            retriable=True,
            now=self.clock.monotonic(),
            keep_in_flight=True,
        )
