"""ACLs and groups of a fake cluster."""

from collections.abc import Collection, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.groups.descriptions import LISTED_PROTOCOLS
from twinlog.kafka.ports import AclBinding, CommittedOffset, GroupDescription
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster_base import FakeClusterBase
from twinlog.testing.fakes.cluster_hooks import operation
from twinlog.testing.fakes.cluster_state import FakeGroup, acl_problem

_PROTOCOLS = {"classic": "consumer", "consumer": "consumer", "share": "share", "streams": "streams"}
_INACTIVE_STATES = frozenset({"EMPTY", "DEAD"})


class FakeAclAdmin(FakeClusterBase):
    """`AclAdmin` in memory. Nothing is enforced."""

    @operation
    async def describe_acls(self, resource_type: str = "ANY") -> Collection[AclBinding] | None:
        if not self._authorizer:
            return None
        return sorted(binding for binding in self.acls if resource_type in ("ANY", binding.resource_type))

    @operation
    async def create_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        outcome = {binding: self._acl_problem(binding, "create an ACL") for binding in bindings}
        self.acls |= {binding for binding, problem in outcome.items() if problem is None}
        return outcome

    @operation
    async def delete_acls(self, bindings: Collection[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        outcome = {binding: self._acl_problem(binding, "delete an ACL") for binding in bindings}
        self.acls -= {binding for binding, problem in outcome.items() if problem is None}
        return outcome

    def _acl_problem(self, binding: AclBinding, doing: str) -> KafkaError | None:
        if not self._authorizer:
            return from_code(ErrorCode.SECURITY_DISABLED, doing, alias=self.alias)
        return acl_problem(binding, doing, self.alias)


class FakeGroupAdmin(FakeClusterBase):
    """`GroupAdmin` in memory."""

    def set_group(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int] | None = None,
        *,
        state: str = "EMPTY",
        group_type: str = "classic",
        protocol_type: str | None = None,
        member_count: int = 0,
    ) -> None:
        """Create or change a group; the given offsets (next to read) are added to its own.

        Without a protocol it has that of its type.
        """
        group = self.groups.setdefault(group_id, FakeGroup())
        group.protocol_type = _PROTOCOLS[group_type] if protocol_type is None else protocol_type
        group.state, group.group_type, group.member_count = state, group_type, member_count
        for partition, next_offset in (offsets or {}).items():
            group.offsets[partition] = CommittedOffset(next_offset=next_offset)

    def refuse_group(self, group_id: str) -> None:
        """Answer every request about the group with GROUP_AUTHORIZATION_FAILED."""
        self.groups[group_id].refusal_code = 30

    def _refusal(self, group_id: str, doing: str) -> KafkaError | None:
        code = self.groups[group_id].refusal_code if group_id in self.groups else 0
        return from_code(code, f"{doing} {group_id}", alias=self.alias) if code else None

    @operation
    async def list_groups(self) -> Mapping[str, str]:
        return {
            group_id: group.group_type
            for group_id, group in self.groups.items()
            if group.protocol_type in LISTED_PROTOCOLS
        }

    @operation
    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in group_ids:
            group = self.groups.get(group_id, FakeGroup(state="DEAD"))
            found[group_id] = self._refusal(group_id, "describe group") or GroupDescription(
                group_id=group_id,
                state=group.state,
                group_type=group.group_type,
                member_count=group.member_count,
            )
        return found

    @operation
    async def group_offsets(
        self, group_ids: Collection[str]
    ) -> Mapping[str, Mapping[TopicPartition, CommittedOffset] | KafkaError]:
        return {
            group_id: self._refusal(group_id, "read offsets of group")
            or (dict(self.groups[group_id].offsets) if group_id in self.groups else {})
            for group_id in group_ids
        }

    @operation
    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        doing = f"commit for group {group_id}"
        group = self.groups.get(group_id, FakeGroup())
        if group.state not in _INACTIVE_STATES:
            return {
                partition: from_code(ErrorCode.UNKNOWN_MEMBER_ID, doing, alias=self.alias)
                for partition in offsets
            }
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for partition, committed in offsets.items():
            try:
                self.log(partition, doing)
            except KafkaError as error:
                outcome[partition] = error
                continue
            self.groups.setdefault(group_id, group).offsets[partition] = committed
            outcome[partition] = None
        return outcome

    @operation
    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        outcome: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None:
                outcome[group_id] = from_code(ErrorCode.GROUP_ID_NOT_FOUND, "delete groups", alias=self.alias)
            elif group.state not in _INACTIVE_STATES:
                outcome[group_id] = from_code(ErrorCode.NON_EMPTY_GROUP, "delete groups", alias=self.alias)
            else:
                del self.groups[group_id]
                outcome[group_id] = None
        return outcome
