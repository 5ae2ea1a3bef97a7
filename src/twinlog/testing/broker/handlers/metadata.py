"""ApiVersions and Metadata."""

from typing import Any

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, MECHANISMS, LoginError, Operation, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.cluster import Cluster
from twinlog.testing.broker.codec import Fields
from twinlog.testing.broker.partitions import Partition, Topic

# SaslHandshake, SaslAuthenticate (KIP-43, KIP-152).

HANDLERS = Handlers()


@HANDLERS.serves("sasl_handshake")
async def sasl_handshake(call: Call) -> Fields:
    """The mechanism that the client has chosen."""
    if call.cluster.passwords is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if call.body.mechanism not in MECHANISMS:
        return {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": MECHANISMS}
    call.login.mechanism = call.body.mechanism
    return {"error_code": call.injected, "mechanisms": MECHANISMS}


@HANDLERS.serves("sasl_authenticate")
async def sasl_authenticate(call: Call) -> Fields:
    """The next message of the client."""
    passwords = call.cluster.passwords
    if passwords is None or call.login.mechanism is None:
        return _refused(ErrorCode.illegal_sasl_state, "SaslAuthenticate without a handshake")
    try:
        data = call.login.answer(bytes(call.body.auth_bytes), passwords, call.cluster.random)
    except LoginError as error:
        return _refused(ErrorCode.sasl_authentication_failed, str(error))
    return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": data}


def _refused(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}


NOT_ASKED = -(1 << 31)


@HANDLERS.serves("api_versions")
async def api_versions(call: Call) -> Fields:
    features = call.release.features
    return {
        "error_code": call.injected,
        "api_keys": [
            {"api_key": key, "min_version": lowest, "max_version": highest}
            for key, (lowest, highest) in sorted(call.offered.items())
        ],
        "supported_features": [
            {"name": name, "min_version": 1, "max_version": level} for name, level in features.items()
        ],
        "finalized_features_epoch": 1 if features else -1,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in features.items()
        ],
    }


@HANDLERS.serves("metadata")
async def metadata(call: Call) -> Fields:
    """Topics by name or id (KIP-516); null asks for all of them."""
    cluster = call.cluster
    if call.body.topics is None:
        topics = [
            topic_fields(call, topic)
            for topic in cluster.topics.values()
            if call.allows(Operation.DESCRIBE, Resource.TOPIC, topic.name)
        ]
    else:
        topics = [_asked_topic(call, asked) for asked in call.body.topics]
    return {
        "brokers": [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in cluster.live_nodes
        ],
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": topics,
        "cluster_authorized_operations": call.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
        if call.get("include_cluster_authorized_operations", False)
        else NOT_ASKED,
    }


@HANDLERS.serves("describe_cluster")
async def describe_cluster(call: Call) -> Fields:
    """The one API that tells where a broker is that has left the metadata (KIP-1073, since 4.0)."""
    nodes = call.cluster.nodes.values()
    return {
        "cluster_id": call.cluster.cluster_id,
        "controller_id": call.cluster.controller_id,
        "brokers": [
            {"broker_id": node.node_id, "host": node.host, "port": node.port, "is_fenced": not node.is_up}
            for node in nodes
            if node.is_up or call.get("include_fenced_brokers", False)
        ],
    }


def _asked_topic(call: Call, asked: Any) -> Fields:
    topic_id = getattr(asked, "topic_id", None)
    name = asked.name
    topic = call.cluster.topic_by_id(topic_id) if topic_id is not None else call.cluster.topics.get(name)
    told = topic.name if topic is not None else name
    if told is not None and not call.allows(Operation.DESCRIBE, Resource.TOPIC, told):
        return missing_topic(ErrorCode.topic_authorization_failed, name, topic_id)
    if topic is not None:
        return topic_fields(call, topic)
    if topic_id is not None:
        return missing_topic(ErrorCode.unknown_topic_id, None, topic_id)
    return missing_topic(ErrorCode.unknown_topic_or_partition, name, None)


def missing_topic(error: ErrorCode, name: str | None, topic_id: Any) -> Fields:
    """A topic that there is not, or that the client may not see."""
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": []}


def topic_fields(call: Call, topic: Topic) -> Fields:
    """A topic with its partitions."""
    asked = call.get("include_topic_authorized_operations", False)
    return {
        "error_code": call.injected,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(call.cluster, each) for each in topic.partitions],
        "topic_authorized_operations": call.authorized_operations(Resource.TOPIC, topic.name)
        if asked
        else NOT_ASKED,
    }


def _partition(cluster: Cluster, partition: Partition) -> Fields:
    return {
        "error_code": ErrorCode.leader_not_available if partition.leader < 0 else ErrorCode.none,
        "partition_index": partition.index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [each for each in partition.replicas if not cluster.nodes[each].is_up],
    }
