"""Which topics a flow copies, and under which names; decided once for each name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.selection import TopicReason, TopicSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterparts:
    """Decided again when the rules change; a value, because it is computed in a thread that may outlive the
    pass that asked for it."""

    selector: TopicSelector | None = None
    decided: Mapping[str, str | None] = field(default_factory=dict)
    """Source name → target name; None = not selected."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Source name → why it is not copied: other flows would copy it back."""

    @property
    def selected(self) -> dict[str, str]:
        """Source name → target name of the topics that the rules select."""
        return {name: remote for name, remote in self.decided.items() if remote is not None}

    def of(self, names: Collection[str], selector: TopicSelector) -> "Counterparts":
        """Those of these names. Known decisions by the same rules are kept."""
        before = self.decided if selector is self.selector else {}
        decided: dict[str, str | None] = {}
        loops: dict[str, str] = {}
        for name in sorted(names):
            if name in before:
                decided[name] = before[name]
                if name in self.loops:
                    loops[name] = self.loops[name]
                continue
            decision = selector.decide(name)
            decided[name] = decision.remote_topic if decision.selected else None
            if decision.reason is TopicReason.LOOP:
                loops[name] = decision.rule
        return Counterparts(selector=selector, decided=decided, loops=loops)
