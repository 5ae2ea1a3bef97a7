"""Whether the flows of a file could send records round for ever. Pure.

Under a policy that keeps names a copy cannot be told from an original. A topic that every flow of a ring
selects (A->B and B->A, or over a third cluster) is therefore copied back, and again, without end. Two aliases
may stand for one cluster: they are one place in a ring. Same addresses show it when the file is read, the
cluster ids once the clusters have answered.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, permutations
from typing import Final

from twinlog.config import Configuration
from twinlog.errors import ConfigError, StateError
from twinlog.filters.samples import samples
from twinlog.model import ClusterAlias, Flow
from twinlog.selection import TopicSelector
from twinlog.selection_configured import topic_selector

_MOST_CANDIDATES = 500
Ring = tuple[TopicSelector, ...]
Places = Mapping[ClusterAlias, ClusterAlias]
"""Of aliases that stand for one cluster: the first of them. Others are left out."""


def same_places(marks: Mapping[ClusterAlias, Collection[str]]) -> Places:
    """The aliases that share a mark: an address, or the cluster's id.

    >>> same_places({"A": {"a:9092"}, "B": {"b:9092"}, "C": {"c:9092", "a:9092"}})
    {'C': 'A'}
    """
    first: dict[str, ClusterAlias] = {}
    places: dict[ClusterAlias, ClusterAlias] = {}
    for alias in sorted(marks):
        known = sorted({first[mark] for mark in marks[alias] if mark in first})
        place = known[0] if known else alias
        # One that has the addresses of two others makes them one, too.
        for other in known[1:]:
            places.update({each: place for each, at in places.items() if at == other}, **{other: place})
            first.update({mark: place for mark, at in first.items() if at == other})
        if place != alias:
            places[alias] = place
        first.update(dict.fromkeys(marks[alias], place))
    return places


def ring_of(selectors: Iterable[TopicSelector], topic: str, places: Places | None = None) -> Ring | None:
    """The flows over which a topic of this name goes round without end, from the smallest cluster on; None
    when it does not. Renames (`twinlog.topic.rename`) are followed: what comes back under another name, and
    is taken again and again, goes round as well. A flow from a cluster to itself never runs, and is left out.
    Takes as long as there are flows.
    """
    places = places or {}
    onward: dict[ClusterAlias, list[TopicSelector]] = {}
    for selector in selectors:
        source, target = (places.get(end, end) for end in (selector.flow.source, selector.flow.target))
        if source != target:
            onward.setdefault(source, []).append(selector)
    longest = _ROUNDS * sum(map(len, onward.values())) + 1
    done: set[tuple[ClusterAlias, str]] = set()
    for start in sorted(onward):
        ring = _closed_way(onward, places, (start, topic), [], done, longest)
        if ring is not None:
            first = min(range(len(ring)), key=lambda at: ring[at].flow.source)
            return (*ring[first:], *ring[:first])
    return None


_ROUNDS: Final = 3
"""How often a name may come round, changed each time, until that counts as without end."""


def _closed_way(
    onward: Mapping[ClusterAlias, Sequence[TopicSelector]],
    places: Places,
    here: tuple[ClusterAlias, str],
    way: list[tuple[TopicSelector, tuple[ClusterAlias, str]]],
    done: set[tuple[ClusterAlias, str]],
    longest: int,
) -> Ring | None:
    """`way`: the flows so far with the places they start from; `done`: places from which no way comes back,
    to be left out and added to."""
    for selector in onward.get(here[0], ()):
        name = _name_of_copy(selector, here[1])
        if name is None:
            continue
        there = (places.get(selector.flow.target, selector.flow.target), name)
        passed = [place for _, place in way] + [here]
        flows = [each for each, _ in way] + [selector]
        if there in passed:
            return tuple(flows[passed.index(there) :])
        if len(flows) >= longest:
            return _first_round([cluster for cluster, _ in passed], flows)
        if there not in done:
            ring = _closed_way(onward, places, there, [*way, (selector, here)], done, longest)
            if ring is not None:
                return ring
    done.add(here)
    return None


def _first_round(clusters: Sequence[ClusterAlias], flows: Sequence[TopicSelector]) -> Ring:
    """The first round of a way that passes clusters several times."""
    end = next(at for at, cluster in enumerate(clusters) if cluster in clusters[:at])
    return tuple(flows[clusters.index(clusters[end]) : end])


def _name_of_copy(selector: TopicSelector, topic: str) -> str | None:
    """What the flow's copy of a topic is called; None when it takes none, or the name tells its origin."""
    policy = selector.policy
    if policy.tracks_topic_sources or not selector.selects(topic):
        return None
    return policy.format_remote_topic(selector.flow.source, topic)


def ring_text(ring: Ring) -> str:
    return " and ".join(str(selector.flow) for selector in ring)


def refuse_loops(configuration: Configuration) -> None:
    """Raise ConfigError (reason LOOP) that names the file, the flows and their keys when a topic, whether or
    not it exists, would go round. Flows that this process does not run count as well.

    Patterns that meet only in names that no sample shows pass; `twinlog preflight` looks at the topics that
    are there.
    """
    whole = _whole_file(configuration)
    for topic, ring in _rings(whole, same_places(_addresses(whole))):
        keys = _keys(ring)
        raise ConfigError(
            f"{configuration.file}: {_round_text(ring, topic)}",
            reason="LOOP",
            metadata={"file": configuration.file, "keys": keys, "topic": topic},
        )


def looping_flows(
    configuration: Configuration, cluster_ids: Mapping[ClusterAlias, str]
) -> Mapping[Flow, StateError]:
    """The flows that would copy a topic round over aliases of one cluster, which its id shows; each with why
    (LOOP)."""
    places = same_places({alias: {cluster_id} for alias, cluster_id in cluster_ids.items()})
    found: dict[Flow, StateError] = {}
    for topic, ring in _rings(_whole_file(configuration), places) if places else ():
        aliases = {end for each in ring for end in (each.flow.source, each.flow.target)}
        same = [f"{alias} is the same cluster as {at}" for alias, at in places.items() if alias in aliases]
        refusal = StateError(
            f"{_round_text(ring, topic)}; {', '.join(same)}", reason="LOOP", metadata={"topic": topic}
        )
        found.update({each.flow: refusal for each in ring if each.flow not in found})
    return found


def _rings(whole: Configuration, places: Places) -> Iterator[tuple[str, Ring]]:
    """Topics that would go round, each with its way."""
    selectors = [topic_selector(entry) for entry in whole.enabled_flows]
    keeping = {each.flow for each in selectors if not each.policy.tracks_topic_sources}
    patterns = [entry.configsync.topics.include for entry in whole.enabled_flows if entry.flow in keeping]
    for topic in _candidates(patterns):
        ring = ring_of(selectors, topic, places)
        if ring is not None:
            yield topic, ring


def _addresses(whole: Configuration) -> Mapping[ClusterAlias, Collection[str]]:
    return {alias: cluster.bootstrap_servers for alias, cluster in whole.clusters.items()}


def _keys(ring: Ring) -> str:
    return ", ".join(f"{selector.flow}.topics" for selector in ring)


def _round_text(ring: Ring, topic: str) -> str:
    return (
        f"{ring_text(ring)} would copy topics in a loop ({topic!r}, for example): they keep names "
        "(IdentityReplicationPolicy), and each selects what the other writes. "
        f"Make {_keys(ring)} distinct, exclude the topics in one of the flows (topics.exclude), or use the "
        "default replication.policy.class"
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
