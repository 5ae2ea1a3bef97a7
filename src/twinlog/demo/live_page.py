"""The live page of the demo: `twinlog ui` as a separate process."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from twinlog.local.processes.process import GuardedProcess
from twinlog.service.runtime import wait_or_stop

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
_READY = "ready: "


@asynccontextmanager
async def live_page(file: Path, directory: Path) -> AsyncIterator[str]:
    """A line with the page's address, or why there is none. The demo continues without it."""
    log = directory / "ui.log"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "twinlog",
        "ui",
        "--config",
        file,
        "--listen",
        "127.0.0.1:0",
    ]
    process = GuardedProcess(command, output=log)
    try:
        url = await _address(process, log)
        if url is None:
            yield f"the live page did not start: {_told(log).strip() or 'it said nothing'}"
        else:
            if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
                await asyncio.to_thread(webbrowser.open, url)
            yield f"live page: {url}"
    finally:
        await asyncio.to_thread(process.stop, STOP_SECONDS)


def _told(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


async def _address(process: GuardedProcess, log: Path) -> str | None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + START_SECONDS
    never = asyncio.Event()
    while process.running and loop.time() < give_up_at:
        lines = _told(log).splitlines(keepends=True)
        line = next((each for each in lines if each.startswith(_READY)), "")
        if line.endswith("\n"):
            return line.removeprefix(_READY).strip()
        await wait_or_stop(never, _POLL_SECONDS)
    return None
