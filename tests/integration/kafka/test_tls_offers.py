"""What clients offer at the beginning of a TLS connection."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from integration.kafka.listener_rig import PATIENT_SECONDS, refused
from twinlog.kafka.cluster import open_cluster


@dataclass(slots=True, kw_only=True)
class Hello:
    """What a client offers at the beginning of a TLS connection."""

    suites: frozenset[int]
    versions: frozenset[int]


def read_hello(data: bytes) -> Hello:
    """A record of type 22 with a ClientHello (RFC 8446, 4.1.2)."""
    assert (data[0], data[5]) == (22, 1)
    position = 5 + 4 + 2 + 32
    position += 1 + data[position]
    size = int.from_bytes(data[position : position + 2])
    position += 2
    suites = frozenset(int.from_bytes(data[at : at + 2]) for at in range(position, position + size, 2))
    position += size
    position += 1 + data[position]
    end = position + 2 + int.from_bytes(data[position : position + 2])
    position += 2
    versions = frozenset({TLS_1_2})
    while position < end:
        kind, size = (
            int.from_bytes(data[position : position + 2]),
            int.from_bytes(data[position + 2 : position + 4]),
        )
        if kind == SUPPORTED_VERSIONS:
            listed = data[position + 5 : position + 4 + size]
            versions = frozenset(int.from_bytes(listed[at : at + 2]) for at in range(0, len(listed), 2))
        position += 4 + size
    return Hello(suites=suites, versions=versions)


SUPPORTED_VERSIONS = 43
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
SUITES_OF_1_3 = frozenset({0x1301, 0x1302, 0x1303})
ECDHE_RSA_AES256_GCM = 0xC030
NO_SUITE = frozenset({0x00FF, 0x5600})
"""Signals of TLS that stand among the suites (RFC 5746, RFC 7507)."""


async def hello_of(settings: Mapping[str, str]) -> Hello:
    """What a client with these settings says first."""
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(5)
        seen.put_nowait(header + await reader.readexactly(int.from_bytes(header[3:5])))
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    properties = {"bootstrap.servers": f"{host}:{port}", "security.protocol": "SSL", **settings}
    async with (
        server,
        open_cluster("tls", properties) as cluster,
        asyncio.TaskGroup() as group,
        asyncio.timeout(PATIENT_SECONDS),
    ):
        asking = group.create_task(refused(cluster.list_topics), name="asks")
        found = read_hello(await seen.get())
        asking.cancel()
    return found


async def test_clients_offer_what_ssl_enabled_protocols_and_ssl_cipher_suites_leave() -> None:
    hello = await hello_of({})
    assert hello.versions >= {TLS_1_2, TLS_1_3}
    assert len(hello.suites - SUITES_OF_1_3 - NO_SUITE) > 1
    limits = {
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    }
    hello = await hello_of(limits)
    assert hello.versions == {TLS_1_2}
    assert hello.suites - SUITES_OF_1_3 - NO_SUITE == {ECDHE_RSA_AES256_GCM}
    assert (await hello_of({"ssl.enabled.protocols": "TLSv1.3"})).versions == {TLS_1_3}
