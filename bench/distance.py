"""A long way to a cluster: a process of its own that hands every byte on after half a round trip, and may
lose connections.

python -m bench.distance PORT BROKER_PORT ROUND_TRIP_MS LOST_EVERY_SECONDS
"""

import asyncio
import contextlib
import random
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import uvloop

from twinlog.errors import StateError
from twinlog.local.spec import ADDRESS

_MOST_BYTES_ON_THE_WAY = 256 << 20
"""Limit of one direction of a connection: more than any window over any distance that is measured."""
_READY = b"ready\n"
_SEED = 1


class _Way(asyncio.Protocol):
    """One direction of a connection. What arrives leaves `delay_seconds` later, in the same order."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0
        self._paused = self._timed = False
        self._transport: asyncio.Transport | None = None
        self.other: _Way | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        self._transport.set_write_buffer_limits(high=_MOST_BYTES_ON_THE_WAY)
        if self.other is not None:
            self.other._flush()

    def data_received(self, data: bytes) -> None:
        self._waiting.append((self._loop.time() + self._delay_seconds, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _MOST_BYTES_ON_THE_WAY and self._transport is not None and not self._paused:
            self._transport.pause_reading()
            self._paused = True
        self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def lose(self) -> None:
        """The connection is gone with what is on its way, in both directions."""
        for way in (self, self.other):
            if way is not None and way._transport is not None:
                way._transport.abort()

    def _time(self) -> None:
        if self._waiting and not self._timed:
            self._timed = True
            self._loop.call_at(self._waiting[0][0], self._due)

    def _due(self) -> None:
        self._timed = False
        self._flush()

    def _flush(self) -> None:
        there = None if self.other is None else self.other._transport
        now = self._loop.time() + 0.0005
        while there is not None and not there.is_closing() and self._waiting and self._waiting[0][0] <= now:
            _, data = self._waiting.popleft()
            self._waiting_bytes -= len(data)
            there.write(data)
        if there is not None and there.is_closing():
            self._waiting.clear()
        if self._paused and self._waiting_bytes <= _MOST_BYTES_ON_THE_WAY and self._transport is not None:
            if not self._transport.is_closing():
                self._transport.resume_reading()
            self._paused = False
        self._time() if there is not None else None


async def serve(port: int, broker_port: int, *, round_trip_seconds: float, lost_every_seconds: float) -> None:
    """Until cancelled. Prints `ready` when it listens. One of the open connections, chosen with a seed, is
    lost at each interval; 0 = none."""
    loop = asyncio.get_running_loop()
    delay_seconds = round_trip_seconds / 2
    accepted: list[_Way] = []
    dice = random.Random(_SEED)

    async with asyncio.TaskGroup() as group:

        async def connect(here: _Way) -> None:
            there = _Way(delay_seconds)
            here.other, there.other = there, here
            try:
                await loop.create_connection(lambda: there, ADDRESS, broker_port)
            except OSError:
                here.connection_lost(None)

        def accept() -> _Way:
            here = _Way(delay_seconds)
            accepted.append(here)
            group.create_task(connect(here), name="connect")
            return here

        def lose() -> None:
            accepted[:] = [way for way in accepted if way.is_open]
            if accepted:
                dice.choice(accepted).lose()
            loop.call_later(lost_every_seconds, lose)

        server = await loop.create_server(accept, ADDRESS, port)
        if lost_every_seconds:
            loop.call_later(lost_every_seconds, lose)
        sys.stdout.buffer.write(_READY)
        sys.stdout.buffer.flush()
        await server.serve_forever()


@asynccontextmanager
async def distance(
    port: int, broker_port: int, *, round_trip_ms: float, lost_every_seconds: float = 0.0
) -> AsyncIterator[None]:
    """While it lasts, clients of `port` are so far from the broker, and one of their connections is lost so
    often (0 = none). Raises StateError."""
    numbers = (port, broker_port, round_trip_ms, lost_every_seconds)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.distance", *map(str, numbers)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != _READY:
            raise StateError("the way to the far cluster did not open; its error is above")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def main() -> None:
    port, broker_port, round_trip_ms, lost_every_seconds = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(
            serve(
                int(port),
                int(broker_port),
                round_trip_seconds=float(round_trip_ms) / 1000,
                lost_every_seconds=float(lost_every_seconds),
            )
        )


if __name__ == "__main__":
    main()
