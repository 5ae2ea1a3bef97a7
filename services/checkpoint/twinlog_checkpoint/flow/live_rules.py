"""Applies rules that change while flows run: topics, groups, intervals, whether offsets are committed."""

import asyncio
from dataclasses import dataclass

import structlog

from twinlog.config import Configuration
from twinlog.errors import ConfigError, FatalKafkaError, WireFormatError
from twinlog.service.feeds.rules import RulesWatch, flow_in_effect, follow_rules
from twinlog.service.feeds.stored_rules import stored_rules
from twinlog_checkpoint.config import CheckpointFlow, checkpoint_flow
from twinlog_checkpoint.groups.checkpointer import Checkpointer
from twinlog_checkpoint.groups.syncer import GroupSyncer

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
        await follow_rules(
            self.rules,
            self.configuration,
            flow,
            lambda config: self.follow(checkpoint_flow(config)),
            stop,
        )

    async def learn(self) -> None:
        """Apply the rules that configsync has stored, because configsync may be down now; rules from
        configsync itself take precedence.

        Raises KafkaError while the target does not answer. If the stored rules cannot be read, this is logged
        and the file applies.
        """
        flow = self.checkpointer.entry.flow
        try:
            stored = await stored_rules(self.checkpointer.target, flow.source)
            values = self.rules.seed(flow, stored)
            while values:
                config = await asyncio.to_thread(flow_in_effect, self.configuration, flow, values)
                if values == self.rules.values(flow):
                    self.follow(checkpoint_flow(config))
                    break
                # configsync has sent newer ones meanwhile.
                values = self.rules.values(flow)
        except (FatalKafkaError, WireFormatError, ConfigError) as error:
            _log.warning("stored_rules_unusable", flow=str(flow), reason=error.reason, message=str(error))

    def follow(self, entry: CheckpointFlow) -> None:
        """Apply the rules that may change while the flow runs."""
        self.checkpointer.follow(entry)
        self.syncer.follow(
            enabled=entry.settings.sync_group_offsets_enabled,
            interval_seconds=entry.settings.sync_group_offsets_interval_seconds,
        )
