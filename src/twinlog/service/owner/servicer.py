"""OwnersService over gRPC: who owns which flow, and its move by hand."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry.metrics import Counter, Meter, Observation

from twinlog.api.common.v1 import owners_service_pb2 as pb
from twinlog.api.common.v1 import owners_service_pb2_grpc as pb_grpc
from twinlog.errors import NotFoundError
from twinlog.model import Flow
from twinlog.service.access.audit import changed
from twinlog.service.api_values import flow_message, flow_of, message_of
from twinlog.service.grpc_server import Context, GrpcService
from twinlog.service.owner.membership import Membership
from twinlog.telemetry import instruments
from twinlog.telemetry.metrics.service import FLOW_OWNER, FLOW_OWNER_CHANGES
from twinlog.telemetry.metrics.spec import TWINLOG_SERVICE, flow_attributes


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
        flow = flow_of(request.flow)
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


# Metrics of ownership, and readiness, which follows from it.
#
# A process is ready when every one of its flows has a known owner, and it has done the first pass over those
# that it owns itself. A process on standby is ready: it takes over when the owner is gone.

IsOwner = Callable[[], bool | None]
"""Whether this process owns a flow; None = not known. Thread-safe."""


@dataclass(slots=True)
class FlowStandings:
    """The flows of one process. Invariant: nothing here waits for a broker or a peer."""

    _service: str
    _changes: Counter
    _flows: dict[Flow, IsOwner] = field(default_factory=dict)

    @classmethod
    def observed(cls, service: str, meter: Meter) -> "FlowStandings":
        """New standings with their metrics published."""
        standings = cls(service, instruments.counter(meter, FLOW_OWNER_CHANGES))
        instruments.gauge(meter, FLOW_OWNER, standings._owners)
        return standings

    def add(self, flow: Flow, is_owner: IsOwner) -> None:
        self._flows[flow] = is_owner
        # Prometheus sees no increase in the first value of a series.
        self._changes.add(0, self._attributes(flow))

    def owner_changed(self, flow: Flow) -> None:
        """This process learned of a new owner."""
        self._changes.add(1, self._attributes(flow))

    def is_ready(self, first_pass_done: Callable[[Flow], bool]) -> bool:
        """`first_pass_done` is called for the flows that this process owns."""
        for flow, is_owner in list(self._flows.items()):
            owns = is_owner()
            if owns is None or (owns and not first_pass_done(flow)):
                return False
        return True

    def _owners(self) -> Iterable[Observation]:
        return [
            Observation(int(is_owner() is True), self._attributes(flow))
            for flow, is_owner in list(self._flows.items())
        ]

    def _attributes(self, flow: Flow) -> dict[str, str]:
        return {**flow_attributes(flow.source, flow.target), TWINLOG_SERVICE: self._service}
