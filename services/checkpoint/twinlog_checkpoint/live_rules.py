"""Puts the rules that were changed while the flows run into effect: groups, intervals, committing of offsets.

Which topics are checkpointed follows from configsync's registry.
"""

import asyncio
from dataclasses import dataclass

from twinlog.config import Configuration
from twinlog.service.rules_client import RulesWatch, follow_rules
from twinlog_checkpoint.checkpointer import Checkpointer
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.group_syncer import GroupSyncer


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
        await follow_rules(
            self.rules,
            self.configuration,
            flow,
            lambda config: self.follow(checkpoint_flow(config)),
            stop,
        )

    def follow(self, entry: CheckpointFlow) -> None:
        """Take over what may change while the flow runs."""
        self.checkpointer.follow(entry)
        self.syncer.follow(
            enabled=entry.settings.sync_group_offsets_enabled,
            interval_seconds=entry.settings.sync_group_offsets_interval_seconds,
        )
