"""What commands about groups share."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.call import PAGE, every
from twinlog.cli.common.fields import value_of
from twinlog.cli.common.names import flow_name
from twinlog.errors import ConfigError


async def every_group(
    stub: CheckpointServiceStub, request: pb2.ListGroupsRequest, *, page: int = PAGE
) -> pb2.ListGroupsResponse:
    """Return the answer with the rows of all its pages. Raises the service's error."""
    request.page_size = page
    return await every(stub.ListGroups, request, "groups")


async def only_flow(stub: CheckpointServiceStub) -> types_pb2.Flow:
    """The one flow that the service translates. Raises ConfigError when it is not exactly one."""
    listed = await stub.ListGroups(pb2.ListGroupsRequest(summary_only=True))
    flows = [each.flow for each in listed.flows]
    if len(flows) == 1:
        return flows[0]
    if not flows:
        raise ConfigError(
            "no flow of the checkpoint service translates groups: see `twinlog status`", key="--flow"
        )
    names = ", ".join(flow_name(flow) for flow in flows)
    raise ConfigError(
        f"there are several flows, say which, such as {flow_name(flows[0])!r}: {names}", key="--flow"
    )


def verdict_name(row: pb2.GroupPartition | pb2.OffsetTranslation | pb2.MovePartition) -> str:
    return str(value_of(row, "verdict"))
