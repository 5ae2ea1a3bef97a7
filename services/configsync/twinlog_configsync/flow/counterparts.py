"""Which topics a flow copies, and under which names; decided once for each name."""

from collections.abc import Collection
from dataclasses import dataclass, field

from twinlog.selection import TopicReason, TopicSelector


@dataclass(slots=True)
class Counterparts:
    """Caches decisions, because thousands of topics are checked every few seconds, and rules rarely
    change."""

    _selector: TopicSelector | None = None
    _decided: dict[str, str | None] = field(default_factory=dict)
    """Source name → target name; None = not selected."""
    loops: dict[str, str] = field(default_factory=dict)
    """Source name → why it is not copied: other flows would copy it back."""

    @property
    def names(self) -> Collection[str]:
        """The names that were decided last."""
        return self._decided.keys()

    def of(self, names: Collection[str], selector: TopicSelector) -> dict[str, str]:
        """Source name → target name of the topics that the rules select. Cached decisions about other names
        are dropped."""
        before = self._decided if selector is self._selector else {}
        loops = self.loops if before else {}
        self._selector, self._decided, self.loops = selector, {}, {}
        for name in sorted(names):
            if name in before:
                self._decided[name] = before[name]
                if name in loops:
                    self.loops[name] = loops[name]
            else:
                decision = selector.decide(name)
                self._decided[name] = decision.remote_topic if decision.selected else None
                if decision.reason is TopicReason.LOOP:
                    self.loops[name] = decision.rule
        return {name: remote for name, remote in self._decided.items() if remote is not None}
