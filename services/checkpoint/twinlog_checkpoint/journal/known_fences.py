"""The number of topics that a flow's moves keep fenced, for the metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import random

from twinlog.clock import Clock
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord

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

    def on_record(self, record: MoveRecord | None) -> None:
        """The journal was read or written; None: it is empty."""
        left, entered = ("source", "target")
        if record is not None and record.kind is MoveKind.FAILBACK:
            left, entered = entered, left
        self._topics = {
            left: 0 if record is None else len(record.fences),
            entered: 0 if record is None else len(record.former_fences),
        }

    async def run(
        self, stop: asyncio.Event, *, load: Callable[[], Awaitable[MoveRecord | None]], clock: Clock
    ) -> None:
        """Loop: read the journal at an interval while this process owns the flow. Afterwards the fences are
        unknown."""

        async def look() -> None:
            self.on_record(await load())

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
