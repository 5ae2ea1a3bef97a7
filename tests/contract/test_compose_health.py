"""The health checks of the compose file, word for word but for the address: what does not answer is not
healthy."""

import asyncio
import re
import shlex
import sys
from collections.abc import Sequence

import pytest

from contract.ui_services import SERVICES, START_SECONDS, UiRig, serving, ui
from twinlog.local.port_lease import PortLease
from unit.deploy.compose_files import BASE, merged


async def healthy(name: str, address: str) -> bool:
    """What Compose makes of the container's check, where the program listens at `address` instead."""
    kind, *words = merged(BASE, name)["healthcheck"]["test"]
    if kind == "CMD-SHELL":
        (command,) = words
        words = ["sh", "-c", re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", command)]
    else:
        assert kind == "CMD"
    process = await asyncio.create_subprocess_exec(
        *_here(words, address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(START_SECONDS):
        return await process.wait() == 0


def _here(words: Sequence[str], address: str) -> list[str]:
    host, _, port = address.partition(":")
    told = [re.sub(r"127\.0\.0\.1([:/])\d+", rf"{host}\g<1>{port}", word) for word in words]
    assert told != list(words), "the check asks no address of its own container"
    return [sys.executable if word == "python" else word for word in told]


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_is_healthy_while_it_answers(name: str) -> None:
    async with serving(UiRig()) as services:
        assert await healthy(name, services.endpoints[name])
        await services.stop(name)
        assert not await healthy(name, services.endpoints[name])


async def test_the_live_page_is_healthy_while_it_is_served() -> None:
    async with serving(UiRig()) as services:
        async with ui(services) as url:
            address = url.removeprefix("http://").rstrip("/")
            assert await healthy("ui", address)
        assert not await healthy("ui", address)


@pytest.mark.parametrize("name", ["kafka-a", "kafka-b"])
async def test_a_broker_is_healthy_while_it_listens(name: str) -> None:
    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    lease = PortLease(1)
    address = f"127.0.0.1:{lease.ports[0]}"
    assert not await healthy(name, address)
    server = await asyncio.start_server(accept, "127.0.0.1", lease.ports[0])
    async with server:
        assert await healthy(name, address)
    lease.release()
