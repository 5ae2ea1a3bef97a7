"""Where records go that take a route, and whether they may."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import structlog

from twinlog.errors import StateError
from twinlog.model import TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import StoredRoute, is_gone
from twinlog.service.feeds.routes import Routes
from twinlog.transforms.chain import MOST_ROUTES
from twinlog_source.config import SourceFlow
from twinlog_source.partitions.orders import Route
from twinlog_source.reasons import PartitionReason

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class RouteBook:
    """Invariant: a route is on the log before a record takes it, and is one topic's, whoever asks for it."""

    flow: SourceFlow
    decisions: Decisions
    table: Routes
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Nobody reads the rows between a look at them and what is written then."""

    async def want(self, partition: TopicPartition, names: Collection[str]) -> Collection[Route]:
        """The topics of these routes, as configsync has seen them; one that is new is written down. Raises
        StateError (ROUTE_REFUSED), and as `Table.load`."""
        topic, flow = partition.topic, self.flow.flow
        known, ever = self.decisions.routes(flow), self.decisions.ever_routed(flow)
        if any(
            name not in known or known[name].routed_from != topic or is_gone(known[name]) for name in names
        ):
            async with self._busy:
                stored = await self.table.load()
                self._require(topic, names, stored)
                wanted = {
                    name: StoredRoute(topic, ever[name].target_topic_id)
                    if name in ever and is_gone(ever[name])
                    else stored.get(name, StoredRoute(topic))
                    for name in names
                }
                news = [name for name, route in wanted.items() if route != stored.get(name)]
                await self.table.put(wanted)
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

    def _require(self, topic: str, names: Collection[str], rows: Mapping[str, StoredRoute]) -> None:
        """Two topics never share a route: two writers would mix their records, and syncs."""
        copied = self.decisions.topics(self.flow.flow)
        for name in names:
            owner = rows[name].source_topic if name in rows else topic
            if name in copied:
                why = f"{name} is a topic of the source, with a copy of its own"
            elif owner != topic:
                why = f"records of {owner} go there"
            else:
                why = self.flow.selector.refuses_route(name)
            if why:
                raise _refused(topic, name, why)
        ever = self.decisions.ever_routed(self.flow.flow)
        routes = {
            name
            for name, route in rows.items()
            if route.source_topic == topic and not route.is_gone(ever.get(name))
        }
        if len(routes | set(names)) > MOST_ROUTES:
            why = f"the topic has {MOST_ROUTES} routes already: delete topics of the target that nobody reads"
            raise _refused(topic, next(iter(names)), why)


def _refused(topic: str, name: str, why: str) -> StateError:
    return StateError(
        f"a record of {topic} would go to the copy of {name!r}: {why}", reason=PartitionReason.ROUTE_REFUSED
    )
