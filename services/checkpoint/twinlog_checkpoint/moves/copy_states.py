"""What the source service says of the copy of each partition: it knows why one does not move."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import grpc

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.model import Flow, TopicPartition
from twinlog.service.errors_wire import error_from_rpc
from twinlog.service.lease import OWNED_ELSEWHERE

_PAGE = 5000
_CALL_SECONDS = 10.0
"""For one page; each is answered from memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The copy of one partition."""

    state: str
    """RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, …: the names of the API."""
    position: int | None
    """The next source offset to copy, committed on the target; None while it is not known."""
    reason: str = ""
    message: str = ""
    equal_below: int | None = 0
    """Below this offset the copy has the source's offsets; None = all of it has."""

    @property
    def cause(self) -> str:
        """Why it does not move, or that it does."""
        told = " ".join(part for part in (self.reason, self.message) if part)
        if self.state == "RUNNING":
            return told or "it is being copied"
        return f"{self.state}: {told}" if told else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """All partitions of one flow."""

    partitions: Mapping[TopicPartition, CopyState] = field(default_factory=dict)
    """By source partition."""
    away: str = ""
    """Why the source service did not say; empty when it did."""

    def cause(self, partition: TopicPartition) -> str:
        """Why what lies before the end of a partition is not copied, in words."""
        if self.away:
            return self.away
        state = self.partitions.get(partition)
        return "the source service does not copy this partition" if state is None else state.cause


class CopyStates(Protocol):
    """Bounded; what is wrong is part of the report, never an error."""

    async def of(self, flow: Flow) -> CopyReport: ...


class SourceCopyStates:
    """Asks the source service."""

    def __init__(self, channel: grpc.aio.Channel, *, endpoint: str) -> None:
        self._stub = SourceServiceStub(channel)
        self._endpoint = endpoint

    async def of(self, flow: Flow) -> CopyReport:
        request = pb2.ListPartitionsRequest(
            flow=types_pb2.Flow(source=flow.source, target=flow.target), page_size=_PAGE
        )
        found: dict[TopicPartition, CopyState] = {}
        try:
            while True:
                answer = await self._stub.ListPartitions(request, timeout=_CALL_SECONDS)
                for status in answer.partitions:
                    partition = TopicPartition(status.source.topic, status.source.partition)
                    found[partition] = _state(status)
                if not answer.next_page_token:
                    return CopyReport(partitions=found)
                request.page_token = answer.next_page_token
        except grpc.aio.AioRpcError as error:
            why = error_from_rpc(error, peer="source")
            return CopyReport(
                away=f"the source service at {self._endpoint} does not say how far it is: {why}"
            )


def _state(status: pb2.PartitionStatus) -> CopyState:
    return CopyState(
        state=pb2.PartitionState.Name(status.state).removeprefix("PARTITION_STATE_"),
        position=None if status.position < 0 else status.position,
        reason=status.reason,
        message=status.message,
        equal_below=_equal_below(status),
    )


def _equal_below(status: pb2.PartitionStatus) -> int | None:
    """What a process on standby says may be old: it counts for nothing."""
    if status.reason == OWNED_ELSEWHERE:
        return 0
    return None if status.offsets == "preserved" else status.offsets_since
