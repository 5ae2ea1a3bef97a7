"""OffsetCommit, OffsetFetch."""

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.groups import Committed
from twinlog.testing.broker.handlers.groups import group_error
from twinlog.testing.broker.transactions import TopicIndex

HANDLERS = Handlers()
_MANY_GROUPS_VERSION = 8
_LONGEST_METADATA_BYTES = 4096
"""offset.metadata.max.bytes."""


@HANDLERS.serves("offset_commit")
async def offset_commit(call: Call) -> Fields:
    body, group_id = call.body, call.body.group_id
    error = group_error(call, group_id, Operation.READ) or call.cluster.groups.commit_error(
        group_id, body.member_id, body.generation_id_or_member_epoch
    )
    offsets: dict[TopicIndex, Committed] = {}
    topics = []
    for asked in body.topics:
        name, topic_error = asked.name, _topic_error(call, asked.name, Operation.READ)
        partitions = []
        for each in asked.partitions:
            code = error or topic_error or _offset_error(call, name, each)
            if not code:
                epoch = getattr(each, "committed_leader_epoch", -1)
                metadata = each.committed_metadata or ""
                offsets[name, each.partition_index] = Committed(each.committed_offset, epoch, metadata)
            partitions.append({"partition_index": each.partition_index, "error_code": code})
        topics.append({"name": name, "partitions": partitions})
    if offsets:
        call.cluster.groups.commit(group_id, offsets)
    return {"topics": topics}


def _offset_error(call: Call, topic: str, asked: Any) -> ErrorCode:
    if call.cluster.partition(topic, asked.partition_index) is None:
        return ErrorCode.unknown_topic_or_partition
    if len(asked.committed_metadata or "") > _LONGEST_METADATA_BYTES:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _topic_error(call: Call, name: str, operation: Operation) -> ErrorCode:
    is_allowed = call.allows(operation, Resource.TOPIC, name)
    return ErrorCode.none if is_allowed else ErrorCode.topic_authorization_failed


@HANDLERS.serves("offset_fetch")
async def offset_fetch(call: Call) -> Fields:
    """Many groups at once from version 8 on (KIP-709). No offset waits for the end of a transaction."""
    if call.version >= _MANY_GROUPS_VERSION:
        return {"groups": [_fetched(call, each.group_id, each) for each in call.body.groups]}
    answer = dict(_fetched(call, call.body.group_id, call.body))
    del answer["group_id"]
    return answer


def _fetched(call: Call, group_id: str, asked: Any) -> Fields:
    error = group_error(call, group_id, Operation.DESCRIBE)
    if error:
        return {"group_id": group_id, "error_code": error, "topics": []}
    if asked.topics is None:
        topics = list(_all_topics(call, group_id))
    else:
        topics = [_asked(call, group_id, each) for each in asked.topics]
    return {"group_id": group_id, "error_code": ErrorCode.none, "topics": topics}


def _all_topics(call: Call, group_id: str) -> Iterable[Fields]:
    by_topic: dict[str, list[int]] = {}
    known = call.cluster.groups.offsets.get(group_id, {})
    for topic, index in known:
        by_topic.setdefault(topic, []).append(index)
    for topic, indexes in by_topic.items():
        if call.allows(Operation.DESCRIBE, Resource.TOPIC, topic):
            told = [_told(index, known[topic, index], ErrorCode.none) for index in indexes]
            yield {"name": topic, "partitions": told}


def _asked(call: Call, group_id: str, asked: Any) -> Fields:
    error = _topic_error(call, asked.name, Operation.DESCRIBE)
    known = call.cluster.groups.offsets.get(group_id, {}) if not error else {}
    told = [
        _told(index, known.get((asked.name, index), Committed(-1, -1, "")), error)
        for index in asked.partition_indexes
    ]
    return {"name": asked.name, "partitions": told}


def _told(index: int, committed: Committed, error: ErrorCode) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }
