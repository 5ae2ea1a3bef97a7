"""A member of a consumer group, as an application has one: subscribes, reads, commits what it has handled.

For the demo, the client library and tests. The copy itself never uses a group.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition

from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.deadline import deadline
from twinlog.model import TopicPartition

CALL_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class GroupConsumer:
    """Use as an async context manager. Starts at the group's offsets, at the earliest record without.

    Nothing is committed but by `commit`. Every call is bounded by 30 s beyond what it is told to wait.
    """

    def __init__(
        self, alias: str, properties: Mapping[str, str], *, group: str, topics: Collection[str]
    ) -> None:
        options: dict[str, Any] = aiokafka_client_options(properties, alias=alias)
        self._alias = alias
        self._consumer = AIOKafkaConsumer(
            *topics,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
            **options,
        )

    async def __aenter__(self) -> Self:
        async with deadline(CALL_TIMEOUT_SECONDS, "join the group", alias=self._alias):
            await self._consumer.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with deadline(CALL_TIMEOUT_SECONDS, "leave the group", alias=self._alias):
            await self._consumer.stop()

    async def poll(self, *, max_wait_seconds: float, max_records: int) -> Sequence[ConsumedRecord]:
        """Up to `max_records`, in order within each partition; empty when none came in time."""
        async with deadline(max_wait_seconds + CALL_TIMEOUT_SECONDS, "read", alias=self._alias):
            found = await self._consumer.getmany(
                timeout_ms=int(max_wait_seconds * 1000), max_records=max_records
            )
        return [
            ConsumedRecord(
                partition=TopicPartition(record.topic, record.partition),
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=record.key,
                value=record.value,
            )
            for records in found.values()
            for record in records
        ]

    async def commit(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset to read of each partition."""
        async with deadline(CALL_TIMEOUT_SECONDS, "commit offsets", alias=self._alias):
            await self._consumer.commit(
                {ClientPartition(tp.topic, tp.partition): offset for tp, offset in next_offsets.items()}
            )
