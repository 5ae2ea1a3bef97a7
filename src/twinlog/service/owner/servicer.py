"""OwnersService over gRPC: who owns which flow, and its move by hand."""

from collections.abc import Mapping

from twinlog.api.common.v1 import owners_service_pb2 as pb
from twinlog.api.common.v1 import owners_service_pb2_grpc as pb_grpc
from twinlog.errors import NotFoundError
from twinlog.model import Flow
from twinlog.service.access.audit import changed
from twinlog.service.api_values import flow_message, message_of
from twinlog.service.grpc_server import Context, GrpcService
from twinlog.service.owner.membership import Membership


class OwnersServicer(pb_grpc.OwnersServiceServicer):
    def __init__(self, memberships: Mapping[str, Membership]) -> None:
        """`memberships`: by target."""
        self._memberships = memberships

    async def ListOwners(  # noqa: N802
        self, request: pb.ListOwnersRequest, context: Context
    ) -> pb.ListOwnersResponse:
        owners = [each for membership in self._memberships.values() for each in membership.owners()]
        owners.sort(key=lambda each: each.flow)
        return pb.ListOwnersResponse(owners=[message_of(pb.FlowOwner, each) for each in owners])

    async def MoveFlow(self, request: pb.MoveFlowRequest, context: Context) -> pb.MoveFlowResponse:  # noqa: N802
        flow = Flow(request.flow.source, request.flow.target)
        membership = self._memberships.get(flow.target)
        if membership is None or not membership.serves(flow):
            raise NotFoundError(f"there is no flow {flow} here", metadata={"flow": str(flow)})
        move = membership.move(flow, request.to, dry_run=request.dry_run)
        answer = pb.MoveFlowResponse(process=move.process, to=move.to)
        changed(before=pb.FlowOwner(flow=flow_message(flow), process=move.process), after=answer)
        return answer


def owners_service(memberships: Mapping[str, Membership]) -> GrpcService:
    return GrpcService(
        name=pb.DESCRIPTOR.services_by_name["OwnersService"].full_name,
        add=pb_grpc.add_OwnersServiceServicer_to_server,
        servicer=OwnersServicer(memberships),
    )
