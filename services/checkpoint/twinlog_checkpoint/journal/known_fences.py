"""The topics that a flow's moves keep fenced, and those that others keep fenced."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import random

from twinlog.clock import Clock
from twinlog.moves.record import Moves
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.write_blocks import OtherFence

_LOOK_SECONDS = 600.0
"""How often the owner of the flow reads the journal again. The previous owner may have written to it just
before it stopped."""


@dataclass(slots=True)
class KnownFences:
    """The last known fences of the journal. `run` is a loop; `topics` may be called from any thread."""

    _topics: Mapping[str, int] = field(default_factory=dict)
    others: Sequence[OtherFence] = ()
    """On topics of the flow, on its source."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def topics(self) -> Mapping[str, int]:
        """Return the fenced topics by cluster: `source` or `target`. Empty while unknown."""
        return self._topics

    def on_moves(self, moves: Moves) -> None:
        """The record of moves was read or written."""
        flow = moves.flow
        topics = {
            side: len(moves.fences.get(cluster, ()))
            for side, cluster in (("source", flow.source), ("target", flow.target))
        }
        if topics != self._topics:
            self._changed.set()
        self._topics = topics

    async def run(
        self,
        stop: asyncio.Event,
        *,
        load: Callable[[], Awaitable[Moves]],
        tend: Callable[[Moves], Awaitable[Sequence[OtherFence]]],
        clock: Clock,
    ) -> None:
        """Loop: read the journal at an interval while this process owns the flow, and `tend` the fences on
        the clusters, which returns the `others`. Afterwards the fences are unknown."""

        async def look() -> None:
            moves = await load()
            self.on_moves(moves)
            self.others = await tend(moves)

        try:
            await retrying_loop(
                "known fences",
                look,
                stop=stop,
                interval_seconds=_LOOK_SECONDS,
                backoff=Backoff(initial_seconds=1.0, max_seconds=60.0, random=random),
                clock=clock,
                woken=self._changed,
            )
        finally:
            self._topics, self.others = {}, ()
