"""Asks the source service for the state of each partition's copy."""

import grpc

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.model import Flow, TopicPartition
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.owner.name import OwnerReason
from twinlog_checkpoint.moves.planning.copy_states import CopyReport, CopyState, ForeignStretch

_PAGE = 5000
_CALL_SECONDS = 10.0
"""For one page, which the source service answers from memory."""


class _OnlyStandby(Exception):  # noqa: N818 - no error: the answer of another process is taken
    """The owner of a flow cannot be reached; only a process on standby answered."""


class SourceCopyStates:
    """Asks the source service. Implements `CopyStates`."""

    def __init__(self, channel: grpc.aio.Channel, *, endpoint: str) -> None:
        self._stub = SourceServiceStub(channel)
        self._endpoint = endpoint

    async def of(self, flow: Flow) -> CopyReport:
        """Return what the flow's owner reports. If the owner cannot be reached, ask a process on standby."""
        try:
            return await self._told(flow, from_owner=True)
        except _OnlyStandby:
            return await self._told(flow, from_owner=False)

    async def _told(self, flow: Flow, *, from_owner: bool) -> CopyReport:
        """Raises _OnlyStandby if the owner has to answer and cannot be reached."""
        request = pb2.ListPartitionsRequest(
            flow=types_pb2.Flow(source=flow.source, target=flow.target),
            page_size=_PAGE,
            from_owner=from_owner,
        )
        found: dict[TopicPartition, CopyState] = {}
        try:
            while True:
                answer = await self._stub.ListPartitions(request, timeout=_CALL_SECONDS)
                for status in answer.partitions:
                    partition = TopicPartition(status.source.topic, status.source.partition)
                    found[partition] = copy_state(status)
                if not answer.next_page_token:
                    return CopyReport(partitions=found)
                request.page_token = answer.next_page_token
        except grpc.aio.AioRpcError as error:
            why = error_from_rpc(error, peer="source")
            if why.reason == OwnerReason.OWNED_ELSEWHERE and from_owner:
                raise _OnlyStandby from error
            return CopyReport(
                away=f"the source service at {self._endpoint} does not report its positions: {why}"
            )


def copy_state(status: pb2.PartitionStatus) -> CopyState:
    return CopyState(
        state=pb2.PartitionState.Name(status.state).removeprefix("PARTITION_STATE_"),
        position=None if status.position < 0 else status.position,
        reason=status.reason,
        message=status.message,
        equal_below=_equal_below(status),
        foreign=[
            ForeignStretch(each.from_offset, each.to_offset, each.records) for each in status.foreign_writes
        ],
    )


def _equal_below(status: pb2.PartitionStatus) -> int | None:
    """Return nothing for an answer from standby: it may be out of date."""
    if status.reason == OwnerReason.OWNED_ELSEWHERE:
        return 0
    return None if status.offsets == "preserved" else status.offsets_since
