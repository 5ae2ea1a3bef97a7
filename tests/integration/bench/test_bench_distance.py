"""The long way of the benchmark: late, whole, and in order, until a connection is lost."""

import asyncio

from bench.distance import distance

from twinlog.local.port_lease import PortLease


async def test_what_is_sent_over_a_distance_comes_back_whole_and_in_order_after_a_round_trip() -> None:
    sent = b"".join(b"%08d" % number for number in range(100_000))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    lease = PortLease(2)
    far, near = lease.ports
    server = await asyncio.start_server(echo, "127.0.0.1", near)
    async with server, distance(far, near, round_trip_ms=50):
        reader, writer = await asyncio.open_connection("127.0.0.1", far)
        loop = asyncio.get_running_loop()
        began = loop.time()
        writer.write(sent)
        first = await reader.readexactly(8)
        took_seconds = loop.time() - began
        rest = await reader.readexactly(len(sent) - 8)
        writer.close()
        await writer.wait_closed()
    lease.release()
    assert first + rest == sent
    assert took_seconds >= 0.05


async def test_a_connection_is_lost_now_and_then_and_the_next_one_is_as_good() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def is_lost(port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True
        finally:
            writer.close()

    lease = PortLease(2)
    far, near = lease.ports
    server = await asyncio.start_server(answer, "127.0.0.1", near)
    async with server, distance(far, near, round_trip_ms=1, lost_every_seconds=0.1), asyncio.timeout(60):
        # Nobody closes them at either end.
        assert await is_lost(far)
        assert await is_lost(far)
    lease.release()
