"""The transforms of a flow, for each topic of its source. Pure."""

from collections.abc import Mapping

from twinlog.batches.transformed import Transform
from twinlog.model import ClusterAlias
from twinlog.policy.configured import policy_from_config
from twinlog.policy.renaming import RenamingPolicy
from twinlog.transforms import BoundChain, chain_from_config


class TopicTransforms:
    """What happens to the records of each topic; transforms see them under the name of the copy."""

    def __init__(self, config: Mapping[str, str], source: ClusterAlias) -> None:
        """`config`: as for `policy_from_config`, and raises as it does."""
        self._chain = chain_from_config(config)
        self._policy = policy_from_config({**config, "source.cluster.alias": source})
        self._source = source
        self._bound: dict[str, BoundChain] = {}

    def of(self, topic: str) -> BoundChain:
        """The transforms of a topic of the source; heartbeats and internal topics have none."""
        bound = self._bound.get(topic)
        if bound is None:
            bound = self._bound[topic] = self._bind(topic)
        return bound

    def seen_name(self, topic: str) -> str:
        """The name under which transforms see a topic's records."""
        policy = self._policy
        if isinstance(policy, RenamingPolicy):
            return policy.unrouted(self._source, topic)
        return policy.format_remote_topic(self._source, topic)

    def changes(self, topic: str) -> Transform | None:
        """What is done to the records of a topic of the source; None if they are copied unchanged."""
        chain = self.of(topic)
        return chain.apply if chain.changes else None

    def drops_records(self, topic: str) -> bool:
        return self.of(topic).drops_records

    def _bind(self, topic: str) -> BoundChain:
        name = self.seen_name(topic)
        if self._policy.is_heartbeats_topic(topic) or self._policy.is_internal_topic(topic):
            return BoundChain(name)
        return self._chain.bind(name)
