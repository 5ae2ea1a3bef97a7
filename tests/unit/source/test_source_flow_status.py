"""What the service says of a flow as a whole."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog_source.api.messages import LATEST_MS, foreign_write_message
from twinlog_source.driver.subjects import Subject
from twinlog_source.log.facts import CopyFact
from twinlog_source.partitions.orders import ForeignWrite, PartitionState
from twinlog_source.partitions.transitions import see_end
from unit.service.access.audit_rig import SourceRig, source_service

WRITE = ForeignWrite(from_offset=3, to_offset=6, records=3, producer_id=7, producer_epoch=0, written_at_ms=0)


async def told(service: SourceRig) -> source.FlowStatus:
    nothing: Any = None
    (status,) = (await service.servicer.ListFlows(source.ListFlowsRequest(), nothing)).flows
    return status


async def test_what_is_held_back_on_purpose_is_no_reason_that_a_flow_does_not_copy() -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        for reason, expected in (("DELAYED", ""), ("UNTIL_REACHED", ""), ("TARGET_SLOW", "TARGET_SLOW")):
            service.task.says(position=1, state=PartitionState.RUNNING, reason=reason)
            driver = service.operations.driver
            driver.state.table.heard_at[0] = service.operations.clock.monotonic()
            assert (await told(service)).reason == expected


async def test_copies_with_foreign_records_are_named_those_with_most_first() -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        assert not (await told(service)).foreign_partitions
        service.task.says(position=1, foreign_writes=(WRITE,))
        status = await told(service)
        assert [(each.topic, each.partition) for each in status.foreign_partitions] == [("t", 0)]
        assert status.foreign_records == 3


def test_a_refused_command_names_what_it_was_about() -> None:
    named = (Subject(), Subject(topic="orders"), Subject(topic="orders", partition=3))
    assert list(map(str, named)) == ["the flow", "orders", "orders-3"]


@pytest.mark.parametrize(
    ("preserved", "since", "reason", "lost"),
    [
        (True, 0, "", {}),
        (False, 0, "COMPACTED", {}),
        (False, 37, "FOREIGN_WRITE", {"FOREIGN_WRITE": 1}),
        (False, 0, "SOURCE_RECREATED", {"SOURCE_RECREATED": 1}),
    ],
)
async def test_copies_that_lost_the_offsets_of_the_source_are_counted(
    preserved: bool, since: int, reason: str, lost: dict[str, int]
) -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        for partition, row in service.operations.driver.state.table.rows.items():
            row.copy = CopyFact(
                partition=partition, preserved=preserved, since=since, reason=reason, target_topic_id="id"
            )
        assert dict((await told(service)).offsets_lost_by_reason) == lost


@pytest.mark.parametrize(
    ("claimed_ms", "told_ms"),
    [(-1, 0), (1_700_000_000_000, 1_700_000_000_000), (2**63 - 1, LATEST_MS)],
)
def test_a_foreign_record_may_claim_any_time(claimed_ms: int, told_ms: int) -> None:
    """One written in microseconds, say, lies beyond what a message can say."""
    write = replace(WRITE, written_at_ms=claimed_ms)
    assert foreign_write_message(write).written_at.ToMilliseconds() == told_ms


async def test_since_when_the_source_is_watched_is_told() -> None:
    async with AsyncExitStack() as stack:
        service = await source_service(stack)
        service.task.says(position=1, source_end=5)
        row = next(iter(service.operations.driver.state.table.rows.values()))
        first = row.watched_since
        assert first == row.end_at
        see_end(row, 9, first + 7)
        assert (row.watched_since, row.end_at) == (first, first + 7)
        status = await told(service)
        waits_ms = status.source_grew_at.ToMilliseconds() - status.source_watched_since.ToMilliseconds()
        assert waits_ms == 7_000
