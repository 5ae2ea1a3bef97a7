"""Thousands of groups are listed page by page, and counted without being listed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.cli.checkpoint.translate import only_flow
from twinlog.cli.common.call import called
from twinlog.cli.status.details import add_groups
from twinlog.cli.status.rows import Status
from twinlog.model import TopicPartition
from twinlog.service.limits import MAX_MESSAGE_BYTES
from twinlog_checkpoint.api.servicer import CheckpointServicer
from twinlog_checkpoint.groups.progress import GroupProgress, ProgressTable
from twinlog_checkpoint.translation.translation import Translation, Verdict
from unit.checkpoint.checkpoint_rig import A_TO_B, CheckpointFlowRig
from unit.checkpoint.service_rig import CONTEXT, CheckpointServiceRig

GROUPS = 5_000


def rows(groups: int, *, partitions: int = 2, message: str = "") -> list[GroupProgress]:
    """Every fifth group is UP_TO_DATE, the others are EXACT."""
    return [
        GroupProgress(
            flow=A_TO_B,
            group=f"g{number:05}",
            source=TopicPartition("orders", partition),
            target=TopicPartition("A.orders", partition),
            upstream_offset=number,
            translation=Translation(
                verdict=Verdict.EXACT if number % 5 else Verdict.UP_TO_DATE,
                downstream_offset=number,
                message=message,
            ),
            as_of_ms=1,
        )
        for number in range(groups)
        for partition in range(partitions)
    ]


@dataclass
class Stub:
    """The service as a client calls it; what it was asked."""

    servicer: CheckpointServicer
    asked: list[pb2.ListGroupsRequest]
    largest: int = 0

    async def ListGroups(  # noqa: N802
        self, request: pb2.ListGroupsRequest, *, timeout: float = 0
    ) -> pb2.ListGroupsResponse:
        seen = pb2.ListGroupsRequest()
        seen.CopyFrom(request)
        self.asked.append(seen)
        answer = await self.servicer.ListGroups(request, CONTEXT)
        self.largest = max(self.largest, answer.ByteSize())
        return answer


@dataclass
class Listed:
    table: ProgressTable
    seen: Stub

    @property
    def stub(self) -> CheckpointServiceStub:
        return cast("CheckpointServiceStub", self.seen)


@asynccontextmanager
async def listed(known: list[GroupProgress]) -> AsyncIterator[Listed]:
    fakes = CheckpointFlowRig()
    async with fakes.running() as parts:
        service = CheckpointServiceRig(fakes, parts)
        table = parts.checkpointer.table
        table.replace_all(known, now_ms=1)
        yield Listed(table, Stub(service.servicer, []))


def places(answer: pb2.ListGroupsResponse) -> list[tuple[str, int]]:
    return [(row.group, row.source.partition) for row in answer.groups]


async def test_pages_hold_every_row_once_and_in_order() -> None:
    known = rows(GROUPS)
    async with listed(known) as world:
        whole = await called(world.stub, "checkpoint").ListGroups(pb2.ListGroupsRequest(page_size=999))
        assert places(whole) == [(row.group, row.source.partition) for row in known]
        assert len(world.seen.asked) == 11
        assert not whole.next_page_token


async def test_a_request_without_a_page_size_gets_what_one_message_takes() -> None:
    async with listed(rows(GROUPS)) as world:
        answer = await world.stub.ListGroups(pb2.ListGroupsRequest(), timeout=1)
        assert (len(answer.groups), answer.next_page_token) == (2 * GROUPS, "")
        world.table.replace_all(rows(GROUPS, partitions=1, message="m" * 5_000), now_ms=1)
        answer = await world.stub.ListGroups(pb2.ListGroupsRequest(), timeout=1)
        assert 0 < len(answer.groups) < GROUPS
        assert answer.next_page_token
        whole = await called(world.stub, "checkpoint").ListGroups(pb2.ListGroupsRequest())
        assert len(whole.groups) == GROUPS
        assert MAX_MESSAGE_BYTES // 2 < world.seen.largest <= MAX_MESSAGE_BYTES


async def test_rows_that_come_and_go_between_pages_move_no_other() -> None:
    async with listed(rows(10, partitions=1)) as world:
        first = await world.stub.ListGroups(pb2.ListGroupsRequest(page_size=4), timeout=1)
        world.table.replace_all(rows(12, partitions=1)[2:], now_ms=2)
        rest = await world.stub.ListGroups(pb2.ListGroupsRequest(page_token=first.next_page_token), timeout=1)
        assert [group for group, _ in places(first)] == [f"g{number:05}" for number in range(4)]
        assert [group for group, _ in places(rest)] == [f"g{number:05}" for number in range(4, 12)]


async def test_status_counts_groups_without_listing_them() -> None:
    async with listed(rows(GROUPS)) as world:
        answer = await world.stub.ListGroups(pb2.ListGroupsRequest(summary_only=True), timeout=1)
        assert answer.ByteSize() < 1_000
        status = Status(services=[])
        add_groups(answer, status)
        row = status.flows["A->B"]
        assert row.group_count == GROUPS
        assert row.groups == {"EXACT": 8_000, "UP_TO_DATE": 2_000}


async def test_the_flow_of_a_command_is_found_without_listing_groups() -> None:
    async with listed(rows(GROUPS)) as world:
        flow = await only_flow(world.stub)
        assert (flow.source, flow.target) == ("A", "B")
        assert world.seen.largest < 1_000
