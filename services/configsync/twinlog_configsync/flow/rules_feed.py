"""The changed rules of all flows, for watchers."""

import asyncio
from collections.abc import AsyncGenerator

from opentelemetry.metrics import Meter

from twinlog.model import Flow
from twinlog.service.feeds.rules_record import RulesRecord
from twinlog.service.feeds.server import Event, ResumableRegistry


class RulesBoard:
    """The state behind WatchRules. Use it from one event loop only."""

    def __init__(self, *, history_id: str, meter: Meter) -> None:
        self._registry: ResumableRegistry[Flow, RulesRecord] = ResumableRegistry(
            history_id=history_id,
            meter=meter,
            rpc_method="twinlog.api.configsync.v1.ConfigSyncService/WatchRules",
        )

    def publish(self, flow: Flow, rules: RulesRecord | None) -> None:
        """Publish the rules of the flow that differ from its file; None when there never were any."""
        if rules is not None:
            self._registry.put(flow, rules)
        self._registry.mark(flow)

    def watch(
        self, token: bytes, *, stop: asyncio.Event, is_peer: bool = False
    ) -> AsyncGenerator[Event[Flow, RulesRecord], None]:
        """As ResumableRegistry.watch; a flow's mark means that its registry was read."""
        return self._registry.watch(token, stop=stop, is_peer=is_peer)
