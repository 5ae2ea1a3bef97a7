"""The heartbeats of one flow under the rules in force: changed rules restart its loops."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from twinlog.config import FlowConfig
from twinlog.service.runtime import Loop, wait_for_any
from twinlog_heartbeat.config import HeartbeatFlow, heartbeat_flow
from twinlog_heartbeat.model.state import HeartbeatState


@dataclass(slots=True, kw_only=True)
class FlowBeats:
    """One flow."""

    entry: HeartbeatFlow
    """The rules in force."""
    state: HeartbeatState
    loops_of: Callable[[HeartbeatFlow], Mapping[str, Loop]]
    """Returns the writing loops, by name."""
    _replaced: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, config: FlowConfig) -> None:
        """Apply changed rules. Raises ConfigError for a filter that cannot be used."""
        entry = heartbeat_flow(config)
        self.state.follow(entry)
        writes_as_before = (entry.emits, entry.interval_seconds) == (
            self.entry.emits,
            self.entry.interval_seconds,
        )
        self.entry = entry
        if not writes_as_before:
            self._replaced.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: write heartbeats until `stop`, by the rules in force."""
        while not stop.is_set():
            self._replaced.clear()
            halt = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for name, loop in self.loops_of(self.entry).items():
                    group.create_task(_ended(loop, halt), name=name)
                await wait_for_any(stop, self._replaced)
                halt.set()


async def _ended(loop: Loop, halt: asyncio.Event) -> None:
    await loop(halt)
