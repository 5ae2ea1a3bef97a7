"""Asks the source service for the ends of the logs, while heartbeats cannot prove a flow."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import random
from typing import Protocol

from twinlog.clock import Clock
from twinlog.model import Flow
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog_heartbeat.model.log_ends import LogEnds
from twinlog_heartbeat.model.state import HeartbeatState

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
