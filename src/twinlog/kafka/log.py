"""Where partitions begin and end."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.ports import EpochEnd, LogEnd, OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.offset_lookup import (
    delete_records,
    epoch_ends,
    list_offsets,
    log_ends,
    look_up_offsets,
)
from twinlog.model import TopicPartition


class LogAdminMixin:
    """Implements `LogAdmin` with requests of our own."""

    _wire: DataClientPool

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return await list_offsets(self._wire, spec, partitions)

    async def log_ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, LogEnd | KafkaError]:
        return await log_ends(self._wire, partitions, timeout_seconds=self._wire.timeout_seconds)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, EpochEnd | KafkaError]:
        return await epoch_ends(self._wire, epochs, timeout_seconds=self._wire.timeout_seconds)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        answers = await look_up_offsets(
            self._wire, timestamps_ms, read_committed=False, doing="look up offsets by time"
        )
        return {
            partition: None if isinstance(answer, int) and answer < 0 else answer
            for partition, answer in answers.items()
        }

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        answers = await delete_records(self._wire, before, timeout_seconds=self._wire.timeout_seconds)
        return {
            partition: answer if isinstance(answer, KafkaError) else None
            for partition, answer in answers.items()
        }
