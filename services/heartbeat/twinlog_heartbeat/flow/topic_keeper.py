"""Creates the heartbeats topic on the target of a flow whose heartbeats are off, as MM2 does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import random

from twinlog.clock import Clock
from twinlog.errors import TwinlogError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import TopicAdmin
from twinlog.model import Flow
from twinlog.service.runtime import Backoff, retrying_loop

LOOK_INTERVAL_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKeeper:
    """For flows without an emitter; emitters create the topic to which they write."""

    flow: Flow
    admin: TopicAdmin
    topic: str
    replication_factor: int
    clock: Clock
    refusal: Callable[[Flow], TwinlogError | None]

    @property
    def name(self) -> str:
        return f"keep {self.topic} on {self.flow.target} for {self.flow}"

    async def run(self, stop: asyncio.Event) -> None:
        await retrying_loop(
            self.name,
            self._step,
            stop=stop,
            interval_seconds=LOOK_INTERVAL_SECONDS,
            backoff=Backoff(initial_seconds=0.5, max_seconds=30.0, random=random),
            clock=self.clock,
        )

    async def _step(self) -> None:
        refused = self.refusal(self.flow)
        if refused is not None:
            raise refused
        await ensure_compacted_topic(self.admin, self.topic, replication_factor=self.replication_factor)
