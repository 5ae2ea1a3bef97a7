"""The groups of all flows as watchers see them: one item for each (group, partition), one for each flow."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from opentelemetry.metrics import Meter

from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.server import Event, ResumableRegistry
from twinlog.service.runtime import wait_for_any
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.groups.progress import GroupProgress

HISTORY_SIZE = 1_000_000
"""How many changes of each kind are kept; it also bounds the number of removed rows. A pass that changes
every row must not make watchers fall behind."""
PAUSE_SECONDS = 0.5
"""Pause between two batches of changes on one stream. Changes of the same row within it are sent once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowProgress:
    """The state of the translation of one flow's groups."""

    flow: Flow
    ready: bool
    """The first pass over the offset syncs is done."""
    blocker: str
    """Why groups cannot be translated now; empty when they can."""
    confirmed_ms: int | None
    """When the last complete pass over all groups ended."""
    blocker_reason: str = ""
    deletions_held: tuple[str, str] = ("", "")
    """Why groups that no longer exist on the source are not deleted on the target: reason and message. Empty
    when they may be deleted."""
    offsets_held: tuple[str, str] = ("", "")
    """Why no offsets are committed on the target for some groups: reason and message. Empty when nothing
    prevents it."""
    groups_listed_ms: int | None = None
    """When the groups were last listed; None = not yet."""
    next_listing_ms: int | None = None
    """When new groups are found; None = not known, or never."""


ItemKey = tuple[Flow, str, TopicPartition | None]
"""Flow, group and source partition. For the row of the flow itself: "" and None."""
Item = GroupProgress | FlowProgress


def flow_progress(parts: FlowParts) -> FlowProgress:
    """The current progress of a flow."""
    return FlowProgress(
        flow=parts.flow,
        ready=parts.syncs_are_read,
        blocker=parts.blocker,
        confirmed_ms=parts.checkpointer.table.confirmed_ms,
        blocker_reason=parts.blocker_reason,
        deletions_held=parts.checkpointer.table.deletions_held,
        offsets_held=parts.checkpointer.table.offsets_held,
        groups_listed_ms=parts.checkpointer.groups.listed_at_ms,
        next_listing_ms=parts.checkpointer.groups.next_listing_ms,
    )


class CheckpointBoard:
    """The state behind WatchCheckpoints. Use it from one event loop only."""

    def __init__(
        self,
        flows: Iterable[FlowParts],
        *,
        history_id: str,
        meter: Meter,
        history_size: int = HISTORY_SIZE,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Subscribe to the tables of these flows; changes are published while `run` runs."""
        self._flows = list(flows)
        self._pause_seconds = pause_seconds
        self._dirty = asyncio.Event()
        self._registry: ResumableRegistry[ItemKey, Item] = ResumableRegistry(
            history_id=history_id,
            meter=meter,
            rpc_method="twinlog.api.checkpoint.v1.CheckpointService/WatchCheckpoints",
            history_size=history_size,
            conflate=True,
        )
        for parts in self._flows:
            parts.checkpointer.table.on_change = self._dirty.set

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: publish changes until `stop`."""
        self.publish()
        while not stop.is_set():
            await wait_for_any(stop, self._dirty)
            self.publish()

    def publish(self) -> None:
        """Publish the present content of the tables."""
        self._dirty.clear()
        for parts in self._flows:
            changes = parts.checkpointer.table.take_changes()
            for (group, partition), row in changes.items():
                if row is None:
                    self._registry.remove((parts.flow, group, partition))
            self._registry.put((parts.flow, "", None), flow_progress(parts))
            for (group, partition), row in changes.items():
                if row is not None:
                    self._registry.put((parts.flow, group, partition), row)

    @property
    def token(self) -> bytes:
        return self._registry.token

    def watch(
        self, token: bytes, *, stop: asyncio.Event, flow: Flow | None = None, group: str = ""
    ) -> AsyncGenerator[list[Event[ItemKey, Item]], None]:
        """As ResumableRegistry.watch_batches: of one flow or all flows, of one group or all groups."""

        def selects(key: ItemKey) -> bool:
            of_flow, of_group, partition = key
            return flow in (None, of_flow) and (partition is None or group in ("", of_group))

        return self._registry.watch_batches(
            token, stop=stop, selects=selects, pause_seconds=self._pause_seconds
        )
