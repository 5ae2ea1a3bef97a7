"""The live page that `twinlog demo --ui` shows."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from twinlog.demo.live_page import live_page

FILE = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:1
A->B.enabled = true
"""


async def test_the_address_is_told_while_the_page_is_there_and_it_ends_with_the_demo(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    await asyncio.to_thread(file.write_text, FILE)
    async with aiohttp.ClientSession() as session:
        async with live_page(file, tmp_path) as told:
            word, _, url = told.partition(": ")
            assert (word, url[:17]) == ("live page", "http://127.0.0.1:"), told
            async with session.get(url) as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


async def test_a_page_that_does_not_start_is_said_and_the_demo_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    await asyncio.to_thread(file.write_text, "clusters = A B\n")
    async with live_page(file, tmp_path) as told:
        assert told.startswith("the live page did not start: error: ")
        assert "write commas between aliases" in told
