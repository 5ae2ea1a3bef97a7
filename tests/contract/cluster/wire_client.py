"""A client that sends one request at a time, of a version that tests choose, to see what a broker answers."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from contract.cluster.cluster_rig import ClusterRig
from twinlog.batches import Codec, NewRecord, Seal, build_batch, sealed
from twinlog.kafka.protocol.requests import API_KEYS, build
from twinlog.testing.brokers import eventually

Identity = tuple[int, int]
"""Producer id and epoch."""
_PRODUCE, _FETCH = 11, 11


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
    ((_, address),) = (await rig.cluster.presence()).brokers.items()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        client = WireClient(reader, writer)
        await client.negotiate()
        yield client
    finally:
        writer.close()


def batch_bytes(
    *values: bytes,
    identity: Identity = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = 1_000,
    codec: Codec = Codec.NONE,
) -> bytes:
    records = [NewRecord(b"key", value, timestamp_ms + number) for number, value in enumerate(values)]
    return sealed(build_batch(records, codec=codec), Seal(*identity, sequence, transactional))


async def produce(
    client: WireClient,
    topic: str,
    data: bytes,
    *,
    version: int = _PRODUCE,
    transactional_id: str | None = None,
) -> tuple[ErrorCode, int]:
    """(error, base offset)."""
    part = {"index": 0, "records": data}
    answer = await client.ask(
        "produce",
        version,
        transactional_id=transactional_id,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": [part]}],
    )
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


async def fetch(
    client: WireClient, topic: str, offset: int, *, epoch: int = -1, max_bytes: int = 1 << 20
) -> Any:
    part = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    answer = await client.ask(
        "fetch",
        _FETCH,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [part]}],
        forgotten_topics_data=[],
    )
    return answer.responses[0].partitions[0]


async def offset_at(client: WireClient, topic: str, timestamp_ms: int) -> tuple[Any, ...]:
    """(error, offset, timestamp)."""
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    answer = await client.ask(
        "list_offsets",
        9,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [part]}],
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


async def new_identity(client: WireClient, transactional_id: str | None = None) -> Identity:
    """Of a producer, once the transaction before it has ended."""
    identities = []

    async def given() -> bool:
        if transactional_id is not None:
            # Brokers make __transaction_state when somebody looks for a coordinator.
            found = await client.ask("find_coordinator", 3, key=transactional_id, key_type=1)
            if found.error_code is not ErrorCode.none:
                return False
        answer = await client.ask(
            "init_producer_id",
            4,
            transactional_id=transactional_id,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        identities.append((answer.producer_id, answer.producer_epoch))
        return bool(answer.error_code is ErrorCode.none)

    assert await eventually(given)
    return identities[-1]


async def add_partition(
    client: WireClient, transactional_id: str, identity: Identity, topic: str
) -> ErrorCode:
    """As clients do, waits while the transaction before is being completed."""

    async def asked() -> list[ErrorCode]:
        answer = await client.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        (of_topic,) = answer.results_by_topic_v3_and_below
        code: ErrorCode = of_topic.results_by_partition[0].partition_error_code
        return [] if code is ErrorCode.concurrent_transactions else [code]

    return (await eventually(asked))[0]


async def end(
    client: WireClient,
    transactional_id: str,
    identity: Identity,
    *,
    version: int,
    committed: bool = True,
) -> Any:
    """Waits as `add_partition`."""

    async def asked() -> Any:
        answer = await client.ask(
            "end_txn",
            version,
            transactional_id=transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=committed,
        )
        return None if answer.error_code is ErrorCode.concurrent_transactions else answer

    return await eventually(asked)
