"""Consumer groups of a cluster and what they have committed."""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from twinlog.errors import KafkaError
from twinlog.kafka.admin_client import AdminSession
from twinlog.kafka.connection import DataSession
from twinlog.kafka.errors import KAFKA_REASONS
from twinlog.kafka.group_listing import list_consumer_groups
from twinlog.kafka.group_offsets import GroupOffsetsClient
from twinlog.kafka.ports import CommittedOffset, GroupDescription
from twinlog.model import TopicPartition

_GROUP_UNKNOWN = KAFKA_REASONS[69].name
_TYPES = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_DEAD = "DEAD"


class GroupAdminMixin:
    """`GroupAdmin` over confluent-kafka, but for offsets."""

    _admin: AdminSession
    _offsets: GroupOffsetsClient
    _wire: DataSession

    async def list_groups(self) -> Mapping[str, str]:
        return await list_consumer_groups(self._wire, "list groups")

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
        return await self._offsets.read(group_ids)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        return await self._offsets.commit(group_id, offsets) if offsets else {}

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        if not group_ids:
            return {}
        return await self._admin.each(
            "delete groups",
            lambda admin, seconds: admin.delete_consumer_groups(
                sorted(set(group_ids)), request_timeout=seconds
            ),
        )


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
