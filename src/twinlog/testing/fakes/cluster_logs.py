"""Offsets and records of a fake cluster's logs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import EpochEnd, LogEnd, OffsetSpec
from twinlog.model import Record, TopicPartition
from twinlog.testing.fakes.cluster_base import FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import operation
from twinlog.testing.fakes.cluster_state import FakeLog, Transaction

A = TypeVar("A")


class FakeLogAdmin(FakeClusterBase):
    """`LogAdmin` in memory, and what tests can do to a log."""

    def append_transaction(
        self, partition: TopicPartition, records: Iterable[Record], outcome: Transaction
    ) -> int:
        """Append records of one transaction, and its marker unless `outcome` is OPEN.

        Returns the transaction's number for `finish_transaction`. The records' own offsets are ignored.
        """
        log = self.log(partition, "append")
        number = log.begin()
        for record in records:
            log.append(record, number)
        if outcome is not Transaction.OPEN:
            log.finish(number, outcome)
        self.changed()
        return number

    def finish_transaction(self, partition: TopicPartition, number: int, outcome: Transaction) -> None:
        self.log(partition, "finish").finish(number, outcome)
        self.changed()

    def punch_holes(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove single records, as compaction does."""
        self.log(partition, "compact").remove(set(offsets))

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Lose the log's tail, as an unclean leader election may: another leader continues."""
        self.log(partition, "truncate").truncate(end)
        self.changed()

    def elect(self, partition: TopicPartition) -> None:
        """Have another leader, which has all of the log."""
        self.log(partition, "elect").elect()

    def records(self, partition: TopicPartition) -> Sequence[Record]:
        """Every record of a log, including those of open and aborted transactions."""
        return self.log(partition, "look").records()

    @operation
    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        def answer(log: FakeLog) -> int:
            if spec is OffsetSpec.EARLIEST:
                return log.start
            return log.end if spec is OffsetSpec.LATEST else log.last_stable

        return {one: self._of_log(one, f"list {spec} offsets", answer) for one in partitions}

    @operation
    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        def answer(log: FakeLog) -> LogEnd:
            return LogEnd(log.end, log.leader_epoch)

        return {one: self._of_log(one, "ask for the end of logs", answer) for one in partitions}

    @operation
    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        doing = "ask for the end of a leader epoch"
        return {
            one: self._of_log(one, doing, lambda log, epoch=epoch: log.epoch_end(epoch))  # type: ignore[misc]
            for one, epoch in epochs.items()
        }

    @operation
    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        found: dict[TopicPartition, int | KafkaError | None] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            try:
                found[partition] = self.log(partition, "look up offsets by time").first_at(timestamp_ms)
            except KafkaError as error:
                found[partition] = error
        return found

    @operation
    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for partition, offset in before.items():
            try:
                log = self.log(partition, "delete records")
            except KafkaError as error:
                outcome[partition] = error
                continue
            beyond = offset > log.end
            outcome[partition] = (
                from_code(ErrorCode.OFFSET_OUT_OF_RANGE, "delete records", alias=self.alias)
                if beyond
                else None
            )
            if not beyond:
                log.delete_before(offset)
        return outcome

    def _of_log(
        self, partition: TopicPartition, doing: str, answer: Callable[[FakeLog], A]
    ) -> A | KafkaError:
        try:
            return answer(self.log(partition, doing))
        except KafkaError as error:
            return error
