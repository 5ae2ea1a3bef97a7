"""DescribeCluster (KIP-700), DescribeTopicPartitions (KIP-966)."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.handlers.metadata import missing_topic, topic_fields

HANDLERS = Handlers()
_BROKERS = 1


@HANDLERS.serves("describe_cluster")
async def describe_cluster(call: Call) -> Fields:
    error = call.injected
    if not error and call.get("endpoint_type", _BROKERS) != _BROKERS:
        error = ErrorCode.mismatched_endpoint_type
    rights = {}
    if call.body.include_cluster_authorized_operations:
        rights["cluster_authorized_operations"] = call.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
    return {
        "error_code": error,
        "error_message": None,
        "cluster_id": call.cluster.cluster_id,
        "controller_id": call.cluster.controller_id,
        "brokers": [
            {
                "broker_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": False,
            }
            for node in call.cluster.live_nodes
        ],
        **rights,
    }


@HANDLERS.serves("describe_topic_partitions")
async def describe_topic_partitions(call: Call) -> Fields:
    """In the order of names, from the cursor on, up to a number of partitions."""
    cursor = call.body.cursor
    first_topic, first_index = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    room = call.body.response_partition_limit
    topics: list[Fields] = []
    for name in sorted({each.name for each in call.body.topics} or call.cluster.topics):
        if name < first_topic:
            continue
        if not room:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = call.cluster.topics.get(name)
        if not call.allows(Operation.DESCRIBE, Resource.TOPIC, name):
            topics.append(missing_topic(ErrorCode.topic_authorization_failed, name, None))
        elif topic is None:
            topics.append(missing_topic(ErrorCode.unknown_topic_or_partition, name, None))
        else:
            fields = topic_fields(call, topic)
            begin = first_index if name == first_topic else 0
            told = fields["partitions"][begin : begin + room]
            room -= len(told)
            rights = call.authorized_operations(Resource.TOPIC, name)
            topics.append({**fields, "partitions": told, "topic_authorized_operations": rights})
            if begin + len(told) < len(topic.partitions):
                following = {"topic_name": name, "partition_index": begin + len(told)}
                return {"topics": topics, "next_cursor": following}
    return {"topics": topics, "next_cursor": None}
