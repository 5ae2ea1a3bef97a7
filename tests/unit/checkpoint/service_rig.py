"""The CheckpointService of one flow on fakes, asked with the messages of its API."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.service.clusters import ClusterStatus
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_checkpoint.assembly import assemble_moves
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.moves.running.host import MoveHost
from unit.checkpoint.checkpoint_rig import A_TO_B, CheckpointFlowRig


class _Context:
    """What the methods ask of a call's context."""

    def peer(self) -> str:
        return "test"


CONTEXT: Any = _Context()


class CheckpointServiceRig:
    """`servicer` answers."""

    def __init__(
        self,
        fakes: CheckpointFlowRig,
        parts: FlowParts,
        *,
        statuses: Iterable[ClusterStatus] = (),
    ) -> None:
        self.fakes = fakes
        self.parts = parts
        self.stop = asyncio.Event()
        moves = assemble_moves({A_TO_B: parts}, fakes.around())
        self.moves = moves[A_TO_B]
        for runner in (self.moves.failover, self.moves.failback):
            runner.drain_look_seconds = runner.planner.rate_seconds = 0
        self.servicer = CheckpointServicer(
            moves,
            statuses=lambda: list(statuses),
            clock=fakes.clock,
            stop=self.stop,
        )

    @asynccontextmanager
    async def hosting(self) -> AsyncIterator[MoveHost]:
        """While the service carries out moves."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.moves.host.run(self.stop), name="moves")
            try:
                yield self.moves.host
            finally:
                self.stop.set()

    async def list_groups(self, group: str = "") -> pb2.ListGroupsResponse:
        return await self.servicer.ListGroups(pb2.ListGroupsRequest(group=group), CONTEXT)
