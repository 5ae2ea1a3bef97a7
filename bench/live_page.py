"""The live page under load: time to the first paint of a large deployment, and what serving it costs.

    .venv/bin/python -m bench.live_page                # 10,000 partitions, 5,000 groups: two minutes

The four services are stand-ins that speak over real gRPC (tests/contract/ui_services.py); the page and the
browser, a headless Chromium, are the real ones.
"""

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from contract.browser import Tab, new_tab
from contract.ui_services import UiRig, serving

START_SECONDS = 120.0


async def measure(world: UiRig, *, browsers: int, seconds: float) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(serving(world))
        page = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "twinlog", "ui", "--listen", "127.0.0.1:0"),
            *services.arguments(),
            stdout=asyncio.subprocess.PIPE,
        )
        stack.callback(page.terminate)
        assert page.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            url = (await page.stdout.readline()).decode().removeprefix("ready: ").strip()
        server = psutil.Process(page.pid)
        told: dict[str, Any] = {"partitions": world.partitions, "groups": world.groups}
        for name in ("while it fills", "warm"):
            tab = await stack.enter_async_context(new_tab())
            await tab.open(f"{url}#/partitions")
            told[f"first paint ms, {name}"] = await painted(tab)
            told[f"list shown ms, {name}"] = await shown(tab, f"{world.partitions:,} of {world.partitions:,}")
        told["page JS heap MB"] = round(await tab.run("performance.memory.usedJSHeapSize") / 1e6)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}api/stream") as answer:
                size, end = 0, b""
                async for content in answer.content.iter_any():
                    size, end = size + len(content), (end + content)[-2:]
                    if end == b"\n\n":
                        break
            told["snapshot MB"] = round(size / 1e6, 2)
        for changes in (0, 1_000):
            world.changes_per_second = changes
            told[f"CPU %, 2 browsers, {changes} changes/s"] = await cpu(server, seconds)
        readers = [
            asyncio.ensure_future(read(f"{url}api/stream", stack)) for _ in range(max(0, browsers - 2))
        ]
        told[f"CPU %, {browsers} browsers, 1000 changes/s"] = await cpu(server, seconds)
        for reader in readers:
            reader.cancel()
        told["memory MB"] = round(server.memory_info().rss / 1e6)
        return told


async def painted(tab: Tab) -> int:
    await tab.holds("performance.getEntriesByName('first-contentful-paint').length > 0")
    return int(await tab.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))


async def shown(tab: Tab, words: str) -> int:
    """Milliseconds from the navigation until words are on the page."""
    look = (
        "new Promise((done) => { const look = () => document.body.innerText.includes(%s)"
        " ? done(performance.now()) : setTimeout(look, 5); look(); })"
    )
    return int(await tab.run(look % json.dumps(words)))


async def cpu(server: psutil.Process, seconds: float) -> float:
    before = sum(server.cpu_times()[:2])
    await asyncio.sleep(seconds)  # noqa: TID251 (what is measured is a time)
    return round(100 * (sum(server.cpu_times()[:2]) - before) / seconds, 1)


async def read(url: str, stack: AsyncExitStack) -> None:
    session = await stack.enter_async_context(aiohttp.ClientSession())
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for _ in answer.content.iter_chunked(1 << 20):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--browsers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    world = UiRig(partitions=given.partitions, groups=given.groups)
    told = asyncio.run(measure(world, browsers=given.browsers, seconds=given.seconds))
    for name, value in told.items():
        print(f"{name:40} {value}")


if __name__ == "__main__":
    main()
