"""Where partitions begin and end."""

from collections.abc import Collection, Mapping

from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition

from twinlog.errors import KafkaError
from twinlog.kafka.admin.topics import TopicAdminMixin
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import NO_LEADER, from_code, from_reason
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.offset_lookup import list_offsets, look_up_offsets
from twinlog.model import TopicPartition


class LogAdminMixin(TopicAdminMixin):
    """`LogAdmin` over requests of our own, but for delete_records."""

    _wire: DataClientPool

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        return await list_offsets(self._wire, spec, partitions)

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
        if not before:
            return {}
        doing = "delete records"
        wanted = [
            LibrdkafkaTopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in before.items()
        ]
        deleted = await self._admin.each(
            doing,
            lambda admin, seconds: admin.delete_records(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for key, answer in deleted.items():
            partition = TopicPartition(key.topic, key.partition)
            if isinstance(answer, KafkaError):
                outcome[partition] = answer
            elif answer.low_watermark < 0:
                outcome[partition] = from_reason(NO_LEADER, doing, alias=self._admin.alias)
            else:
                outcome[partition] = None
        return outcome | await self._explained(outcome, doing)

    async def _explained(
        self, outcome: Mapping[TopicPartition, KafkaError | None], doing: str
    ) -> dict[TopicPartition, KafkaError]:
        """Better errors for those that only say "no leader".

        When no asked partition has a leader, librdkafka says that and nothing else: not that the topic is
        unknown, or forbidden.
        """
        unclear = [
            partition
            for partition, answer in outcome.items()
            if answer is not None and answer.reason == NO_LEADER.name
        ]
        topics = await self.describe_topics({partition.topic for partition in unclear})
        explained: dict[TopicPartition, KafkaError] = {}
        for partition in unclear:
            topic = topics[partition.topic]
            if isinstance(topic, KafkaError):
                explained[partition] = topic
            elif partition.partition >= topic.partition_count:
                explained[partition] = from_code(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, doing, alias=self._admin.alias
                )
        return explained
