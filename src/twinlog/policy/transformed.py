"""The transforms of a flow, for each topic of its source. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.transformed import ChangeRecords, RouteRecords
from twinlog.errors import WireFormatError
from twinlog.model import ClusterAlias, TopicPartition
from twinlog.policy.configured import policy_from_config
from twinlog.policy.rename import RenamingPolicy
from twinlog.transforms import BoundChain, chain_from_config
from twinlog.transforms.chain import MOST_ROUTES
from twinlog.transforms.expressions import PROVENANCE, TOPICS, Expressions, expressions_of, origin_prefix

ROUTE_REFUSED = "ROUTE_REFUSED"
_CHAIN_KEYS = ("transforms", "predicates")


def changes_records(config: Mapping[str, str]) -> bool:
    """Whether the flow of this configuration changes, drops or renames records of some topic."""
    return "transforms" in config or TOPICS in config


class TopicTransforms:
    """Binds the chain of a flow to each of its topics."""

    def __init__(self, config: Mapping[str, str], source: ClusterAlias) -> None:
        """`config`: as for `policy_from_config`, and raises as it does."""
        self._config = config
        self._chain = chain_from_config(config)
        self._expressions = expressions_of(config)
        self._policy = policy_from_config({**config, "source.cluster.alias": source})
        self._source = source
        self._bound: dict[str, BoundChain] = {}
        self._route_of: dict[str, str] = {}
        """The route by the name of its topic on the target."""

    def of(self, topic: str) -> BoundChain:
        """The chain for a topic of the source; it is empty for heartbeats and internal topics."""
        bound = self._bound.get(topic)
        if bound is None:
            bound = self._bound[topic] = self._bind(topic)
        return bound

    def _name_of_copy(self, topic: str) -> str:
        """Before any router: transforms see a record under this name."""
        policy = self._policy
        if isinstance(policy, RenamingPolicy):
            return policy.unrouted(self._source, topic)
        return policy.format_remote_topic(self._source, topic)

    def changes(self, topic: str) -> ChangeRecords | None:
        """What is done to the records of a topic of the source; None if they are copied unchanged."""
        chain = self.of(topic)
        return chain.apply if chain.changes or chain.fork is not None else None

    def routes(self, topic: str) -> RouteRecords | None:
        """The same, for a topic whose records may go to other topics than its copy; None for others."""
        return None if (chain := self.of(topic)).fork is None else partial(self._routed, chain)

    @property
    def may_route(self) -> bool:
        """Whether records of some topic may go to other topics than its copy."""
        by_spark = self._expressions is not None and self._expressions.routes_records
        return by_spark or any(step.routes_records for step in self._chain.steps)

    def routes_records(self, topic: str) -> bool:
        """Whether records of a topic of the source may go to other topics than its copy."""
        found = self.expressions(topic)
        return self.of(topic).fork is not None or (found is not None and found.routes_records)

    def _routed(self, chain: BoundChain, records: Sequence[OpenRecord]) -> Iterator[tuple[str, OpenRecord]]:
        for name, record in chain.route(records):
            yield "" if name == chain.topic else self._route(name), record

    def _route(self, name: str) -> str:
        """A route has the name of a topic of the source whose copy is called `name`: so offset syncs,
        checkpoints and clients find it. Raises WireFormatError (ROUTE_REFUSED) for another name."""
        route = self._route_of.get(name)
        if route is None:
            route = self._policy.upstream_topic(name)
            if route is None or self._policy.format_remote_topic(self._source, route) != name:
                raise WireFormatError(
                    f"a record would go to {name!r}, which is no name of a copy from {self._source}",
                    reason=ROUTE_REFUSED,
                )
            if len(self._route_of) >= MOST_ROUTES:
                self._route_of.clear()
            self._route_of[name] = route
        return route

    def changes_records(self, topic: str) -> bool:
        """Whether the copy may have other records than the topic."""
        return self.changes(topic) is not None or self.expressions(topic) is not None

    def changes_content(self, topic: str) -> bool:
        """Whether a record may be missing from the copy and from all routes, or be another one there."""
        if self.of(topic).fork is None or self.expressions(topic) is not None:
            return self.changes_records(topic)
        return not all(step.is_router for step in self._chain.steps)

    def dropped_by(self, topic: str) -> str:
        """The key by which records of a topic may be missing from its copy; empty: none."""
        if self.expressions(topic) is not None:
            return TOPICS
        return _CHAIN_KEYS[0] if self.of(topic).drops_records else ""

    def expressions(self, topic: str) -> Expressions | None:
        """What Spark does to the records of a topic of the source, after everything else."""
        found = self._expressions
        if found is None or self._is_own(topic) or not found.matches(topic):
            return None
        return found

    def digest(self, topic: str) -> str:
        """Names what is done to the records of a topic of the source; empty if they are copied as they are.
        Expressions may hold secrets, so this is kept of them where others can read."""
        said: dict[str, Any] = {}
        if self.changes(topic) is not None:
            said = {key: text for key, text in self._config.items() if key.startswith(_CHAIN_KEYS)}
        found = self.expressions(topic)
        if found is not None:
            said |= {**found.written, PROVENANCE: found.names_origins}
        if not said:
            return ""
        return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def origin(self, partition: TopicPartition) -> bytes | None:
        """With which the origins of the copies of a partition's records begin; None = they do not name
        them."""
        found = self.expressions(partition.topic)
        return origin_prefix(self._source, partition) if found is not None and found.names_origins else None

    def _is_own(self, topic: str) -> bool:
        return self._policy.is_heartbeats_topic(topic) or self._policy.is_internal_topic(topic)

    def _bind(self, topic: str) -> BoundChain:
        name = self._name_of_copy(topic)
        if self._is_own(topic):
            return BoundChain(name)
        return self._chain.bind(name)
