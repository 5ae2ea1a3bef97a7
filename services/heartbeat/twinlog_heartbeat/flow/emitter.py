"""Writes one heartbeat at an interval.

All heartbeats of an interval are due at the same moments, so those of many flows for one topic share a batch.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import LogWriter, TopicAdmin
from twinlog.model import Flow, TopicPartition
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire import Heartbeat, encode_heartbeat
from twinlog.wire.heartbeat import HEARTBEATS_PARTITION
from twinlog_heartbeat.model.beats import Beat


def seconds_to_next(now_ms: int, interval_seconds: float) -> float:
    """Until the wall clock shows the next multiple of the interval.

    >>> [seconds_to_next(now_ms, 1.0) for now_ms in (10_000, 10_250, 10_999)]
    [1.0, 0.75, 0.001]
    """
    interval_ms = interval_seconds * 1000
    return (interval_ms - now_ms % interval_ms) / 1000


@dataclass(slots=True, kw_only=True)
class BeatEmitter:
    """The loop of one heartbeat. Runs until stop. Failures are passed to `on_error` and retried."""

    beat: Beat
    admin: TopicAdmin
    writer: LogWriter
    """Shared with other flows; its client has producer settings, the admin client has its own."""
    topic: str
    topic_replication_factor: int
    interval_seconds: float
    clock: Clock
    on_emitted: Callable[[Beat], None]
    on_error: Callable[[Beat, TwinlogError], None]
    refusal: Callable[[Flow], TwinlogError | None]
    """Returns why the flow must not run (both ends are the same cluster); None when nothing is known against
    it."""
    _topic_is_there: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        await retrying_loop(
            self.beat.name,
            self._step,
            stop=stop,
            interval_seconds=lambda: seconds_to_next(self.clock.now_ms(), self.interval_seconds),
            backoff=Backoff(initial_seconds=0.5, max_seconds=10.0, random=random),
            clock=self.clock,
            on_error=lambda error: self.on_error(self.beat, error),
        )

    async def _step(self) -> None:
        """Write one heartbeat. Create the topic first, so that no broker creates it with its defaults."""
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
            await self.writer.append(
                TopicPartition(self.topic, HEARTBEATS_PARTITION), key=key, value=value, timestamp_ms=now_ms
            )
        except TwinlogError:
            self._topic_is_there = False
            raise
        self.on_emitted(self.beat)
