"""Writes one heartbeat again and again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter, TopicAdmin
from twinlog.model import Flow, TopicPartition
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire import Heartbeat, encode_heartbeat
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION
from twinlog_heartbeat.model.beats import Beat


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
    _topic_is_there: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        async with self.cluster.writer() as writer:
            await retrying_loop(
                self.beat.name,
                lambda: self._step(writer),
                stop=stop,
                interval_seconds=self.interval_seconds,
                backoff=Backoff(initial_seconds=0.5, max_seconds=10.0, random=random),
                clock=self.clock,
                on_error=lambda error: self.on_error(self.beat, error),
            )

    async def _step(self, writer: LogWriter) -> None:
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
            now_ms = self.clock.now_ms()
            key, value = encode_heartbeat(
                Heartbeat(source=self.beat.flow.source, target=self.beat.flow.target, timestamp_ms=now_ms)
            )
            await writer.append(
                TopicPartition(self.topic, HEARTBEATS_PARTITION), key=key, value=value, timestamp_ms=now_ms
            )
        except TwinlogError:
            self._topic_is_there = False
            raise
        self.on_emitted(self.beat)
