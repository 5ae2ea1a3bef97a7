"""Lives histories and writes what is left of each, which is compared with tests/golden/histories.

    cd tests; PYTHONHASHSEED=0 python -m simulated.record_histories golden/histories [NAME …]

Every run writes the same with this PYTHONHASHSEED.
"""

import sys
import tempfile
import traceback
from pathlib import Path

from simulated.histories import HISTORIES, History, rest
from simulated.recording import record
from simulated.world import World, live

_SEED = 32


def lived(history: History) -> str:
    """What is left of a history."""
    left: list[str] = []

    async def life() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with World(
                Path(directory), history.file, seed=_SEED, node_count=history.node_count
            ) as world:
                await history.live(world)
                await rest(world)
                left.append(record(world))

    live(life())
    return left[0]


def main(directory: str, *names: str) -> None:
    for name in names or HISTORIES:
        try:
            told = lived(HISTORIES[name])
        except Exception:
            told = traceback.format_exc()
        (Path(directory) / f"{name}.txt").write_text(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
