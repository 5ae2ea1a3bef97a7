"""Which topics of a flow get checkpoints, and why others do not."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from twinlog.model import Flow
from twinlog.selection import TopicSelector
from twinlog.service.feeds.replicated_topics import ReplicatedTopic

_FIRST_GENERATION = 1


class CopyIdentity(Enum):
    """Whether a topic and its copy are the same two topics that the flow has been copying."""

    UNKNOWN = "UNKNOWN"
    """configsync does not report it, or has not noticed yet that one of them was created again."""
    CURRENT = "CURRENT"
    """They are the same; the source topic was created again at some time."""
    ORIGINAL = "ORIGINAL"
    """They are the same, and every recorded offset of the source topic belongs to this log."""


class KnownTopics(Protocol):
    """What configsync knows of a flow's topics. Implemented by `twinlog.service.feeds.registry.Decisions`."""

    def settled(self, flow: Flow) -> bool: ...

    def topics(self, flow: Flow) -> Mapping[str, object]:
        """By source topic."""
        ...

    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]:
        """The topics to which records are routed one by one, by the names that they have on the source."""
        ...


class TopicChoice:
    """configsync's registry decides once it is known; until then the topic filter decides, by the rules that
    apply now.

    The filter alone is MM2's rule: internal topics and cycles have no offset syncs anyway. The flow
    does not select copies of the target's own topics, but their groups can move back, so the filter decides
    about them.
    """

    def __init__(self, selector: Callable[[], TopicSelector], known: KnownTopics) -> None:
        """`selector` is asked each time, because rules change while the flow runs."""
        self._selector_now = selector
        self._known = known

    @property
    def _selector(self) -> TopicSelector:
        return self._selector_now()

    def refusal(self, topic: str) -> str | None:
        """Why the topic gets no checkpoints; None when it does."""
        flow = self._selector.flow
        if topic in self._known.routes(flow):
            return None
        filtered = self._selector.topic_filter.judge_topic(topic).included
        if not self._known.settled(flow) or self._comes_from_target(topic):
            return None if filtered else self._selector.decide(topic).rule
        if topic in self._known.topics(flow):
            return None
        decision = self._selector.decide(topic)
        return (
            f"it is not among the topics that configsync has for {flow}"
            if decision.selected
            else decision.rule
        )

    def why_never_copied(self, topic: str) -> str | None:
        """The rule that excludes a checkpointed topic from being copied (internal, a cycle); None when there
        is none."""
        decision = self._selector.decide(topic)
        return None if decision.selected or self.is_route(topic) else decision.rule

    def is_route(self, name: str) -> bool:
        """Whether records of a topic go to the copy that a topic of this name would have."""
        return name in self._known.routes(self._selector.flow)

    def routes(self) -> Mapping[str, Sequence[str]]:
        """The routes that records take, by their topic."""
        found: dict[str, list[str]] = {}
        for name, route in self._known.routes(self._selector.flow).items():
            found.setdefault(route.routed_from, []).append(name)
        return found

    def generation(self, topic: str) -> int | None:
        """How often configsync has seen a source topic created; None = it does not know the topic."""
        known = self._known.topics(self._selector.flow).get(topic)
        return known.generation if isinstance(known, ReplicatedTopic) else None

    def identity(self, topic: str, *, source_id: str, target_id: str) -> CopyIdentity:
        """Compare a topic and its copy with these ids; "" (brokers without ids) proves nothing."""
        known = self._known.topics(self._selector.flow).get(topic)
        if not isinstance(known, ReplicatedTopic) or not source_id or not target_id:
            return CopyIdentity.UNKNOWN
        if (known.source_topic_id, known.target_topic_id) != (source_id, target_id):
            return CopyIdentity.UNKNOWN
        return CopyIdentity.ORIGINAL if known.generation == _FIRST_GENERATION else CopyIdentity.CURRENT

    def _comes_from_target(self, topic: str) -> bool:
        return self._selector.policy.topic_source(topic) == self._selector.flow.target
