"""Writes one heartbeat again and again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, ManagedWriter, TopicAdmin
from twinlog.model import Flow, TopicPartition
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire import Heartbeat, encode_heartbeat
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION
from twinlog_heartbeat.beats import Beat


@dataclass(slots=True, kw_only=True)
class BeatEmitter:
    """The loop of one beat. Runs until stop; a cluster that is away or refuses is told to `on_error`, then
    retried."""

    beat: Beat
    admin: TopicAdmin
    cluster: KafkaCluster
    """Gives the writer; its client has producer settings, the admin's has its own."""
    topic: str
    topic_replication_factor: int
    interval_seconds: float
    clock: Clock
    on_emitted: Callable[[Beat], None]
    on_error: Callable[[Beat, TwinlogError], None]
    refusal: Callable[[Flow], TwinlogError | None]
    """Why the flow must not run (both ends are one cluster), None when nothing is known against it."""
    _writer: ManagedWriter | None = None
    _topic_is_there: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await retrying_loop(
                self.beat.name,
                self._step,
                stop=stop,
                interval_seconds=self.interval_seconds,
                backoff=Backoff(initial_seconds=0.5, max_seconds=10.0, random=random),
                clock=self.clock,
                on_error=lambda error: self.on_error(self.beat, error),
            )
        finally:
            await self._close()

    async def _step(self) -> None:
        """Write one beat; the topic is made first, so that no broker creates it with settings of its own."""
        refused = self.refusal(self.beat.flow)
        if refused is not None:
            raise refused
        try:
            if not self._topic_is_there:
                await ensure_compacted_topic(
                    self.admin, self.topic, replication_factor=self.topic_replication_factor
                )
                self._topic_is_there = True
            if self._writer is None:
                self._writer = await self.cluster.writer().__aenter__()
            now_ms = self.clock.now_ms()
            key, value = encode_heartbeat(
                Heartbeat(source=self.beat.flow.source, target=self.beat.flow.target, timestamp_ms=now_ms)
            )
            await self._writer.append(
                TopicPartition(self.topic, HEARTBEATS_PARTITION), key=key, value=value, timestamp_ms=now_ms
            )
        except TwinlogError:
            self._topic_is_there = False
            await self._close()
            raise
        self.on_emitted(self.beat)

    async def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__(None, None, None)
