"""DescribeCluster (KIP-700)."""

from kio.schema.errors import ErrorCode

from twinlog.testing.broker.acls import CLUSTER_NAME, Resource
from twinlog.testing.broker.calls import Call, Handlers
from twinlog.testing.broker.codec import Fields

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
