"""Renames copies on top of any replication policy: by `twinlog.topic.rename`, and by Connect's RegexRouter.
Pure."""

from dataclasses import dataclass

from twinlog.model import ClusterAlias
from twinlog.policy.rename import NO_RENAMES, RenameMap
from twinlog.policy.replication import ReplicationPolicy, names_back
from twinlog.transforms import Step


@dataclass(frozen=True, slots=True)
class Route:
    """A router with the map that reads its names back."""

    step: Step
    back: RenameMap

    def undo(self, name: str) -> str:
        """The name before the router; the name itself if it made no such name."""
        before = self.back.undo(name)
        return before if self.step.routed(before) == name else name


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamingPolicy:
    """Names a topic by the map, then as `base` does, then by the routes. Heartbeats and internal topics keep
    their well-known names."""

    base: ReplicationPolicy
    renames: RenameMap = NO_RENAMES
    routes: tuple[Route, ...] = ()

    @property
    def tracks_topic_sources(self) -> bool:
        return self.base.tracks_topic_sources

    def format_remote_topic(self, source: ClusterAlias, topic: str) -> str:
        name = self.unrouted(source, topic)
        if self._is_renamed(topic):
            for route in self.routes:
                name = route.step.routed(name)
        return name

    def unrouted(self, source: ClusterAlias, topic: str) -> str:
        """The name of the copy before any route, under which transforms see its records."""
        name = self.renames.apply(topic) if self._is_renamed(topic) else topic
        return self.base.format_remote_topic(source, name)

    def topic_source(self, topic: str) -> ClusterAlias | None:
        return self.base.topic_source(self._before_routes(topic))

    def upstream_topic(self, topic: str) -> str | None:
        name = self.base.upstream_topic(self._before_routes(topic))
        return self.renames.undo(name) if name is not None and self._is_renamed(name) else name

    def original_topic(self, topic: str) -> str:
        if not self.tracks_topic_sources:
            return self.upstream_topic(topic) or topic
        return names_back(self, topic)[-1]

    def in_the_way(self, source: ClusterAlias, topic: str) -> str | None:
        """Another topic whose copy would have the same name as this one's; None without one."""
        if not self._is_renamed(topic):
            return None
        other = self.renames.in_the_way(topic)
        if other is None and self.routes:
            back = self.upstream_topic(self.format_remote_topic(source, topic))
            other = None if back == topic else back
        return other

    def _before_routes(self, topic: str) -> str:
        if not self._is_renamed(topic):
            return topic
        for route in reversed(self.routes):
            topic = route.undo(topic)
        return topic

    def _is_renamed(self, topic: str) -> bool:
        return bool(topic) and not self.is_heartbeats_topic(topic) and not self.is_internal_topic(topic)

    def heartbeats_topic(self) -> str:
        return self.base.heartbeats_topic()

    def offset_syncs_topic(self, alias: ClusterAlias) -> str:
        return self.base.offset_syncs_topic(alias)

    def checkpoints_topic(self, source: ClusterAlias) -> str:
        return self.base.checkpoints_topic(source)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.base.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self.base.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return self.base.is_mm2_internal_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.base.is_internal_topic(topic)
