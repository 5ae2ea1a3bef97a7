"""Topics that are copied both ways: what only one side holds any more."""

from pathlib import Path

import pytest

from simulated.both_ways_rig import FILE, ONE_WAY, orders_on_all, stands_still, start_both, values
from simulated.world import World, live
from twinlog.cli.verify.command import found_safe
from twinlog.config import load
from twinlog.model import Flow
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
