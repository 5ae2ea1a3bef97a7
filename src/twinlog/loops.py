"""Whether the flows of a file could send records round for ever. Pure.

Under a policy that keeps names a copy cannot be told from an original. A topic that every flow of a ring
selects (A->B and B->A, or over a third cluster) is therefore copied back, and again, without end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, permutations

from twinlog.config import Configuration
from twinlog.errors import ConfigError
from twinlog.filters.samples import samples
from twinlog.model import ClusterAlias
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector

_MOST_CANDIDATES = 500
Ring = tuple[TopicSelector, ...]


def ring_of(selectors: Iterable[TopicSelector], topic: str) -> Ring | None:
    """The flows over which a topic of this name comes back to where it was, from the smallest cluster on;
    None when it does not. Takes as long as there are flows.
    """
    onward: dict[ClusterAlias, list[TopicSelector]] = {}
    for selector in selectors:
        if _takes(selector, topic):
            onward.setdefault(selector.flow.source, []).append(selector)
    done: set[ClusterAlias] = set()
    for start in sorted(onward):
        ring = _closed_way(onward, start, [], done)
        if ring is not None:
            first = min(range(len(ring)), key=lambda at: ring[at].flow.source)
            return (*ring[first:], *ring[:first])
    return None


def _closed_way(
    onward: Mapping[ClusterAlias, Sequence[TopicSelector]],
    here: ClusterAlias,
    way: list[TopicSelector],
    done: set[ClusterAlias],
) -> Ring | None:
    """`done`: clusters from which no way comes back, to be left out and added to."""
    for selector in onward.get(here, ()):
        target = selector.flow.target
        passed = [each.flow.source for each in way] + [here]
        if target in passed:
            return (*way[passed.index(target) :], selector)
        if target not in done:
            ring = _closed_way(onward, target, [*way, selector], done)
            if ring is not None:
                return ring
    done.add(here)
    return None


def _takes(selector: TopicSelector, topic: str) -> bool:
    """The flow selects the name, and its copy has it too."""
    policy = selector.policy
    if policy.tracks_topic_sources or not selector.selects(topic):
        return False
    return policy.format_remote_topic(selector.flow.source, topic) == topic


def ring_text(ring: Ring) -> str:
    return " and ".join(str(selector.flow) for selector in ring)


def refuse_loops(configuration: Configuration) -> None:
    """Raise ConfigError (reason LOOP) that names the file, the flows and their keys when a topic, whether or
    not it exists, would go round. Flows that this process does not run count as well.

    Patterns that meet only in names that no sample shows pass; `twinlog preflight` looks at the topics that
    are there.
    """
    whole = _whole_file(configuration)
    selectors = [topic_selector(entry) for entry in whole.enabled_flows]
    keeping = {each.flow for each in selectors if not each.policy.tracks_topic_sources}
    patterns = [entry.configsync.topics.include for entry in whole.enabled_flows if entry.flow in keeping]
    for topic in _candidates(patterns):
        ring = ring_of(selectors, topic)
        if ring is None:
            continue
        keys = ", ".join(f"{selector.flow}.topics" for selector in ring)
        raise ConfigError(
            f"{configuration.file}: {ring_text(ring)} would copy topics round for ever ({topic!r}, for "
            "example): they keep names (IdentityReplicationPolicy), and each selects what the other writes. "
            f"Make {keys} distinct, exclude the topics in one of the flows (topics.exclude), or use the "
            "default replication.policy.class",
            reason="LOOP",
            metadata={"file": configuration.file, "keys": keys, "topic": topic},
        )


def _candidates(patterns: Iterable[Iterable[str]]) -> Iterator[str]:
    """Samples of every pattern, then two of them joined: `a.*` and `.*b` meet in `ab`."""
    found = sorted({name for each in patterns for pattern in each for name in samples(pattern)}, key=len)
    joined = ("".join(pair) for pair in permutations(found, 2))
    yield from islice(chain(found, joined), _MOST_CANDIDATES)


def _whole_file(configuration: Configuration) -> Configuration:
    """With the flows that other processes run. A file that cannot be read whole (a secret of another site's
    cluster is not here) is judged by the flows of this process.
    """
    if configuration.base is None:
        return configuration
    try:
        return configuration.base.whole_file()
    except ConfigError:
        return configuration
