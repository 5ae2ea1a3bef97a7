"""Topics that are copied both ways: what one side alone holds, and what both held before."""

from pathlib import Path

import pytest

from simulated.both_ways_rig import FILE, ONE_WAY, orders_on_all, stands_still, start_both, values, verified
from simulated.world import SERVICES, World, live
from twinlog.batches import Codec, NewRecord, Seal, build_batch, sealed
from twinlog.cli.verify.command import found_safe
from twinlog.config import load
from twinlog.model import Flow
from twinlog.testing.broker.appending import append_batch
from twinlog_source.verify.request import VerifyRequest


async def safe(world: World, source: str, target: str) -> tuple[int, str]:
    """Up to which offset the source may be deleted, and why not more."""
    request = VerifyRequest(flow=Flow(source, target), topics=frozenset({"orders"}), wait_seconds=1.0)
    _, found, problems = await found_safe(load(world.file, environ={}), request)
    assert not problems
    return found[0].until, found[0].reason


@pytest.mark.parametrize("files", [1, 2])
def test_the_last_copies_of_what_the_target_wrote_are_not_safe_to_delete(tmp_path: Path, files: int) -> None:
    """The target has deleted its own records, as its retention may: the source alone has them."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=5, file=FILE if files == 1 else ONE_WAY) as world:
            a, b = world.on["A"], world.on["B"]
            if files == 1:
                world.start("configsync", "source")
            else:
                start_both(world, "configsync", "source")
            b.produce("orders", 0, b"B0", b"B1", b"B2")
            await world.until(lambda: len(values(world, "A")) == 3)
            a.produce("orders", 0, b"A0", b"A1")
            await world.until(lambda: len(values(world, "B")) == 5)
            await stands_still(world)
            assert await safe(world, "A", "B") == (a.ends("orders")[0], "")
            b.partition("orders").log.delete_before(3)
            assert await safe(world, "A", "B") == (0, "TARGET_RETENTION")
            assert await safe(world, "B", "A") == (b.ends("orders")[0], "")
            a.partition("orders").log.delete_before(5)
            assert (await safe(world, "B", "A"))[0] == 3

    live(life())


@pytest.mark.parametrize("mode", ["", "twinlog.offsets = translated\n"])
@pytest.mark.parametrize("tails", ["", "A", "B", "AB"])
def test_a_mirror_that_was_copied_byte_for_byte_before_is_not_copied_again(
    tmp_path: Path, mode: str, tails: str
) -> None:
    """Also where the producers of its batches have ids that the target gives to the flow later. What either
    side wrote behind it goes to the other."""

    async def life() -> None:
        async with orders_on_all(tmp_path, seed=1, file=FILE + mode) as world:
            a, b = world.on["A"], world.on["B"]
            first_id = b.cluster.transactions.next_producer_id
            for number in range(100):
                record = NewRecord(b"k", b"%d" % number, next(a.times_ms), ())
                seal = Seal(first_id + number % 20, 0, number // 20, False)
                data = sealed(build_batch([record], codec=Codec.NONE), seal)
                for each in (a, b):
                    now_ms = each.cluster.clock.now_ms()
                    append_batch(each.partition("orders"), data, now_ms, transactions_v2=True)
            for alias in tails:
                world.on[alias].produce("orders", 0, f"{alias}0".encode(), f"{alias}1".encode())
            world.start(*SERVICES)
            await world.until(lambda: all(len(values(world, each)) == 100 + 2 * len(tails) for each in "AB"))
            await stands_still(world, seconds=60)
            assert sorted(values(world, "A")) == sorted(values(world, "B"))
            assert len(set(values(world, "A"))) == 100 + 2 * len(tails)
            for flow in (Flow("A", "B"), Flow("B", "A")):
                assert await verified(world, flow) == ("EQUAL", 0)

    live(life())
