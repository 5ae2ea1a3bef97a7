"""Where partitions begin and end."""

import asyncio
import contextlib
from collections.abc import Collection, Mapping

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition
from confluent_kafka.admin import OffsetSpec as LibrdkafkaOffsetSpec

from twinlog.errors import KafkaError
from twinlog.kafka.admin_topics import TopicAdminMixin
from twinlog.kafka.deadline import pause
from twinlog.kafka.errors import NO_LEADER, from_code
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import TopicPartition

_UNKNOWN = 3
_NEW_LEADER_SECONDS = 0.6
_LOOK_AGAIN_SECONDS = 0.1
_SPECS = {
    OffsetSpec.EARLIEST: LibrdkafkaOffsetSpec.earliest,
    OffsetSpec.LATEST: LibrdkafkaOffsetSpec.latest,
    OffsetSpec.LAST_STABLE: LibrdkafkaOffsetSpec.latest,
}


class LogAdminMixin(TopicAdminMixin):
    """`LogAdmin` over confluent-kafka."""

    async def list_offsets(
        self, spec: OffsetSpec, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        committed = spec is OffsetSpec.LAST_STABLE
        answers = await self._list(
            f"list {spec} offsets",
            {partition: _SPECS[spec]() for partition in partitions},
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        )
        return dict(answers)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        answers = await self._list(
            "look up offsets by time",
            {
                partition: LibrdkafkaOffsetSpec.for_timestamp(timestamp_ms)
                for partition, timestamp_ms in timestamps_ms.items()
            },
            IsolationLevel.READ_UNCOMMITTED,
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
        wanted = [
            LibrdkafkaTopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in before.items()
        ]
        deleted = await self._admin.each(
            "delete records",
            lambda admin, seconds: admin.delete_records(
                wanted, request_timeout=seconds, operation_timeout=seconds
            ),
        )
        outcome = {
            TopicPartition(key.topic, key.partition): answer if isinstance(answer, KafkaError) else None
            for key, answer in deleted.items()
        }
        return outcome | await self._explained(outcome)

    async def _list(
        self,
        doing: str,
        specs: Mapping[TopicPartition, LibrdkafkaOffsetSpec],
        isolation: IsolationLevel,
    ) -> dict[TopicPartition, int | KafkaError]:
        """Ask, and ask again for a moment where a leader is only being chosen, as in a topic just created."""
        if not specs:
            return {}
        outcome = await self._list_once(doing, specs, isolation)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEW_LEADER_SECONDS):
                while leaderless := [one for one, answer in outcome.items() if _is_leaderless(answer)]:
                    await pause(_LOOK_AGAIN_SECONDS)
                    again = {partition: specs[partition] for partition in leaderless}
                    outcome |= await self._list_once(doing, again, isolation)
        return outcome

    async def _list_once(
        self,
        doing: str,
        specs: Mapping[TopicPartition, LibrdkafkaOffsetSpec],
        isolation: IsolationLevel,
    ) -> dict[TopicPartition, int | KafkaError]:
        wanted = {
            LibrdkafkaTopicPartition(partition.topic, partition.partition): spec
            for partition, spec in specs.items()
        }
        listed = await self._admin.each(
            doing,
            lambda admin, seconds: admin.list_offsets(
                wanted, isolation_level=isolation, request_timeout=seconds
            ),
        )
        outcome: dict[TopicPartition, int | KafkaError] = {
            TopicPartition(key.topic, key.partition): (
                answer if isinstance(answer, KafkaError) else int(answer.offset)
            )
            for key, answer in listed.items()
        }
        return outcome | await self._explained(outcome)

    async def _explained(self, outcome: Mapping[TopicPartition, object]) -> dict[TopicPartition, KafkaError]:
        """Better errors for those that only say "no leader".

        When no asked partition has a leader, librdkafka says that and nothing else: not that the topic is
        unknown, or forbidden.
        """
        unclear = [partition for partition, answer in outcome.items() if _is_leaderless(answer)]
        topics = await self.describe_topics({partition.topic for partition in unclear})
        explained: dict[TopicPartition, KafkaError] = {}
        for partition in unclear:
            topic = topics[partition.topic]
            if isinstance(topic, KafkaError):
                explained[partition] = topic
            elif partition.partition >= topic.partition_count:
                explained[partition] = from_code(_UNKNOWN, f"look at {partition}", alias=self._admin.alias)
        return explained


def _is_leaderless(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.reason == NO_LEADER.name
