"""A headless Chromium, driven by its DevTools protocol: what a person sees and presses."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from twinlog.testing.brokers import eventually

REQUIRED_VARIABLE = "TWINLOG_REQUIRE_CHROMIUM"
START_SECONDS = 120.0
SEEN_SECONDS = 120.0
_SPECIAL = {"ArrowDown": 40, "ArrowUp": 38, "End": 35, "Home": 36, "Escape": 27, "Enter": 13, "Tab": 9}
_MOST_TABS = 200


def chromium() -> str:
    """Where it is. Skips the test where it is absent, or fails it where it is required."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        told = "there is no Chromium to look at the page with: apt-get install chromium"
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(told)
        pytest.skip(told)
    return found


class Tab:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.requests: list[str] = []
        """URLs that the page asked for."""
        self.complaints: list[str] = []
        """What the console says of errors and refused content."""

    async def listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            answer = self._answers.pop(told.get("id", 0), None)
            if answer is not None and not answer.done():
                answer.set_result(told)
            match told.get("method"):
                case "Network.requestWillBeSent":
                    self.requests.append(told["params"]["request"]["url"])
                case "Runtime.exceptionThrown":
                    self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    entry = told["params"]["entry"]
                    if entry["level"] == "error" and entry["source"] != "network":
                        self.complaints.append(entry["text"])

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(SEEN_SECONDS):
            told: dict[str, Any] = await answer
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def open(self, url: str, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.ask(f"{domain}.enable")
        await self.resize(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.ask("Emulation.setEmulatedMedia", features=scheme)
        await self.ask("Page.navigate", url=url)

    async def resize(self, width: int, height: int = 800) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)

    async def text(self) -> str:
        """What a person reads."""
        return str(await self.run("document.body ? document.body.innerText : ''"))

    async def sees(self, *words: str) -> None:
        """Waits until all are on the page."""

        async def all_there() -> bool:
            shown = await self.text()
            missing = [word for word in words if word not in shown]
            assert not missing, f"the page does not show {missing}; it shows:\n{shown}\n{self.complaints}"
            return True

        await eventually(all_there, SEEN_SECONDS)

    async def holds(self, script: str) -> None:
        """Waits until an expression is true in the page."""

        async def true() -> bool:
            assert await self.run(script), f"{script} stays false on:\n{await self.text()}\n{self.complaints}"
            return True

        await eventually(true, SEEN_SECONDS)

    async def press(self, key: str) -> None:
        code = _SPECIAL.get(key, ord(key.upper()[0]))
        text = {"text": "\r"} if key == "Enter" else {} if key in _SPECIAL else {"text": key}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def go_by_keyboard(self, selector: str, key: str | None = "Enter") -> None:
        """Tab to what a selector names, and press a key there."""
        for _ in range(_MOST_TABS):
            await self.press("Tab")
            if await self.run(f"document.activeElement.matches({json.dumps(selector)})"):
                break
        else:
            raise AssertionError(f"{selector} is not reached by the keyboard")
        if key is not None:
            await self.press(key)

    async def type(self, text: str) -> None:
        await self.ask("Input.insertText", text=text)

    async def screenshot(self) -> bytes:
        """A PNG."""
        shot = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def new_tab() -> AsyncIterator[Tab]:
    """A browser of its own with one empty tab."""
    program = chromium()
    with tempfile.TemporaryDirectory(prefix="twinlog-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(  # noqa: ASYNC220 (starts at once, and is waited for in a thread)
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = await _devtools_port(Path(profile), process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(url, max_msg_size=0) as socket, asyncio.TaskGroup() as group:
                    tab = Tab(socket)
                    listening = group.create_task(tab.listen(), name="devtools")
                    yield tab
                    listening.cancel()
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, START_SECONDS)


async def _devtools_port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    file = profile / "DevToolsActivePort"

    def told() -> str | None:
        assert process.poll() is None, "Chromium ended"
        text = file.read_text() if file.exists() else ""
        return text if "\n" in text else None

    return int((await eventually(told, START_SECONDS)).splitlines()[0])
