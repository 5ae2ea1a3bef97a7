"""Puts the rules that were changed while the flows run into effect: groups, intervals, committing of offsets.

Which topics are checkpointed follows from configsync's registry.
"""

import asyncio
from dataclasses import dataclass

import structlog

from twinlog.config import Configuration
from twinlog.errors import ConfigError
from twinlog.service.rules_client import RulesWatch, flow_in_effect
from twinlog.service.runtime import wait_for_any
from twinlog_checkpoint.checkpointer import Checkpointer
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.group_syncer import GroupSyncer

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class RulesFollower:
    """One flow."""

    configuration: Configuration
    rules: RulesWatch
    checkpointer: Checkpointer
    syncer: GroupSyncer

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: follow every change until `stop`."""
        flow = self.checkpointer.entry.flow
        changed = self.rules.subscribe()
        followed = dict(self.rules.values(flow))
        while not stop.is_set():
            await wait_for_any(stop, changed)
            changed.clear()
            values = dict(self.rules.values(flow))
            if values == followed:
                continue
            try:
                config = await asyncio.to_thread(flow_in_effect, self.configuration, flow, values)
                self.follow(checkpoint_flow(config))
            except ConfigError as error:
                _log.warning(
                    "changed_rules_unusable", flow=str(flow), reason=error.reason, message=str(error)
                )
            followed = values

    def follow(self, entry: CheckpointFlow) -> None:
        """Take over what may change while the flow runs."""
        self.checkpointer.follow(entry)
        self.syncer.follow(
            enabled=entry.settings.sync_group_offsets_enabled,
            interval_seconds=entry.settings.sync_group_offsets_interval_seconds,
        )
