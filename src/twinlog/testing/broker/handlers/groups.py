"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the classic protocol (KIP-394)."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.classic_group import ClassicGroup, ClassicState, Joined, Synced, Wish
from twinlog.testing.broker.codec import Fields

# FindCoordinator.

HANDLERS = Handlers()
_MANY_KEYS_VERSION = 4
_RESOURCES = {
    0: (Resource.GROUP, ErrorCode.group_authorization_failed),
    1: (Resource.TRANSACTIONAL_ID, ErrorCode.transactional_id_authorization_failed),
}


@HANDLERS.serves("find_coordinator")
async def find_coordinator(call: Call) -> Fields:
    """Several keys at once from version 4 on (KIP-699)."""
    key_type = int(call.get("key_type", 0))
    if call.version >= _MANY_KEYS_VERSION:
        return {"coordinators": [_coordinator(call, key_type, key) for key in call.body.coordinator_keys]}
    return _coordinator(call, key_type, call.body.key)


def _coordinator(call: Call, key_type: int, key: str) -> Fields:
    node = call.cluster.coordinator(key_type, key)
    denied = ErrorCode.none
    resource, refusal = _RESOURCES.get(key_type, _RESOURCES[0])
    if not call.allows(Operation.DESCRIBE, resource, key):
        denied = refusal
    error = call.injected or denied or (ErrorCode.none if node else ErrorCode.coordinator_not_available)
    found = node if node is not None and not error else None
    return {
        **({"key": key} if call.version >= _MANY_KEYS_VERSION else {}),
        "node_id": found.node_id if found else -1,
        "host": found.host if found else "",
        "port": found.port if found else -1,
        "error_code": error,
        "error_message": None if not error else error.name,
    }


_SHORTEST_SESSION_MS, _LONGEST_SESSION_MS = 6_000, 1_800_000
"""group.min.session.timeout.ms, group.max.session.timeout.ms."""


@HANDLERS.serves("join_group")
async def join_group(call: Call) -> Fields:
    joined = await _join(call)
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "member_id": joined.member_id,
        "members": [{"member_id": member_id, "metadata": metadata} for member_id, metadata in joined.members],
    }


async def _join(call: Call) -> Joined:
    body = call.body
    error = group_error(call, body.group_id, Operation.READ)
    if error:
        return Joined(error, body.member_id)
    session_ms = body.session_timeout.total_seconds() * 1000
    shortest_ms = int(call.cluster.broker_configs.get("group.min.session.timeout.ms", _SHORTEST_SESSION_MS))
    if not shortest_ms <= session_ms <= _LONGEST_SESSION_MS:
        return Joined(ErrorCode.invalid_session_timeout, body.member_id)
    groups = call.cluster.groups
    if body.member_id and body.group_id not in groups.by_id:
        return Joined(ErrorCode.unknown_member_id, body.member_id)
    group = groups.classic(body.group_id, create=True)
    if group is None:
        return Joined(ErrorCode.inconsistent_group_protocol, body.member_id)
    return await group.join(
        Wish(
            member_id=body.member_id,
            client_id=call.client_id,
            client_host=f"/{call.client_host}",
            session_seconds=session_ms / 1000,
            rebalance_seconds=call.get("rebalance_timeout", body.session_timeout).total_seconds(),
            protocol_type=body.protocol_type,
            protocols={each.name: each.metadata for each in body.protocols},
        )
    )


@HANDLERS.serves("sync_group")
async def sync_group(call: Call) -> Fields:
    synced = await _sync(call)
    return {"error_code": synced.error, "assignment": synced.assignment}


async def _sync(call: Call) -> Synced:
    body = call.body
    error = group_error(call, body.group_id, Operation.READ)
    group = _existing(call)
    if error or group is None:
        return Synced(error or ErrorCode.unknown_member_id)
    member, error = group.member(body.member_id)
    if member is None:
        return Synced(error)
    assignments = {each.member_id: each.assignment for each in body.assignments}
    return await group.sync(member, body.generation_id, assignments)


@HANDLERS.serves("heartbeat")
async def heartbeat(call: Call) -> Fields:
    body = call.body
    error = group_error(call, body.group_id, Operation.READ)
    group = _existing(call)
    if not error and group is None:
        error = ErrorCode.unknown_member_id
    elif not error and group is not None:
        member, error = group.member(body.member_id)
        if member is not None:
            error = group.heartbeat(member, body.generation_id)
    return {"error_code": error}


@HANDLERS.serves("leave_group")
async def leave_group(call: Call) -> Fields:
    error = group_error(call, call.body.group_id, Operation.READ)
    group = _existing(call)
    if not error:
        error = group.leave(call.body.member_id) if group is not None else ErrorCode.unknown_member_id
    return {"error_code": error}


def _existing(call: Call) -> ClassicGroup | None:
    return call.cluster.groups.classic(call.body.group_id, create=False)


def group_error(call: Call, group_id: str, operation: Operation) -> ErrorCode:
    """Why this broker does not serve the group to this client."""
    if call.injected:
        return call.injected
    if not call.allows(operation, Resource.GROUP, group_id):
        return ErrorCode.group_authorization_failed
    return call.cluster.coordinator_error(call.node, 0, group_id) or (
        ErrorCode.none if group_id else ErrorCode.invalid_group_id
    )


# ListGroups, DescribeGroups, DeleteGroups.


@HANDLERS.serves("list_groups")
async def list_groups(call: Call) -> Fields:
    """The groups that this broker coordinates."""
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
    if group is not None and group.kind != "classic":
        group = None
    rights = {}
    if call.body.include_authorized_operations and not error:
        rights = {"authorized_operations": call.authorized_operations(Resource.GROUP, group_id)}
    state = str(group.state) if group else "" if error else "Dead"
    is_stable = group is not None and group.state is ClassicState.STABLE
    return {
        "error_code": error,
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
