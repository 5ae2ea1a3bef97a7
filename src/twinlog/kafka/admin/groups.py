"""The consumer groups of a cluster and their committed offsets."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.groups.descriptions import DescribedGroup, GroupDescriptionsClient
from twinlog.kafka.groups.listing import ListedGroup, list_groups
from twinlog.kafka.groups.offsets import GroupOffsetsClient
from twinlog.kafka.ports import CommittedOffset, GroupDescription
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.model import TopicPartition

_CLASSIC = "classic"
_DEAD = "DEAD"
_WITHOUT_MEMBERS = frozenset({"EMPTY", _DEAD})


class GroupAdminMixin:
    """Implements `GroupAdmin`."""

    _descriptions: GroupDescriptionsClient
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
        described = await self._descriptions.describe(group_ids)
        descriptions = {group_id: _description(group_id, answer) for group_id, answer in described.items()}
        if any(_is_dead(answer) for answer in descriptions.values()):
            # To the request of classic groups all others do not exist.
            listed = await list_groups(self._wire, "describe groups")
            for group_id, answer in descriptions.items():
                if _is_dead(answer) and group_id in listed and listed[group_id].group_type != _CLASSIC:
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
        return await self._offsets.delete(group_ids) if group_ids else {}


def _is_dead(answer: GroupDescription | KafkaError) -> bool:
    return not isinstance(answer, KafkaError) and answer.state == _DEAD


def _listed_description(group_id: str, group: ListedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=group_id,
        state=group.state,
        group_type=group.group_type,
        member_count=0 if group.state in _WITHOUT_MEMBERS else 1,
    )


def _description(group_id: str, answer: DescribedGroup | KafkaError) -> GroupDescription | KafkaError:
    if isinstance(answer, KafkaError):
        return answer
    return GroupDescription(
        group_id=group_id, state=answer.state, group_type=_CLASSIC, member_count=answer.member_count
    )
