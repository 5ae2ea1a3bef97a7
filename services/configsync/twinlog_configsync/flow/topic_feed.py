"""The selected topics of all flows, for watchers, in the order in which they changed."""

import asyncio
from collections.abc import AsyncGenerator

from opentelemetry.metrics import Meter

from twinlog.model import Flow
from twinlog.service.feeds.server import Event, ResumableRegistry
from twinlog_configsync.model.entry import TopicEntry
from twinlog_configsync.planning.registry import Entries

TopicKey = tuple[Flow, str]
"""A flow and a source topic; with "" the mark that the flow's selection is complete."""

_SETTLED = ""


class TopicBoard:
    """The state behind ListTopics and WatchTopics. Use it from one event loop only."""

    def __init__(self, *, history_id: str, meter: Meter) -> None:
        self._registry: ResumableRegistry[TopicKey, TopicEntry] = ResumableRegistry(
            history_id=history_id,
            meter=meter,
            rpc_method="twinlog.api.configsync.v1.ConfigSyncService/WatchTopics",
        )
        self._told: dict[Flow, frozenset[str]] = {}
        """The selected topics of each flow. With many flows, filtering all topics for each would cost more
        than the rest of a pass."""

    def publish(self, flow: Flow, entries: Entries) -> None:
        """Make these the flow's topics: publish new, changed and removed ones."""
        selected = {name: entry for name, entry in entries.items() if entry.selected}
        for name in self._told.get(flow, frozenset()) - selected.keys():
            self._registry.remove((flow, name))
        for name, entry in selected.items():
            self._registry.put((flow, name), entry)
        self._told[flow] = frozenset(selected)

    def settle(self, flow: Flow) -> None:
        """Publish that the flow's selection is complete. This is final: later changes are changes."""
        self._registry.mark((flow, _SETTLED))

    def topics(self, flow: Flow | None = None) -> list[tuple[Flow, TopicEntry]]:
        """Sorted by flow and source topic."""
        items = sorted(self._registry.items().items())
        return [(key[0], entry) for key, entry in items if flow in (None, key[0])]

    def settled(self, flow: Flow | None = None) -> list[Flow]:
        return sorted(key[0] for key in self._registry.marks() if flow in (None, key[0]))

    @property
    def token(self) -> bytes:
        return self._registry.token

    def watch(
        self, token: bytes, *, stop: asyncio.Event, flow: Flow | None = None, is_peer: bool = False
    ) -> AsyncGenerator[Event[TopicKey, TopicEntry], None]:
        """As ResumableRegistry.watch, of one flow or all."""
        return self._registry.watch(
            token, stop=stop, selects=lambda key: flow in (None, key[0]), is_peer=is_peer
        )
