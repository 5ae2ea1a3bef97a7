"""Requests to the leaders of the source about their logs. An error only affects its partition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd, OffsetSpec
from twinlog.kafka.raw import DataClientPool, epoch_ends, list_offsets
from twinlog.model import TopicPartition
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.loss import find_divergence, settles

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
