"""Heartbeats and descriptions of groups that the coordinator assigns: KIP-848, KIP-932, KIP-1071."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.handlers.groups import group_error
from twinlog.testing.broker.modern_group import (
    LEAVES,
    LEAVES_FOR_NOW,
    GroupBeat,
    ModernGroup,
    ModernMember,
    TopicIndex,
)

HANDLERS = Handlers()
_INTERVAL_MS = 5_000
"""group.consumer.heartbeat.interval.ms."""
_TASK_OFFSET_INTERVAL_MS = 60_000
_ACCEPTABLE_LAG = 10_000


@HANDLERS.serves("consumer_group_heartbeat")
async def consumer_group_heartbeat(call: Call) -> Fields:
    return _heartbeat(call, "consumer", call.body.subscribed_topic_names, _owned(call))


@HANDLERS.serves("share_group_heartbeat")
async def share_group_heartbeat(call: Call) -> Fields:
    return _heartbeat(call, "share", call.body.subscribed_topic_names, None)


@HANDLERS.serves("streams_group_heartbeat")
async def streams_group_heartbeat(call: Call) -> Fields:
    topology = call.body.topology
    topics = topology and [topic for each in topology.subtopologies for topic in each.source_topics]
    answer = {**_heartbeat(call, "streams", topics, None)}
    del answer["assignment"]
    return {
        **answer,
        "member_id": answer["member_id"] or "",
        "acceptable_recovery_lag": _ACCEPTABLE_LAG,
        "task_offset_interval": _TASK_OFFSET_INTERVAL_MS,
        "status": None,
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "endpoint_information_epoch": 0,
        "partitions_by_user_endpoint": None,
    }


def _heartbeat(
    call: Call, kind: str, topics: Iterable[str] | None, owned: frozenset[TopicIndex] | None
) -> Fields:
    body = call.body
    error = group_error(call, body.group_id, Operation.READ)
    if error:
        return _beaten(error, None, body.member_epoch)
    group = call.cluster.groups.modern(body.group_id, kind, create=body.member_epoch == 0)
    if group is None:
        return _beaten(ErrorCode.group_id_not_found, f"Group {body.group_id} is not a {kind} group.", 0)
    member_id = body.member_id or str(UUID(int=call.cluster.random.getrandbits(128), version=4))
    rebalance = call.get("rebalance_timeout")
    beat = GroupBeat(
        member_id=member_id,
        epoch=body.member_epoch,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
        instance_id=call.get("instance_id"),
        rack_id=call.get("rack_id"),
        rebalance_seconds=rebalance.total_seconds() if rebalance is not None else -1,
        topics=None if topics is None else tuple(sorted(topics)),
        owned=owned,
    )
    member, error = group.heartbeat(beat)
    if member is None:
        left = body.member_epoch if body.member_epoch in (LEAVES, LEAVES_FOR_NOW) else 0
        return {**_beaten(error, error.name if error else None, left), "member_id": member_id}
    is_news = member.told != member.assigned
    member.told = member.assigned
    return {
        **_beaten(ErrorCode.none, None, member.epoch),
        "member_id": member_id,
        "assignment": {"topic_partitions": list(_by_topic(call, member.assigned, named=False))}
        if is_news
        else None,
    }


def _beaten(error: ErrorCode, message: str | None, epoch: int) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "member_id": None,
        "member_epoch": epoch,
        "heartbeat_interval": 0 if error else _INTERVAL_MS,
        "assignment": None,
    }


def _owned(call: Call) -> frozenset[TopicIndex] | None:
    if call.body.topic_partitions is None:
        return None
    found = (
        (call.cluster.topic_by_id(each.topic_id), each.partitions) for each in call.body.topic_partitions
    )
    return frozenset((topic.name, index) for topic, indexes in found if topic for index in indexes)


def _by_topic(call: Call, partitions: Iterable[TopicIndex], *, named: bool) -> Iterable[Fields]:
    indexes: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        indexes.setdefault(topic, []).append(index)
    for topic, numbers in indexes.items():
        if topic in call.cluster.topics:
            name = {"topic_name": topic} if named else {}
            yield {"topic_id": call.cluster.topics[topic].topic_id, **name, "partitions": numbers}


@HANDLERS.serves("consumer_group_describe")
async def consumer_group_describe(call: Call) -> Fields:
    return _describe(call, "consumer")


@HANDLERS.serves("share_group_describe")
async def share_group_describe(call: Call) -> Fields:
    return _describe(call, "share")


@HANDLERS.serves("streams_group_describe")
async def streams_group_describe(call: Call) -> Fields:
    """Without members' tasks."""
    return _describe(call, "streams")


def _describe(call: Call, kind: str) -> Fields:
    return {"groups": [_described(call, kind, group_id) for group_id in call.body.group_ids]}


def _described(call: Call, kind: str, group_id: str) -> Fields:
    error = group_error(call, group_id, Operation.DESCRIBE)
    group = None if error else call.cluster.groups.modern(group_id, kind, create=False)
    message = None
    if not error and group is None:
        error, message = ErrorCode.group_id_not_found, f"Group {group_id} is not a {kind} group."
    consumers = {"assignor_name": "uniform" if kind == "consumer" else "simple"} if kind != "streams" else {}
    rights = {}
    if call.body.include_authorized_operations and not error:
        rights = {"authorized_operations": call.authorized_operations(Resource.GROUP, group_id)}
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": group.state if group else "",
        "group_epoch": group.epoch if group else 0,
        "assignment_epoch": group.epoch if group else 0,
        **consumers,
        "members": [_member(call, group, each) for each in group.members.values()] if group else [],
        **rights,
    }


def _member(call: Call, group: ModernGroup, member: ModernMember) -> Fields:
    fields: dict[str, Any] = {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
    }
    if group.kind == "streams":
        nothing: dict[str, list[Any]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        return {
            **fields,
            "instance_id": member.instance_id,
            "topology_epoch": 0,
            "process_id": "",
            "client_tags": [],
            "task_offsets": [],
            "task_end_offsets": [],
            "assignment": nothing,
            "target_assignment": nothing,
            "is_classic": False,
        }
    fields["subscribed_topic_names"] = member.topics
    fields["assignment"] = {"topic_partitions": list(_by_topic(call, member.assigned, named=True))}
    if group.kind == "consumer":
        fields["instance_id"] = member.instance_id
        fields["target_assignment"] = {"topic_partitions": list(_by_topic(call, member.target, named=True))}
        fields["member_type"] = 1
    return fields
