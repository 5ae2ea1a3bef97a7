"""How many topics a flow's moves keep fenced, for the metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import random

from twinlog.clock import Clock
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog_checkpoint.journal.record import MoveKind, MoveRecord

_LOOK_SECONDS = 600.0
"""How often the journal is read again, by the process that owns the flow and writes it. A stop of the
other process that is not finished may have written to it."""


@dataclass(slots=True)
class KnownFences:
    """What the journal said last. `run` is a loop; `topics` may be asked from any thread."""

    _topics: Mapping[str, int] = field(default_factory=dict)

    @property
    def topics(self) -> Mapping[str, int]:
        """Fenced topics by the end they are on: `source` or `target`. Empty while it is not known."""
        return self._topics

    def on_record(self, record: MoveRecord | None) -> None:
        """The journal was read or written; None: nothing is in it."""
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
        """Loop: read the journal now and then while this process owns the flow; nothing is known after it."""

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
