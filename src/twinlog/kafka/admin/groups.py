"""Consumer groups of a cluster and what they have committed."""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from twinlog.errors import KafkaError
from twinlog.kafka.admin.client import AdminSession
from twinlog.kafka.errors import KAFKA_REASONS
from twinlog.kafka.groups.listing import ListedGroup, list_groups
from twinlog.kafka.groups.offsets import GroupOffsetsClient
from twinlog.kafka.ports import CommittedOffset, GroupDescription
from twinlog.kafka.protocol.connection import DataClientPool
from twinlog.model import TopicPartition

_GROUP_UNKNOWN = KAFKA_REASONS[69].name
_TYPES = {ConsumerGroupType.CLASSIC: "classic", ConsumerGroupType.CONSUMER: "consumer"}
_DESCRIBED_TYPES = frozenset(_TYPES.values())
_DEAD = "DEAD"
_WITHOUT_MEMBERS = frozenset({"EMPTY", _DEAD})


class GroupAdminMixin:
    """`GroupAdmin` over confluent-kafka, but for offsets."""

    _admin: AdminSession
    _offsets: GroupOffsetsClient
    _wire: DataClientPool

    async def list_groups(self) -> Mapping[str, str]:
        listed = await list_groups(self._wire, "list groups")
        return {group_id: group.group_type for group_id, group in listed.items()}

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
        descriptions = {group_id: _description(group_id, answer) for group_id, answer in described.items()}
        unknown = [group_id for group_id, answer in descriptions.items() if _is_dead(answer)]
        if unknown:
            # To the requests of consumer groups a share or streams group does not exist.
            listed = await list_groups(self._wire, "describe groups")
            for group_id in unknown:
                if group_id in listed and listed[group_id].group_type not in _DESCRIBED_TYPES:
                    descriptions[group_id] = _listed_description(group_id, listed[group_id])
        return descriptions

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


def _is_dead(answer: GroupDescription | KafkaError) -> bool:
    return not isinstance(answer, KafkaError) and answer.state == _DEAD


def _listed_description(group_id: str, group: ListedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group_id,
        state=group.state,
        group_type=group.group_type,
        member_count=0 if group.state in _WITHOUT_MEMBERS else 1,
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
