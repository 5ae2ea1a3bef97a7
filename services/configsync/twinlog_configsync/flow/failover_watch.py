"""Whether passes may take something away from applications that work on the target after a failover."""

from collections.abc import Collection
from dataclasses import dataclass, field

from twinlog.errors import TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow
from twinlog_configsync.model.entry import TopicState
from twinlog_configsync.model.failover_record import Failover, failover_in_effect
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.rules import FlowRules


@dataclass(slots=True)
class FailoverWatch:
    target: KafkaCluster
    flow: Flow
    seen: Failover = field(default_factory=Failover)
    """What the record of moves said when it was last read."""

    async def look(self, scopes: Collection[Scope], rules: FlowRules, memory: Memory) -> str:
        """Which failover is running or in effect, as far as a pass over these scopes has to know; "" where
        there is none. A record that cannot be read counts as a failover, because deletions cannot be
        undone."""
        if not self._may_take_away(scopes, rules, memory):
            return ""
        try:
            self.seen = await failover_in_effect(self.target, self.flow)
        except TwinlogError as error:
            self.seen = Failover(
                words=f"the record of the last failover cannot be read ({error.reason}: {error})"
            )
        return self.seen.words

    def _may_take_away(self, scopes: Collection[Scope], rules: FlowRules, memory: Memory) -> bool:
        """Whether a pass may delete topics, rights or quotas, or change configs, with which applications work
        after a failover. A failover that was seen is looked at by every pass, because it is told until it is
        over."""
        if self.seen.words or any(scope is not Scope.TOPICS for scope in scopes):
            return True
        return (
            Scope.TOPICS in scopes
            and rules.deletes.enabled
            and any(
                entry.selected and entry.state is TopicState.DELETED_AT_SOURCE
                for entry in memory.entries.values()
            )
        )
