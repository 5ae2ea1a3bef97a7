"""A member of a consumer group, as in an application: subscribes, reads, commits what it has processed.

For the demo, the client library and tests. The copy itself never uses a group.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import aiokafka.errors
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition

from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.deadline import deadline
from twinlog.kafka.errors import GROUP_REBALANCED, KAFKA_CLIENT_ERRORS, from_reason, translate
from twinlog.model import Headers, TopicPartition

CALL_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRecord:
    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class GroupConsumer:
    """Use it as an async context manager. Starts at the group's offsets, or else at the earliest record. Only
    `commit` commits. Every call is bounded by 30 s plus its own waiting time, and raises KafkaError."""

    def __init__(
        self, alias: str, properties: Mapping[str, str], *, group: str, topics: Collection[str]
    ) -> None:
        options: dict[str, Any] = aiokafka_client_options(properties, alias=alias)
        self._alias = alias
        self._topics = list(topics)
        self._rebalances = _Rebalances()
        self._consumer = AIOKafkaConsumer(
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
            **options,
        )

    async def __aenter__(self) -> Self:
        self.subscribe(self._topics)
        try:
            async with self._call("join the group", CALL_TIMEOUT_SECONDS):
                await self._consumer.start()
        except BaseException:
            with suppress(KafkaError):
                await self._leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._leave()

    @property
    def rebalances(self) -> int:
        """How many rebalances there were. Each sets every position back to the committed one."""
        return self._rebalances.count

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on; the group rebalances."""
        self._consumer.subscribe(topics=list(topics), listener=self._rebalances)

    async def poll(self, *, max_wait_seconds: float, max_records: int) -> Sequence[ConsumedRecord]:
        """Up to `max_records`, in order within each partition; empty when none arrive in time."""
        async with self._call("read", max_wait_seconds + CALL_TIMEOUT_SECONDS):
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
                headers=tuple(record.headers),
            )
            for records in found.values()
            for record in records
        ]

    async def commit(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offset to read of each partition.

        Raises TransientKafkaError GROUP_REBALANCED when another member may have one of them now: read on;
        records that are not committed are returned again.
        """
        doing = "commit offsets"
        async with self._call(doing, CALL_TIMEOUT_SECONDS):
            try:
                await self._consumer.commit(
                    {ClientPartition(tp.topic, tp.partition): offset for tp, offset in next_offsets.items()}
                )
            except (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError) as error:
                raise from_reason(GROUP_REBALANCED, doing, alias=self._alias) from error

    async def _leave(self) -> None:
        async with self._call("leave the group", CALL_TIMEOUT_SECONDS):
            await self._consumer.stop()

    @asynccontextmanager
    async def _call(self, doing: str, seconds: float) -> AsyncIterator[None]:
        try:
            async with deadline(seconds, doing, alias=self._alias):
                yield
        except KAFKA_CLIENT_ERRORS as error:
            raise translate(error, doing, alias=self._alias) from error


class _Rebalances(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts rebalances, which aiokafka does without telling its user."""

    def __init__(self) -> None:
        self.count = 0

    def on_partitions_revoked(self, revoked: object) -> None:
        self.count += 1

    def on_partitions_assigned(self, assigned: object) -> None:
        """Already counted when they were revoked."""
