"""Where records go that take a route, and whether they may."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from twinlog.errors import StateError
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic
from twinlog.service.feeds.routes import Routes
from twinlog.transforms.chain import MOST_ROUTES
from twinlog_source.config import SourceFlow
from twinlog_source.partitions.orders import Route
from twinlog_source.reasons import PartitionReason

log = structlog.get_logger(__name__)


class KnownTopics(Protocol):
    """As `Decisions`."""

    def topics(self, flow: Flow) -> Mapping[str, ReplicatedTopic]: ...

    def routes(self, flow: Flow) -> Mapping[str, ReplicatedTopic]: ...


@dataclass(slots=True, kw_only=True)
class RouteBook:
    """Invariant: a route is on the log before a record takes it, and is one topic's, whoever asks for it."""

    flow: SourceFlow
    decisions: KnownTopics
    table: Routes
    _promised: dict[str, str] = field(default_factory=dict)
    """As the rows of the table, before they are on the log."""

    async def want(self, partition: TopicPartition, names: Collection[str]) -> Collection[Route]:
        """The topics of these routes, as configsync has seen them; one that is new is written down. Raises
        StateError (ROUTE_REFUSED), and as `Table.load`."""
        topic, flow = partition.topic, self.flow.flow
        known = self.decisions.routes(flow)
        if any(name not in known or known[name].routed_from != topic for name in names):
            stored = await self.table.load()
            self._require(topic, names, {**self._promised, **stored})
            self._promised |= dict.fromkeys(names, topic)
            news = [name for name in names if name not in stored]
            await self.table.put(dict.fromkeys(news, topic))
            for name in news:
                log.info("route_begins", flow=str(flow), topic=topic, route=name)
        policy = self.flow.policy
        return [
            Route(
                name=name,
                topic=policy.format_remote_topic(flow.source, name),
                partition_count=known[name].target_partition_count if name in known else 0,
            )
            for name in names
        ]

    def _require(self, topic: str, names: Collection[str], rows: Mapping[str, str]) -> None:
        """Two topics never share a route: two writers would mix their records, and syncs."""
        copied = self.decisions.topics(self.flow.flow)
        for name in names:
            owner = rows.get(name, topic)
            if name in copied:
                why = f"{name} is a topic of the source, with a copy of its own"
            elif owner != topic:
                why = f"records of {owner} go there"
            else:
                why = self.flow.selector.refuses_route(name)
            if why:
                raise _refused(topic, name, why)
        routes = {name for name, owner in rows.items() if owner == topic} | set(names)
        if len(routes) > MOST_ROUTES:
            raise _refused(topic, next(iter(names)), f"the topic has {MOST_ROUTES} routes already")


def _refused(topic: str, name: str, why: str) -> StateError:
    return StateError(
        f"a record of {topic} would go to the copy of {name!r}: {why}", reason=PartitionReason.ROUTE_REFUSED
    )
