"""CreateTopics, DeleteTopics, CreatePartitions."""

import re
from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker import configs
from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields

HANDLERS = Handlers()
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class _RefusalError(Exception):
    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@HANDLERS.serves("create_topics")
async def create_topics(call: Call) -> Fields:
    return {"topics": [_create(call, asked) for asked in call.body.topics]}


def _create(call: Call, asked: Any) -> Fields:
    name = asked.name
    try:
        count, factor, assignment = _checked(call, asked)
    except _RefusalError as refusal:
        return _created(name, refusal)
    if call.body.validate_only:
        return _created(name, None)
    topic = call.cluster.create_topic(
        name,
        partition_count=count,
        replication_factor=factor,
        configs={each.name: each.value for each in asked.configs if each.value is not None},
        assignment=assignment,
    )
    return {
        **_created(name, None),
        "topic_id": topic.topic_id,
        "num_partitions": count,
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [],
    }


def _created(name: str, refusal: _RefusalError | None) -> Fields:
    return {
        "name": name,
        "topic_id": None,
        "error_code": refusal.error if refusal else ErrorCode.none,
        "error_message": refusal.message if refusal else None,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _checked(call: Call, asked: Any) -> tuple[int, int, list[tuple[int, ...]]]:
    """Partition count, replication factor, assignment."""
    cluster, name = call.cluster, asked.name
    if call.injected:
        raise _RefusalError(call.injected)
    if not (
        call.allows(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        or call.allows(Operation.CREATE, Resource.TOPIC, name)
    ):
        raise _RefusalError(ErrorCode.topic_authorization_failed, "Authorization failed.")
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise _RefusalError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {name!r}")
    if name in cluster.topics:
        raise _RefusalError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    for each in asked.configs:
        try:
            configs.check(each.name, each.value or "", call.release)
        except configs.RefusedError as error:
            raise _RefusalError(ErrorCode.invalid_config, str(error)) from error
    if asked.assignments:
        ordered = sorted(asked.assignments, key=lambda each: each.partition_index)
        replicas = [tuple(each.broker_ids) for each in ordered]
        if any(node_id not in cluster.nodes for each in replicas for node_id in each):
            raise _RefusalError(
                ErrorCode.invalid_replica_assignment, "The manual assignment names unknown brokers."
            )
        return len(replicas), len(replicas[0]), replicas
    count = 1 if asked.num_partitions == -1 else asked.num_partitions
    factor = 1 if asked.replication_factor == -1 else asked.replication_factor
    if count <= 0:
        raise _RefusalError(
            ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
        )
    if not 0 < factor <= len(cluster.live_nodes):
        raise _RefusalError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {factor} time(s): only {len(cluster.live_nodes)} broker(s) "
            "are registered.",
        )
    return count, factor, []


@HANDLERS.serves("delete_topics")
async def delete_topics(call: Call) -> Fields:
    """By name, or from version 6 on by name or id."""
    asked = call.get("topics")
    if asked is None:
        return {"responses": [_delete(call, name, None) for name in call.body.topic_names]}
    return {"responses": [_delete(call, each.name, each.topic_id) for each in asked]}


def _delete(call: Call, name: str | None, topic_id: Any) -> Fields:
    topic = call.cluster.topics.get(name) if name is not None else call.cluster.topic_by_id(topic_id)
    if call.injected:
        error = call.injected
    elif not call.allows(Operation.DELETE, Resource.TOPIC, topic.name if topic else name or ""):
        error = ErrorCode.topic_authorization_failed if topic or name else ErrorCode.unknown_topic_id
    elif topic is None:
        error = ErrorCode.unknown_topic_or_partition if name is not None else ErrorCode.unknown_topic_id
    else:
        error = ErrorCode.none
        name, topic_id = topic.name, topic.topic_id
        call.cluster.delete_topic(topic.name)
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error,
        "error_message": None if not error else "This server does not host this topic-partition.",
    }


@HANDLERS.serves("create_partitions")
async def create_partitions(call: Call) -> Fields:
    return {"results": [_grow(call, asked) for asked in call.body.topics]}


def _grow(call: Call, asked: Any) -> Fields:
    topic = call.cluster.topics.get(asked.name)
    error, message = call.injected, None
    if not call.allows(Operation.ALTER, Resource.TOPIC, asked.name):
        error, message = ErrorCode.topic_authorization_failed, "Authorization failed."
    elif topic is None:
        error = ErrorCode.unknown_topic_or_partition
        message = "This server does not host this topic-partition."
    elif not error and asked.count <= len(topic.partitions):
        error = ErrorCode.invalid_partitions
        message = (
            f"The topic {asked.name} currently has {len(topic.partitions)} partition(s); {asked.count} would "
            "not be an increase."
        )
    elif not error and not call.body.validate_only:
        assignment = [tuple(each.broker_ids) for each in asked.assignments or ()]
        call.cluster.add_partitions(topic, asked.count, assignment=assignment)
    return {"name": asked.name, "error_code": error, "error_message": message}
