"""ListGroups, DescribeGroups, DeleteGroups."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.classic_group import ClassicGroup, ClassicState
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.handlers.groups import group_error

HANDLERS = Handlers()
_MISSING_IS_ERROR_VERSION = 6


@HANDLERS.serves("list_groups")
async def list_groups(call: Call) -> Fields:
    """The groups that this broker coordinates, by state (KIP-518) and type (KIP-848)."""
    states = {each.lower() for each in call.get("states_filter", ())}
    types = {each.lower() for each in call.get("types_filter", ())}
    sees_all = call.allows(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    groups = [
        {
            "group_id": group_id,
            "protocol_type": group.listed_protocol,
            "group_state": str(group.state),
            "group_type": group.kind,
        }
        for group_id, group in call.cluster.groups.by_id.items()
        if call.cluster.coordinator(0, group_id) is call.node
        and (not states or group.state.lower() in states)
        and (not types or group.kind in types)
        and (sees_all or call.allows(Operation.DESCRIBE, Resource.GROUP, group_id))
    ]
    return {"error_code": call.injected, "groups": [] if call.injected else groups}


@HANDLERS.serves("describe_groups")
async def describe_groups(call: Call) -> Fields:
    """Groups of the classic protocol: all others are dead to it."""
    return {"groups": [_describe(call, group_id) for group_id in call.body.groups]}


def _describe(call: Call, group_id: str) -> Fields:
    error = group_error(call, group_id, Operation.DESCRIBE)
    group = None if error else call.cluster.groups.classic(group_id, create=False)
    message = None
    if not error and group is None and call.version >= _MISSING_IS_ERROR_VERSION:
        error, message = ErrorCode.group_id_not_found, f"Group {group_id} not found."
    rights = {}
    if call.get("include_authorized_operations", False) and error in (
        ErrorCode.none,
        ErrorCode.group_id_not_found,
    ):
        rights = {"authorized_operations": call.authorized_operations(Resource.GROUP, group_id)}
    state = str(group.state) if group else "" if error and not message else "Dead"
    is_stable = group is not None and group.state is ClassicState.STABLE
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": group.listed_protocol if group else "",
        "protocol_data": group.protocol or "" if group and is_stable else "",
        "members": _members(group) if group else [],
        **rights,
    }


def _members(group: ClassicGroup) -> list[Fields]:
    """Metadata and assignments are told of stable groups only."""
    is_stable = group.state is ClassicState.STABLE
    return [
        {
            "member_id": each.member_id,
            "group_instance_id": each.wish.instance_id,
            "client_id": each.wish.client_id,
            "client_host": each.wish.client_host,
            "member_metadata": each.wish.protocols.get(group.protocol or "", b"") if is_stable else b"",
            "member_assignment": each.assignment if is_stable else b"",
        }
        for each in group.members.values()
    ]


@HANDLERS.serves("delete_groups")
async def delete_groups(call: Call) -> Fields:
    return {
        "results": [
            {
                "group_id": group_id,
                "error_code": group_error(call, group_id, Operation.DELETE)
                or call.cluster.groups.delete(group_id),
            }
            for group_id in call.body.groups_names
        ]
    }
