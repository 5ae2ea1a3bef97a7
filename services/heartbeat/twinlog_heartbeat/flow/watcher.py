"""Watches one cluster for replicated heartbeats, and reports each as it arrives."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import random
from typing import Protocol

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TwinlogError, WireFormatError
from twinlog.kafka.ports import KafkaCluster, LogReader, OffsetSpec, TopicAdmin
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import log_bounds
from twinlog.model import ClusterAlias, Flow, TopicPartition
from twinlog.policy import ReplicationPolicy, heartbeat_topics
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire import Heartbeat, decode_heartbeat
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION
from twinlog_heartbeat.model.delays import LogEnds
from twinlog_heartbeat.model.state import HeartbeatState, PathBook

# Asks the source service for the ends of the logs, while heartbeats cannot prove a flow.

LOOK_SECONDS = 5.0


class EndsOfLogs(Protocol):
    async def of_flows(self) -> Mapping[Flow, LogEnds]:
        """The ends of the logs of every flow whose lag is known. Raises TwinlogError."""
        ...


@dataclass(slots=True, kw_only=True)
class LogEndsWatch:
    ends: EndsOfLogs
    state: HeartbeatState
    clock: Clock

    async def run(self, stop: asyncio.Event) -> None:
        """Loop. Does not ask while heartbeats prove every flow."""
        await retrying_loop(
            "ends of logs",
            self.look,
            stop=stop,
            interval_seconds=LOOK_SECONDS,
            backoff=Backoff(initial_seconds=LOOK_SECONDS, max_seconds=60.0, random=random),
            clock=self.clock,
        )

    async def look(self) -> None:
        if self.state.without_beats():
            for flow, ends in (await self.ends.of_flows()).items():
                self.state.on_log_ends(flow, ends)


TOPICS_INTERVAL_SECONDS = 5.0
"""How often the cluster is asked for the topics that are watched, or should exist."""
LIST_INTERVAL_SECONDS = 60.0
"""How often it is asked for all of its topics, because heartbeats may have arrived over several hops. Kafka
lists names only together with all partitions, so the interval is long if there are many topics."""
FETCH_WAIT_SECONDS = 5.0
"""Brokers answer as soon as there is a heartbeat."""
LOOK_BACK_RECORDS = 100
"""How far before its end reading a topic starts, so that a broken path still shows when it last worked."""

TOPIC_UNKNOWN = "TOPIC_UNKNOWN"

_log = structlog.stdlib.get_logger(__name__)

OnHeartbeat = Callable[[ClusterAlias, str, Heartbeat, int], None]
"""(cluster, topic, heartbeat, seen at): called once for each heartbeat that arrives."""


@dataclass(slots=True, kw_only=True)
class _Tail:
    topic: str
    stop: asyncio.Event
    reader: LogReader | None = None
    next_offset: int | None = None
    live_from: int = 0
    """Records before this offset existed when the watch began: they date the path, but do not measure a
    delay."""


@dataclass(slots=True, kw_only=True)
class HeartbeatWatcher:
    """The replicated heartbeats topics of one cluster; each is read by its own task. Runs until stop, and
    never raises for a broker: `on_blocker` gets why the cluster cannot be read, and None once it can."""

    alias: ClusterAlias
    admin: TopicAdmin
    cluster: KafkaCluster
    """Provides the readers, and the ends of the logs that they read."""
    policy: ReplicationPolicy
    paths: PathBook
    clock: Clock
    on_heartbeat: OnHeartbeat
    on_blocker: Callable[[ClusterAlias, TwinlogError | None], None]
    on_read_blocker: Callable[[ClusterAlias, str, TwinlogError | None], None]
    """As `on_blocker`, for one topic: the cluster answers, and this topic cannot be read."""
    expected: frozenset[str] = frozenset()
    """The replicated heartbeats topics that the flows of the file write to this cluster, or may begin to
    write."""
    _tails: dict[str, _Tail] = field(default_factory=dict)
    _list_at: float = float("-inf")

    async def run(self, stop: asyncio.Event) -> None:
        """List the topics at an interval; read those with replicated heartbeats."""
        async with asyncio.TaskGroup() as group:

            async def look() -> None:
                self._follow(await self.topics(), group)
                self.on_blocker(self.alias, None)

            try:
                await retrying_loop(
                    f"watch heartbeats on {self.alias}",
                    look,
                    stop=stop,
                    interval_seconds=TOPICS_INTERVAL_SECONDS,
                    backoff=Backoff(initial_seconds=0.5, max_seconds=TOPICS_INTERVAL_SECONDS, random=random),
                    clock=self.clock,
                    on_error=lambda error: self.on_blocker(self.alias, error),
                )
            finally:
                for tail in self._tails.values():
                    tail.stop.set()

    async def topics(self) -> frozenset[str]:
        """The replicated heartbeats topics that exist now. Raises KafkaError."""
        now = self.clock.monotonic()
        if now >= self._list_at:
            listed = await self.admin.list_topics()
            self._list_at = now + LIST_INTERVAL_SECONDS
            # Flows with other policies write to this cluster, too: `policy` may not recognise their topics.
            topics = heartbeat_topics(self.policy, listed) | self.expected.intersection(listed)
            return topics - {self.policy.heartbeats_topic()}
        described = await self.admin.describe_topics(self.expected | self._tails.keys())
        gone = {
            name
            for name, found in described.items()
            if isinstance(found, KafkaError) and (name not in self._tails or found.reason == TOPIC_UNKNOWN)
        }
        return frozenset(described.keys() - gone)

    def _follow(self, topics: frozenset[str], group: asyncio.TaskGroup) -> None:
        self.paths.on_topics(self.alias, self.policy, topics)
        for topic in self._tails.keys() - topics:
            tail = self._tails.pop(topic)
            self._tell(tail, None)
            tail.stop.set()
        for topic in topics - self._tails.keys():
            tail = self._tails[topic] = _Tail(topic=topic, stop=asyncio.Event())
            group.create_task(self._run_tail(tail), name=f"tail {topic} on {self.alias}")

    def _tell(self, tail: _Tail, error: TwinlogError | None) -> None:
        """Report nothing about a topic that no longer exists."""
        if not tail.stop.is_set():
            self.on_read_blocker(self.alias, tail.topic, error)

    async def _run_tail(self, tail: _Tail) -> None:
        name = f"tail {tail.topic} on {self.alias}"
        async with AsyncExitStack() as stack:
            await retrying_loop(
                name,
                lambda: self._step(tail, stack),
                stop=tail.stop,
                interval_seconds=0.0,
                backoff=Backoff(initial_seconds=0.2, max_seconds=5.0, random=random),
                clock=self.clock,
                on_error=lambda error: self._tell(tail, error),
                grace_seconds=0.0,
            )

    async def _step(self, tail: _Tail, stack: AsyncExitStack) -> None:
        """Read new records. A position that fell out of the log is looked up again, because only new
        heartbeats matter."""
        if tail.reader is None:
            # In the retried step, because it may raise ConfigError.
            tail.reader = await stack.enter_async_context(self.cluster.reader())
        partition = TopicPartition(tail.topic, HEARTBEATS_PARTITION)
        try:
            if tail.next_offset is None:
                tail.next_offset, tail.live_from = await self._start(partition)
            fetched = await tail.reader.fetch(
                partition, tail.next_offset, max_wait_seconds=FETCH_WAIT_SECONDS
            )
        except TwinlogError as error:
            if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                tail.next_offset = None
            raise
        self._tell(tail, None)
        seen_ms = self.clock.now_ms()
        for record in fetched.records:
            try:
                heartbeat = decode_heartbeat(record.key, record.value)
            except WireFormatError as error:
                _log.debug("heartbeat_skipped", topic=tail.topic, offset=record.offset, message=str(error))
                continue
            self.paths.on_heartbeat(
                self.alias, tail.topic, emitted_ms=heartbeat.timestamp_ms, seen_ms=seen_ms
            )
            if record.offset >= tail.live_from:
                self.on_heartbeat(self.alias, tail.topic, heartbeat, seen_ms)
        tail.next_offset = fetched.next_offset

    async def _start(self, partition: TopicPartition) -> tuple[int, int]:
        """Where to start reading, and the present end."""
        earliest, end = await log_bounds(self.cluster, partition, OffsetSpec.LATEST)
        return max(earliest, end - LOOK_BACK_RECORDS), end
