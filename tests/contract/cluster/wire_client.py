"""A client that sends one request at a time, of a version that tests choose, to see what a broker answers."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from contract.cluster.cluster_rig import ClusterRig
from twinlog.batches import Codec, NewRecord, Seal, build_batch, sealed
from twinlog.kafka.protocol.schemas import API_KEYS, build


class WireClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._highest: dict[int, int] = {}

    async def negotiate(self) -> None:
        """From now on no newer version is asked than the broker offers."""
        answer = await self.ask("api_versions", 0)
        self._highest = {each.api_key: each.max_version for each in answer.api_keys}

    def highest(self, api: str) -> int:
        """The newest version that the broker offers; -1 if it does not have the API."""
        return self._highest.get(API_KEYS[api], -1)

    async def ask(self, api: str, version: int, /, **fields: Any) -> Any:
        """The answer to a request with these fields, by kio's names; it is awaited for a minute at most."""
        key = API_KEYS[api]
        version = min(version, self._highest.get(key, version))
        schema = load_request_schema(key, version)
        self._correlation_id += 1
        header = {
            "request_api_key": key,
            "request_api_version": version,
            "correlation_id": self._correlation_id,
            "client_id": "wire",
        }
        buffer = io.BytesIO()
        entity_writer(schema.__header_schema__)(buffer, build(schema.__header_schema__, header))
        entity_writer(schema)(buffer, build(schema, fields))
        body = buffer.getvalue()
        self._writer.write(len(body).to_bytes(4) + body)
        async with asyncio.timeout(60):
            length = int.from_bytes(await self._reader.readexactly(4))
            answer = await self._reader.readexactly(length)
        response = load_response_schema(key, version)
        _, position = entity_reader(response.__header_schema__)(answer, 0)
        return entity_reader(response)(answer, position)[0]


@asynccontextmanager
async def wire_client(rig: ClusterRig) -> AsyncIterator[WireClient]:
    """Connected to the only broker of the cluster."""
    (broker,) = await rig.cluster.brokers()
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    try:
        client = WireClient(reader, writer)
        await client.negotiate()
        yield client
    finally:
        writer.close()


def batch_bytes(
    *values: bytes,
    identity: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = 1_000,
    codec: Codec = Codec.NONE,
) -> bytes:
    records = [NewRecord(b"key", value, timestamp_ms + number) for number, value in enumerate(values)]
    return sealed(build_batch(records, codec=codec), Seal(*identity, sequence, transactional))
