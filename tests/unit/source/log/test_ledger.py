"""The gap ledger while the flow runs."""

import asyncio

import pytest

from twinlog.errors import KafkaError
from twinlog_source.driver.ownership import RENEW_SECONDS
from twinlog_source.log.gaps import MOST_RANGES, Gap
from unit.source.flow_rig import FlowRig, P, ledger


async def test_an_acknowledged_gap_stays_so_and_one_that_is_found_again_does_not(rig: FlowRig) -> None:
    state = await rig.owner()
    gap = Gap(partition=P, from_offset=0, to_offset=3, reason="RETENTION", found_at_ms=1)
    await state.ledger.write(gap)
    await state.ledger.acknowledge(lambda _: True, by="root", now_ms=7)
    for each in (state, await rig.owner()):
        (held,) = each.positions.gaps.values()
        assert (held.acknowledged_by, held.acknowledged_at_ms) == ("root", 7)
    await state.ledger.write(gap)
    (held,) = (await rig.owner()).positions.gaps.values()
    assert not held.acknowledged_by


async def test_a_gap_that_is_joined_while_it_is_acknowledged_is_acknowledged_or_stays_as_it_was(
    rig: FlowRig,
) -> None:
    """The two take turns: what is said to be acknowledged is so in the ledger that the next owner reads."""
    state = await rig.owner()
    for begin, end in ((0, 3), (3, 6)):
        await state.ledger.write(
            Gap(partition=P, from_offset=begin, to_offset=end, reason="RETENTION", found_at_ms=1)
        )

    async def acknowledge() -> None:
        new = await state.ledger.acknowledge(lambda gap: True, by="root", now_ms=7)
        assert new is not None
        assert [(gap.from_offset, gap.to_offset) for gap in new] == [(0, 6)]

    async with asyncio.TaskGroup() as group:
        group.create_task(state.ledger.tidy(), name="tidy")
        group.create_task(acknowledge(), name="acknowledge")
    for each in (state, await rig.owner()):
        (held,) = each.positions.gaps.values()
        assert (held.from_offset, held.to_offset, held.acknowledged_by) == (0, 6, "root")
    assert await state.ledger.acknowledge(lambda gap: True, by="joe", now_ms=8) == (), "it was new to nobody"
    assert await state.ledger.acknowledge(lambda gap: False, by="joe", now_ms=8) is None


async def test_a_ledger_that_was_not_read_is_known_as_such(rig: FlowRig) -> None:
    state = await rig.process()
    assert not state.positions.is_read
    rig.target.take_away()
    with pytest.raises(KafkaError):
        await state.take_over(displaced=False)
    assert not state.positions.is_read
    rig.target.bring_back()
    await state.take_over(displaced=False)
    assert state.positions.is_read


async def test_a_copy_that_stays_behind_retention_leaves_a_bounded_ledger(rig: FlowRig) -> None:
    state = await rig.owner()
    for at in range(0, 10 * (MOST_RANGES + 5), 10):
        await state.ledger.write(
            Gap(partition=P, from_offset=at, to_offset=at + 3, reason="RETENTION", found_at_ms=at)
        )
    rig.clock.advance(RENEW_SECONDS)
    await state.renew()
    assert len(ledger(state)) == MOST_RANGES
    reread = await rig.owner()
    assert sorted(ledger(reread)) == sorted(ledger(state)), "the log holds no more than memory does"
    assert sum(gap.lost_offsets for gap in reread.positions.gaps.values()) == 3 * (MOST_RANGES + 5)
