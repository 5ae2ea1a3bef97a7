"""The number of topics that a flow's moves keep fenced, for the metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import random

from twinlog.clock import Clock
from twinlog.moves.record import Moves
from twinlog.service.runtime import Backoff, retrying_loop

_LOOK_SECONDS = 600.0
"""How often the owner of the flow reads the journal again. The previous owner may have written to it just
before it stopped."""


@dataclass(slots=True)
class KnownFences:
    """The last known fences of the journal. `run` is a loop; `topics` may be called from any thread."""

    _topics: Mapping[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> Mapping[str, int]:
        """Return the fenced topics by cluster: `source` or `target`. Empty while unknown."""
        return self._topics

    def on_moves(self, moves: Moves) -> None:
        """The record of moves was read or written."""
        flow = moves.flow
        self._topics = {
            side: len(moves.fences.get(cluster, ()))
            for side, cluster in (("source", flow.source), ("target", flow.target))
        }

    async def run(self, stop: asyncio.Event, *, load: Callable[[], Awaitable[Moves]], clock: Clock) -> None:
        """Loop: read the journal at an interval while this process owns the flow. Afterwards the fences are
        unknown."""

        async def look() -> None:
            self.on_moves(await load())

        try:
            await retrying_loop(
                "known fences",
                look,
                stop=stop,
                interval_seconds=_LOOK_SECONDS,
                backoff=Backoff(initial_seconds=1.0, max_seconds=60.0, random=random),
                clock=clock,
            )
        finally:
            self._topics = {}
