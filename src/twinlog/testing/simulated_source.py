"""Brokers as a fetcher sees them, without sockets: they poll long, throttle, and remember their requests.

    brokers = SimulatedBrokers({TopicPartition("t", 0): 1})
    async with RawFetcher(brokers.session(), options) as fetcher: ...

Meant for `run_in_virtual_time`: nothing here does I/O, and an answer takes `round_trip_seconds`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import ANSWER_TOO_LARGE, TIMEOUT, from_reason
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.frames import take_int32, take_string
from twinlog.kafka.protocol.reach import throttle_seconds
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.fetch.wire import FetchedPartition, FetchResponse
from twinlog.model import TopicPartition

_FETCH_VERSION = 11
_MAX_WAIT_AT, _MAX_BYTES_AT, _TOPICS_AT = 4, 12, 25
_PARTITION_BYTES = 28
_FORGOTTEN_BYTES = 4
"""The length of an empty list."""
_SILENCE_SECONDS = 15.0


class AskedPosition(NamedTuple):
    """One fetch request as a broker received it."""

    at: float
    node: int
    positions: Mapping[TopicPartition, int]
    max_wait_seconds: float
    max_bytes: int
    rack: str


@dataclass(slots=True)
class _Log:
    batches: list[bytes] = field(default_factory=list)
    """One record each: the batch at index i gets offset i when it is fetched. A long log of one batch costs
    the memory of one."""


@dataclass(slots=True)
class SimulatedBrokers:
    leaders: Mapping[TopicPartition, int]
    round_trip_seconds: float = 0.001
    asked: list[AskedPosition] = field(default_factory=list)
    """Every fetch, in the order of arrival."""
    throttles_ms: dict[int, list[int]] = field(default_factory=dict)
    """By node: throttle times of the next answers, each of which is empty."""
    out_of_range: set[TopicPartition] = field(default_factory=set)
    """Partitions without any valid position."""
    too_large: set[TopicPartition] = field(default_factory=set)
    """Partitions whose next batch is too large for our clients."""
    preferred: dict[TopicPartition, int] = field(default_factory=dict)
    """The replica that a leader names to a client with a rack."""
    silent: set[int] = field(default_factory=set)
    """Nodes that do not answer."""
    unknown: set[int] = field(default_factory=set)
    """Nodes that are not in the client's metadata until it reads them again."""
    waiting: int = 0
    """Fetches that wait for data now."""
    most_waiting: int = 0
    _logs: dict[TopicPartition, _Log] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def session(self, *, timeout_seconds: float = 30.0) -> DataClientPool:
        return cast("DataClientPool", _Session(self, timeout_seconds))

    async def append(self, partition: TopicPartition, batches: Iterable[bytes]) -> None:
        """Append batches of one record; their base offsets are set when they are fetched."""
        self._logs.setdefault(partition, _Log()).batches.extend(batches)
        async with self._changed:
            self._changed.notify_all()

    async def fetch(self, node: int, request: HandWrittenRequest[Any]) -> FetchResponse:
        loop = asyncio.get_running_loop()
        asked = _read_request(b"".join(request.prepare({1: (4, _FETCH_VERSION)}).pieces), loop.time(), node)
        self.asked.append(asked)
        await asyncio.sleep(self.round_trip_seconds)  # noqa: TID251  # in virtual time
        if node in self.silent:
            await asyncio.sleep(_SILENCE_SECONDS)  # noqa: TID251  # in virtual time
            raise from_reason(TIMEOUT, f"fetch from broker {node}", alias="A")
        throttles = self.throttles_ms.get(node)
        if throttles:
            return FetchResponse(0, [], throttles.pop(0))
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            async with asyncio.timeout(asked.max_wait_seconds), self._changed:
                await self._changed.wait_for(lambda: any(self._has_data(asked)))
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        return FetchResponse(0, list(self._answers(asked)), 0)

    def _has_data(self, asked: AskedPosition) -> Iterable[bool]:
        return (
            partition in self.out_of_range
            or self._names_replica(asked, partition)
            or self._end(partition) > offset
            for partition, offset in asked.positions.items()
        )

    def _names_replica(self, asked: AskedPosition, partition: TopicPartition) -> bool:
        return bool(asked.rack) and self.preferred.get(partition, asked.node) != asked.node

    def _end(self, partition: TopicPartition) -> int:
        log = self._logs.get(partition)
        return len(log.batches) if log else 0

    def _answers(self, asked: AskedPosition) -> Iterable[FetchedPartition]:
        left = asked.max_bytes
        for partition, offset in asked.positions.items():
            if partition in self.out_of_range:
                yield FetchedPartition(
                    partition, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1, (), -1, memoryview(b"")
                )
                continue
            if self._names_replica(asked, partition):
                yield FetchedPartition(
                    partition, 0, -1, -1, -1, (), self.preferred[partition], memoryview(b"")
                )
                continue
            end = self._end(partition)
            records: list[bytes] = []
            while offset < end and left > 0:
                batch = self._logs[partition].batches[offset]
                records += (offset.to_bytes(8), batch[8:])
                left -= len(batch)
                offset += 1
            yield FetchedPartition(partition, 0, end, end, 0, (), -1, memoryview(b"".join(records)))


@dataclass(slots=True)
class _Metadata:
    brokers: SimulatedBrokers

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        return self.brokers.leaders.get(partition)

    def broker_metadata(self, node: int) -> int | None:
        known = {*self.brokers.leaders.values(), *self.brokers.preferred.values()}
        return node if node in known - self.brokers.unknown else None


@dataclass(slots=True)
class _Client:
    cluster: _Metadata

    def force_metadata_update(self) -> None:
        self.cluster.brokers.unknown.clear()


@dataclass(slots=True)
class _Session:
    """The methods of `DataClientPool` that `RawFetcher` uses."""

    brokers: SimulatedBrokers
    timeout_seconds: float
    alias: str = "A"
    _throttled_until: dict[int, float] = field(default_factory=dict)

    async def client(self, _doing: str) -> _Client:
        return _Client(_Metadata(self.brokers))

    async def send(self, node: int, request: HandWrittenRequest[Any], _doing: str) -> FetchResponse:
        response = await self.brokers.fetch(node, request)
        if any(answer.partition in self.brokers.too_large for answer in response.answers):
            raise from_reason(ANSWER_TOO_LARGE, f"fetch from broker {node}", alias=self.alias)
        if response.throttle_ms:
            now = asyncio.get_running_loop().time()
            self._throttled_until[node] = now + throttle_seconds(response.throttle_ms)
        return response

    def throttled_seconds(self, node: int, _api_key: int) -> float:
        return max(0.0, self._throttled_until.get(node, 0.0) - asyncio.get_running_loop().time())

    async def leader(self, partition: TopicPartition, _doing: str) -> int:
        return self.brokers.leaders[partition]


def _read_request(body: bytes, at: float, node: int) -> AskedPosition:
    max_wait_ms, _ = take_int32(body, _MAX_WAIT_AT)
    max_bytes, _ = take_int32(body, _MAX_BYTES_AT)
    topic_count, position = take_int32(body, _TOPICS_AT)
    positions: dict[TopicPartition, int] = {}
    for _ in range(topic_count):
        topic, position = take_string(body, position)
        count, position = take_int32(body, position)
        for _ in range(count):
            number, _ = take_int32(body, position)
            positions[TopicPartition(topic, number)] = int.from_bytes(body[position + 8 : position + 16])
            position += _PARTITION_BYTES
    rack, _ = take_string(body, position + _FORGOTTEN_BYTES)
    return AskedPosition(at, node, positions, max_wait_ms / 1000, max_bytes, rack)


def requests_for(asked: Sequence[AskedPosition], partition: TopicPartition) -> list[AskedPosition]:
    return [one for one in asked if partition in one.positions]
