"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit."""

from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.groups import Committed, Committer
from twinlog.testing.broker.handlers.groups import group_error
from twinlog.testing.broker.transactions import Identity, TopicIndex

HANDLERS = Handlers()
_IDS_VERSION = 10
_STALE_EPOCH_VERSION = 9
_MANY_GROUPS_VERSION = 8
_ADDS_GROUP_VERSION = 5
_LONGEST_METADATA_BYTES = 4096
"""offset.metadata.max.bytes."""


@HANDLERS.serves("offset_commit")
async def offset_commit(call: Call) -> Fields:
    """Topics by id from version 10 on (KIP-848)."""
    body = call.body
    who = Committer(body.member_id, call.get("group_instance_id"), body.generation_id_or_member_epoch)

    def refusal() -> ErrorCode:
        error = call.cluster.groups.commit_error(body.group_id, who)
        if error is ErrorCode.illegal_generation and call.version >= _STALE_EPOCH_VERSION:
            return error if body.group_id in call.cluster.groups.by_id else ErrorCode.group_id_not_found
        return error

    def commit(offsets: dict[TopicIndex, Committed]) -> None:
        call.cluster.groups.commit(body.group_id, offsets)

    return _commit(call, refusal, commit)


@HANDLERS.serves("txn_offset_commit")
async def txn_offset_commit(call: Call) -> Fields:
    """The offsets count when the transaction is committed (KIP-98, KIP-447)."""
    body = call.body
    who = Committer(call.get("member_id", ""), call.get("group_instance_id"), call.get("generation_id", -1))

    def refusal() -> ErrorCode:
        if not call.allows(Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id):
            return ErrorCode.transactional_id_authorization_failed
        error = _transaction_error(call)
        return error or call.cluster.groups.commit_error(body.group_id, who, in_transaction=True)

    def commit(offsets: dict[TopicIndex, Committed]) -> None:
        call.cluster.groups.commit_in_transaction(body.group_id, body.producer_id, offsets)

    return _commit(call, refusal, commit)


def _transaction_error(call: Call) -> ErrorCode:
    """From version 5 on the commit adds the group to the transaction; before, it is verified (KIP-890)."""
    body, transactions = call.body, call.cluster.transactions
    identity = Identity(body.producer_id, body.producer_epoch)
    if call.version >= _ADDS_GROUP_VERSION:
        return transactions.add(body.transactional_id, identity, groups=[body.group_id])
    found = transactions.by_id.get(body.transactional_id)
    if found is None or found.identity.producer_id != identity.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if found.identity != identity:
        return ErrorCode.invalid_producer_epoch
    if call.release.verifies_transactions and body.group_id not in found.groups:
        return ErrorCode.invalid_txn_state
    return ErrorCode.none


def _commit(
    call: Call, refusal: Callable[[], ErrorCode], commit: Callable[[dict[TopicIndex, Committed]], None]
) -> Fields:
    error = group_error(call, call.body.group_id, Operation.READ) or refusal()
    offsets: dict[TopicIndex, Committed] = {}
    topics = []
    for asked in call.body.topics:
        name, topic_error = _topic(call, asked, Operation.READ)
        partitions = []
        for each in asked.partitions:
            code = error or topic_error or _offset_error(call, name, each)
            if not code:
                epoch = getattr(each, "committed_leader_epoch", -1)
                metadata = each.committed_metadata or ""
                offsets[name, each.partition_index] = Committed(each.committed_offset, epoch, metadata)
            partitions.append({"partition_index": each.partition_index, "error_code": code})
        topics.append({**_same_name(asked), "partitions": partitions})
    if offsets:
        commit(offsets)
    return {"topics": topics}


def _offset_error(call: Call, topic: str, asked: Any) -> ErrorCode:
    if call.cluster.partition(topic, asked.partition_index) is None:
        return ErrorCode.unknown_topic_or_partition
    if len(asked.committed_metadata or "") > _LONGEST_METADATA_BYTES:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


def _topic(call: Call, asked: Any, operation: Operation) -> tuple[str, ErrorCode]:
    name = getattr(asked, "name", None)
    if name is None:
        topic = call.cluster.topic_by_id(asked.topic_id)
        if topic is None:
            return "", ErrorCode.unknown_topic_id
        name = topic.name
    if not call.allows(operation, Resource.TOPIC, name):
        return name, ErrorCode.topic_authorization_failed
    return name, ErrorCode.none


def _same_name(asked: Any) -> dict[str, Any]:
    if hasattr(asked, "name"):
        return {"name": asked.name}
    return {"topic_id": asked.topic_id}


@HANDLERS.serves("offset_fetch")
async def offset_fetch(call: Call) -> Fields:
    """Many groups at once from version 8 on (KIP-709); `require_stable` of KIP-447."""
    if call.version >= _MANY_GROUPS_VERSION:
        return {"groups": [_fetched(call, each.group_id, each) for each in call.body.groups]}
    answer = dict(_fetched(call, call.body.group_id, call.body))
    del answer["group_id"]
    return answer


def _fetched(call: Call, group_id: str, asked: Any) -> Fields:
    error = group_error(call, group_id, Operation.DESCRIBE)
    if error:
        in_partitions = call.version < 2 and asked.topics
        failed = [_partitions(each, lambda _: (Committed(-1, -1, ""), error)) for each in asked.topics or ()]
        return {"group_id": group_id, "error_code": error, "topics": failed if in_partitions else []}
    if asked.topics is None:
        topics = list(_all_topics(call, group_id))
    else:
        topics = [_asked(call, group_id, each) for each in asked.topics]
    return {"group_id": group_id, "error_code": ErrorCode.none, "topics": topics}


def _offset(call: Call, group_id: str, partition: TopicIndex) -> tuple[Committed, ErrorCode]:
    groups = call.cluster.groups
    if call.get("require_stable", False) and groups.is_unstable(group_id, partition):
        return Committed(-1, -1, ""), ErrorCode.unstable_offset_commit
    return groups.offsets.get(group_id, {}).get(partition, Committed(-1, -1, "")), ErrorCode.none


def _all_topics(call: Call, group_id: str) -> Iterable[Fields]:
    by_topic: dict[str, list[int]] = {}
    groups = call.cluster.groups
    known = dict(groups.offsets.get(group_id, {}))
    for offsets in groups.pending.get(group_id, {}).values() if call.get("require_stable", False) else ():
        known.update(offsets)
    for topic, index in known:
        by_topic.setdefault(topic, []).append(index)
    for topic, indexes in by_topic.items():
        if call.allows(Operation.DESCRIBE, Resource.TOPIC, topic):
            name: dict[str, Any] = {"name": topic}
            if call.version >= _IDS_VERSION:
                name = {"topic_id": call.cluster.topics[topic].topic_id}
            told = [_told(index, *_offset(call, group_id, (topic, index))) for index in indexes]
            yield {**name, "partitions": told}


def _asked(call: Call, group_id: str, asked: Any) -> Fields:
    name, error = _topic(call, asked, Operation.DESCRIBE)

    def offset(index: int) -> tuple[Committed, ErrorCode]:
        return (Committed(-1, -1, ""), error) if error else _offset(call, group_id, (name, index))

    return _partitions(asked, offset)


def _partitions(asked: Any, offset: Callable[[int], tuple[Committed, ErrorCode]]) -> Fields:
    told = [_told(index, *offset(index)) for index in asked.partition_indexes]
    return {**_same_name(asked), "partitions": told}


def _told(index: int, committed: Committed, error: ErrorCode) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }


@HANDLERS.serves("offset_delete")
async def offset_delete(call: Call) -> Fields:
    """Not for topics to which a member is subscribed (KIP-496)."""
    group_id = call.body.group_id
    groups = call.cluster.groups
    error = group_error(call, group_id, Operation.DELETE)
    group = groups.by_id.get(group_id)
    if not error and group is None:
        error = ErrorCode.group_id_not_found
    if not error and group is not None and group.has_members and group.listed_protocol != "consumer":
        error = ErrorCode.non_empty_group
    if error or group is None:
        return {"error_code": error, "topics": []}
    subscribed = group.subscribed_topics
    topics = []
    for asked in call.body.topics:
        partitions = []
        for each in asked.partitions:
            name, code = _topic(call, asked, Operation.READ)
            if not code and call.cluster.partition(name, each.partition_index) is None:
                code = ErrorCode.unknown_topic_or_partition
            if not code and name in subscribed:
                code = ErrorCode.group_subscribed_to_topic
            if not code:
                groups.offsets.get(group_id, {}).pop((name, each.partition_index), None)
            partitions.append({"partition_index": each.partition_index, "error_code": code})
        topics.append({"name": asked.name, "partitions": partitions})
    return {"error_code": ErrorCode.none, "topics": topics}
