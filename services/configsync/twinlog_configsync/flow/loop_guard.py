"""Keeps flows that keep topic names from copying a topic in a loop, whatever rules are in force.

When the file is read, only samples of its patterns are compared. A rule that was changed live, or a topic
that is created later, may be selected by flows that form a ring. So each pass asks about each topic.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from twinlog.errors import ConfigError
from twinlog.loops import ring_through, round_text
from twinlog.model import Flow
from twinlog.selection import TopicSelector
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
