"""Keeps flows that keep topic names from copying a topic in a loop, whatever rules are in force.

When the file is read, only samples of its patterns are compared. A rule that was changed live, or a topic
that is created later, may be selected by flows that form a ring. So each pass asks about each topic.

Whether passes may take something away from applications that work on the target after a failover.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from twinlog.errors import ConfigError, TwinlogError
from twinlog.kafka.ports import AclBinding, KafkaCluster
from twinlog.kafka.table import Table
from twinlog.loops import ring_through, round_text
from twinlog.model import Flow
from twinlog.moves.record import Moves
from twinlog.moves.stored import Key, MovesCodec, Row, moves_of
from twinlog.policy.internal_topics import failover_topic
from twinlog.selection import TopicSelector
from twinlog.service.feeds.replicated_topics import TopicState
from twinlog_configsync.model.memory import Memory
from twinlog_configsync.model.schedule import Scope
from twinlog_configsync.planning.rules import FlowRules


class Partner(Protocol):
    """Another flow of the file, over which a copy may come back."""

    @property
    def flow(self) -> Flow: ...

    @property
    def own_rules(self) -> FlowRules:
        """The rules in force, as this process knows them."""
        ...

    @property
    def known_names(self) -> Collection[str]:
        """The names of topics on its source."""
        ...

    async def know(self) -> None:
        """Read what another process has stored, if it is that one's flow."""
        ...


@dataclass(slots=True)
class LoopGuard:
    partners: Sequence[Partner] = ()
    _met: tuple[TopicSelector, ...] = field(default=())

    def meet(self) -> bool:
        """Take over the partners' present rules; whether they have changed."""
        before, self._met = self._met, self._present()
        return list(map(id, before)) != list(map(id, self._met))

    def _present(self) -> tuple[TopicSelector, ...]:
        return tuple(each.own_rules.selector for each in self.partners)

    def guarded(self, rules: FlowRules) -> FlowRules:
        """The rules, with topics left out that the partners would copy back."""
        if not self._met:
            return rules
        own, others = rules.selector, self._met

        def comes_back(topic: str) -> str:
            ring = ring_through(own, others, topic)
            return "" if ring is None else round_text(ring, topic)

        def copies_back(topic: str) -> FlowRules | None:
            there = own.policy.format_remote_topic(own.flow.source, topic)
            for each in back:
                selector = each.selector
                is_same = selector.policy.format_remote_topic(selector.flow.source, there) == topic
                if is_same and selector.selects(there):
                    return each
            return None

        back = [
            each.own_rules
            for each in self.partners
            if (each.flow.source, each.flow.target) == (own.flow.target, own.flow.source)
        ]
        selector = replace(own, comes_back=comes_back)
        return replace(
            rules,
            selector=selector,
            acls=replace(rules.acls, selects_topic=selector.selects),
            copies_back=copies_back,
        )

    def guarded_now(self, rules: FlowRules) -> FlowRules:
        """As `guarded`, by the partners' present rules."""
        return LoopGuard(self.partners, self._present()).guarded(rules)

    def refuse(self, rules: FlowRules, names: Collection[str]) -> None:
        """Raise ConfigError (LOOP) if these rules would copy a known topic in a loop, on whichever cluster of
        the ring it is."""
        others = self._present()
        known = {*names, *rules.named_topics}
        for partner in self.partners:
            known |= {*partner.known_names, *partner.own_rules.named_topics}
        for topic in sorted(known):
            ring = ring_through(rules.selector, others, topic)
            if ring is not None:
                raise ConfigError(round_text(ring, topic), reason="LOOP", metadata={"topic": topic})


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverSeen:
    """What the checkpoint service's record of moves says now."""

    words: str = ""
    """Which failover is running or in effect; "" when there is none."""
    fences: frozenset[AclBinding] = frozenset()
    """The ACLs by which moves block writers, on either cluster."""


def failover_of(moves: Moves) -> FailoverSeen:
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
    return FailoverSeen(words=words, fences=fences)


@dataclass(slots=True)
class FailoverWatch:
    target: KafkaCluster
    flow: Flow
    seen: FailoverSeen = field(default_factory=FailoverSeen)
    """What the record of moves said when it was last read."""
    _table: Table[Key, Row] = field(init=False)

    def __post_init__(self) -> None:
        topic = failover_topic(self.flow.source)
        self._table = Table(cluster=self.target, topic=topic, codec=MovesCodec(self.flow), keeps=True)

    async def look(self, scopes: Collection[Scope], rules: FlowRules, memory: Memory) -> str:
        """Which failover is running or in effect, as far as a pass over these scopes has to know; "" where
        there is none. A record that cannot be read counts as a failover, because deletions cannot be
        undone."""
        if not self._may_take_away(scopes, rules, memory):
            return ""
        try:
            self.seen = failover_of(moves_of(self.flow, await self._table.load()))
        except TwinlogError as error:
            self.seen = FailoverSeen(
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
