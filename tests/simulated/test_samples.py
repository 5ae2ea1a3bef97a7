"""The samples of output in docs/ are what the commands print about a simulated deployment.

A sample stands between `<!-- sample: COMMAND -->` and the end of the next block of code.
SAMPLES=write pytest tests/simulated/test_samples.py writes them.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from socket import gethostname

import pytest

from simulated.world import SERVICES, TICK_SECONDS, World
from twinlog.cli.common.failures import RUN
from twinlog.cli.common.location import IN_PLACE_OF_SERVICES
from twinlog.cli.common.names import CLOCK
from twinlog.testing.rpc import MemoryRpc
from twinlog.testing.virtual_time import LoopClock, VirtualTimeLoop
from unit.cli.snapshots.recorded import printed

_DOCS = Path(__file__).parents[2] / "docs"
_SAMPLE = re.compile(r"(<!-- sample: (?P<command>.*?) -->\n+```[a-z]*\n)(?P<text>.*?)(?=```)", re.DOTALL)
_FILE = """
clusters = east, west
east.bootstrap.servers = {east}
west.bootstrap.servers = {west}
east->west.enabled = true
east->west.topics = orders, payments, clicks
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
"""
_COLUMNS = 110
Answer = Callable[[str], str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """What a command prints on a terminal."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(TICK_SECONDS)) as runner:
        world = runner.run(_begin(tmp_path_factory.mktemp("samples")))
        run = RUN.set(lambda work: runner.run(work, context=copy_context()))
        opened = IN_PLACE_OF_SERVICES.set(
            lambda service, endpoint: MemoryRpc(world.rpc).insecure_channel(endpoint)
        )

        def answer(command: str) -> str:
            words = shlex.split(command)[1:]
            of_file = ("--config", str(world.file)) if words[0] == "verify" else ()
            _, out, err = printed([*words, *of_file], _COLUMNS)
            out = out.replace(str(world.file), "/etc/twinlog/mm2.properties").replace(
                gethostname(), "kafka-1"
            )
            return "\n".join(line.rstrip() for line in (out + err).splitlines()).strip("\n") + "\n"

        clock = CLOCK.set(LoopClock(runner.get_loop()))
        try:
            yield answer
        finally:
            IN_PLACE_OF_SERVICES.reset(opened)
            CLOCK.reset(clock)
            RUN.reset(run)
            runner.run(world.__aexit__(None, None, None))


async def _begin(directory: Path) -> World:
    world = World(directory, _FILE, seed=1, aliases=("east", "west"))
    await world.__aenter__()
    east, west = world.on["east"], world.on["west"]
    for topic, partitions in (("orders", 3), ("payments", 1), ("clicks", 2)):
        east.cluster.create_topic(topic, partition_count=partitions)
        for partition in range(partitions):
            for number in range(20):
                east.produce(topic, partition, *(b"%d" % each for each in range(1 + number + partition)))
    east.commit("billing", "orders", {0: 150, 1: 200, 2: 70})
    east.commit("reports", "payments", {0: 190})
    world.start(*SERVICES)
    await world.until(lambda: west.ends("east.orders") == east.ends("orders"))
    await world.pause(120)
    return world


def test_pages_show_what_the_commands_print(told: Answer) -> None:
    """All samples in one test: they share a world, and a command may list groups that the next one shows."""
    for page in sorted(_DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = _SAMPLE.sub(lambda at: f"{at[1]}$ {at['command']}\n{told(at['command'])}", text)
        if os.environ.get("SAMPLES") == "write":
            page.write_text(new, encoding="utf-8")
        assert page.read_text(encoding="utf-8") == new, f"{page.name}: SAMPLES=write writes the samples"
