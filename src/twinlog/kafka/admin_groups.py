"""Consumer groups of a cluster and what they have committed."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka import TopicPartition as LibrdkafkaTopicPartition
from confluent_kafka.admin import AdminClient

from twinlog.errors import KafkaError
from twinlog.kafka.admin_client import AdminSession
from twinlog.kafka.errors import KAFKA_REASONS, from_librdkafka, translate
from twinlog.kafka.ports import CommittedOffset, GroupDescription
from twinlog.model import TopicPartition

_GROUP_UNKNOWN = KAFKA_REASONS[69].name
_TYPES = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_DEAD = "DEAD"


class GroupAdminMixin:
    """`GroupAdmin` over confluent-kafka."""

    _admin: AdminSession

    async def list_groups(self) -> Mapping[str, str]:
        doing = "list groups"
        listed = await self._admin.one(
            doing, lambda admin, seconds: admin.list_consumer_groups(request_timeout=seconds)
        )
        if listed.errors:
            # A coordinator that did not answer hides its groups: no list is better than half of one.
            raise translate(listed.errors[0], doing, alias=self._admin.alias)
        return {group.group_id: _type(group) for group in listed.valid}

    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        if not group_ids:
            return {}
        described = await self._admin.each(
            "describe groups",
            lambda admin, seconds: admin.describe_consumer_groups(
                sorted(set(group_ids)), request_timeout=seconds
            ),
        )
        return {group_id: _description(group_id, answer) for group_id, answer in described.items()}

    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        def start(admin: AdminClient, seconds: float) -> dict[str, "Future[Any]"]:
            futures: dict[str, Future[Any]] = {}
            for group_id in set(group_ids):
                futures |= admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group_id)], request_timeout=seconds
                )
            return futures

        listed = await self._admin.each("read group offsets", start)
        return {
            group_id: answer if isinstance(answer, KafkaError) else self._committed(answer)
            for group_id, answer in listed.items()
        }

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        if not offsets:
            return {}
        doing = f"commit for group {group_id}"
        wanted = [
            LibrdkafkaTopicPartition(
                partition.topic, partition.partition, committed.next_offset, committed.metadata
            )
            for partition, committed in offsets.items()
        ]
        try:
            altered = await self._admin.one(
                doing,
                lambda admin, seconds: admin.alter_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group_id, wanted)], request_timeout=seconds
                )[group_id],
            )
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        return {
            TopicPartition(entry.topic, entry.partition): (
                None if entry.error is None else from_librdkafka(entry.error, doing, alias=self._admin.alias)
            )
            for entry in altered.topic_partitions
        }

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        if not group_ids:
            return {}
        return await self._admin.each(
            "delete groups",
            lambda admin, seconds: admin.delete_consumer_groups(
                sorted(set(group_ids)), request_timeout=seconds
            ),
        )

    def _committed(
        self, listed: ConsumerGroupTopicPartitions
    ) -> Mapping[TopicPartition, CommittedOffset] | KafkaError:
        committed: dict[TopicPartition, CommittedOffset] = {}
        for entry in listed.topic_partitions or ():
            if entry.error is not None:
                return from_librdkafka(
                    entry.error, f"read offsets of group {listed.group_id}", alias=self._admin.alias
                )
            if entry.offset >= 0:
                partition = TopicPartition(entry.topic, entry.partition)
                committed[partition] = CommittedOffset(
                    next_offset=entry.offset, metadata=entry.metadata or ""
                )
        return committed


def _description(group_id: str, answer: Any) -> GroupDescription | KafkaError:
    if isinstance(answer, KafkaError):
        if answer.reason != _GROUP_UNKNOWN:
            return answer
        return GroupDescription(group_id=group_id, state=_DEAD, group_type="classic", member_count=0)
    return GroupDescription(
        group_id=group_id,
        state=ConsumerGroupState(answer.state).name,
        group_type=_type(answer),
        member_count=len(answer.members),
    )


def _type(group: Any) -> str:
    """Brokers before 3.8 do not say: they have no other type than classic."""
    return _TYPES.get(getattr(group, "type", None), "classic")
