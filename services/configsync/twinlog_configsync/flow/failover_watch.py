"""Whether passes may take something away from applications that work on the target after a failover."""

from collections.abc import Collection
from dataclasses import dataclass, field

from twinlog.errors import TwinlogError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.moves.record import Moves
from twinlog.moves.stored import Key, MovesCodec, Row, moves_of
from twinlog.policy.internal_topics import failover_topic
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.rules import FlowRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """What the checkpoint service's record of moves says now."""

    words: str = ""
    """Which failover is running or in effect; "" when there is none."""
    fences: frozenset[AclBinding] = frozenset()
    """The ACLs by which moves block writers, on either cluster."""


def failover_of(moves: Moves) -> Failover:
    """While groups move, and until they have moved back, a topic that is missing on the source is no reason
    to delete the copy with which they work. A run that was given up before it committed an offset holds
    nothing. Pure."""
    words, run, flow = "", moves.run, moves.flow
    if run is not None and moves.interrupted:
        words = (
            f"a {run.kind} is running or was interrupted ({run.state}): `twinlog {run.kind} run '{flow}'`"
            f" continues it, `twinlog {run.kind} give-up '{flow}'` gives it up"
        )
    elif run is not None and run.on_target:
        given_up = f" (the last {run.kind} was given up)" if run.aborted else ""
        back = f"`twinlog failback run '{flow}'` moves them back"
        words = f"groups were moved to {flow.target} and not back{given_up}: {back}"
    fences = frozenset(fence for cluster in moves.fences for fence in moves.fenced(cluster))
    return Failover(words=words, fences=fences)


@dataclass(slots=True)
class FailoverWatch:
    target: KafkaCluster
    flow: Flow
    seen: Failover = field(default_factory=Failover)
    """What the record of moves said when it was last read."""
    _table: Table[Key, Row] = field(init=False)

    def __post_init__(self) -> None:
        topic = failover_topic(self.flow.source)
        self._table = Table(cluster=self.target, topic=topic, codec=MovesCodec(self.flow))

    async def look(self, scopes: Collection[Scope], rules: FlowRules, memory: Memory) -> str:
        """Which failover is running or in effect, as far as a pass over these scopes has to know; "" where
        there is none. A record that cannot be read counts as a failover, because deletions cannot be
        undone."""
        if not self._may_take_away(scopes, rules, memory):
            return ""
        try:
            self.seen = failover_of(moves_of(self.flow, await self._table.load()))
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
