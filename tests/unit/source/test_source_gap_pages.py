"""A ledger of any length is listed, page by page, and so are partitions."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.errors import ConfigError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.service.clusters import Clusters
from twinlog.service.feeds.pages import every
from twinlog.service.interceptors import Context
from twinlog.service.limits import MAX_MESSAGE_BYTES
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_source.api.servicer import SourceServicer
from twinlog_source.driver.commands import FlowOperations
from twinlog_source.driver.moves import PositionMoves
from twinlog_source.log.gaps import Gap, GapIdentity
from twinlog_source.partitions.events import SetAside, TopicsChosen
from unit.source.driver.test_moves import moves_of
from unit.source.flow_rig import FlowRig

A_TO_B = Flow("A", "B")
NOBODY = cast("Context", None)


@dataclass
class Stub:
    """The service as a client calls it."""

    servicer: SourceServicer
    rig: FlowRig
    flows: dict[Flow, FlowOperations]
    calls: int = 0
    largest: int = 0

    async def ListGaps(self, request: pb2.ListGapsRequest, *, timeout: float) -> pb2.ListGapsResponse:  # noqa: N802
        self.calls += 1
        answer = await self.servicer.ListGaps(request, NOBODY)
        self.largest = max(self.largest, answer.ByteSize())
        return answer

    @property
    def gaps(self) -> dict[GapIdentity, Gap]:
        return self.flows[A_TO_B].driver.state.positions.gaps

    def holds(self, *gaps: Gap) -> None:
        self.gaps.update({gap.identity: gap for gap in gaps})

    async def page(self, *, size: int = 0, token: str = "") -> pb2.ListGapsResponse:
        return await self.ListGaps(pb2.ListGapsRequest(page_size=size, page_token=token), timeout=1.0)

    async def all(self, topic: str = "") -> list[tuple[str, int, int]]:
        whole = await every(self.ListGaps, pb2.ListGapsRequest(source_topic=topic), "gaps", timeout=1.0)
        assert not whole.next_page_token
        return places(whole)


@asynccontextmanager
async def listed() -> AsyncIterator[Stub]:
    async with AsyncExitStack() as stack:
        rig = FlowRig(stack=stack)
        moves, _ = await moves_of(rig)
        driver = replace(moves.driver, owned=True)
        flows = {A_TO_B: FlowOperations(driver=driver, clock=rig.clock)}
        servicer = SourceServicer(
            flows,
            trials={},
            moves={A_TO_B: PositionMoves(driver=driver, source=rig.source)},
            clusters=Clusters(
                {}, open_cluster=lambda _config, _timeout: FakeCluster(), stack=stack, clock=rig.clock
            ),
        )
        yield Stub(servicer, rig, flows)


def gap(number: int, *, topic: str = "orders", begin: int = 0, reason: str = "RETENTION") -> Gap:
    return Gap(
        partition=TopicPartition(topic, number),
        from_offset=begin,
        to_offset=begin + 3,
        reason=reason,
        found_at_ms=1,
    )


def places(answer: pb2.ListGapsResponse) -> list[tuple[str, int, int]]:
    return [(each.partition.topic, each.partition.partition, each.from_offset) for each in answer.gaps]


async def test_a_ledger_of_more_than_one_message_is_listed_whole() -> None:
    async with listed() as stub:
        stub.holds(*(gap(number, reason="r" * 10_000) for number in range(2_000)))
        found = await stub.all()
        assert found == [("orders", number, 0) for number in range(2_000)]
        assert stub.calls > 1
        assert stub.largest <= MAX_MESSAGE_BYTES
        assert await stub.all("another") == []


async def test_gaps_that_come_and_go_between_pages_move_no_other() -> None:
    async with listed() as stub:
        stub.holds(*(gap(number) for number in range(4)))
        first = await stub.page(size=2)
        del stub.gaps[gap(0).identity], stub.gaps[gap(1).identity]
        stub.holds(gap(9))
        rest = await stub.page(token=first.next_page_token)
        assert [number for _, number, _ in places(rest)] == [2, 3, 9]


async def test_a_ledger_that_is_unknown_between_pages_does_not_pass_for_its_first_ones() -> None:
    async with listed() as stub:
        stub.holds(*(gap(number) for number in range(4)))
        first = await stub.page(size=2)
        # Another process has the flow by now, and the log cannot be asked what it found.
        operations = stub.flows[A_TO_B]
        stub.flows[A_TO_B] = replace(operations, driver=replace(operations.driver, owned=False))
        stub.rig.target.take_away()
        assert [each.flow.source for each in (await stub.page()).unknown] == ["A"]
        with pytest.raises(TwinlogError):
            await stub.page(token=first.next_page_token)


async def test_partitions_that_come_and_go_between_pages_move_no_other_and_fit_a_message() -> None:
    async with listed() as stub:
        table = stub.flows[A_TO_B].driver.state.table

        def copied(*numbers: int) -> None:
            targets = {TopicPartition("orders", number): "A.orders" for number in numbers}
            table.apply(TopicsChosen(targets=targets), 0.0)

        async def page(size: int = 0, token: str = "") -> tuple[list[int], str]:
            request = pb2.ListPartitionsRequest(page_size=size, page_token=token)
            answer = await stub.servicer.ListPartitions(request, NOBODY)
            assert answer.ByteSize() <= MAX_MESSAGE_BYTES
            return [each.source.partition for each in answer.partitions], answer.next_page_token

        copied(*range(4))
        first, token = await page(2)
        copied(*range(1, 6))
        assert (first, await page(token=token)) == ([0, 1], ([2, 3, 4, 5], ""))
        copied(*range(2_000))
        for place in table.rows:
            table.apply(SetAside(partition=place, reason="R", message="m" * 10_000, retry_at=9.0), 0.0)
        first, token = await page()
        assert token
        assert first + (await page(token=token))[0] == [*range(2_000)]


@pytest.mark.parametrize("token", ["x", "MTI=", "WyJBIl0="])
async def test_a_token_of_something_else_is_refused(token: str) -> None:
    async with listed() as stub:
        with pytest.raises(ConfigError) as refused:
            await stub.page(token=token)
        assert refused.value.reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize("name", ["orders", "A.orders"])
async def test_a_topic_is_meant_by_its_name_on_either_side(name: str) -> None:
    async with listed() as stub:
        stub.holds(gap(0), gap(0, topic="other"))
        targets = {TopicPartition(topic, 0): f"A.{topic}" for topic in ("orders", "other")}
        stub.flows[A_TO_B].driver.state.table.apply(TopicsChosen(targets=targets), 0.0)
        assert await stub.all(name) == [("orders", 0, 0)]
        scope = pb2.Scope(flow=types_pb2.Flow(source="A", target="B"), source_topic=name)
        request = pb2.AcknowledgeGapsRequest(scope=scope, by="somebody")
        answer = await stub.servicer.AcknowledgeGaps(request, NOBODY)
        assert [each.partition.topic for each in answer.gaps] == ["orders"]
        partitions = await stub.servicer.ListPartitions(pb2.ListPartitionsRequest(source_topic=name), NOBODY)
        assert {each.source.topic for each in partitions.partitions} == {"orders"}
