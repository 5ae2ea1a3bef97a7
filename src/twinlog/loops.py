"""Finds flows of a file that would copy records in an endless loop. Pure.

Under a policy that keeps names, a copy looks like an original. A flow knows the copies on its source by their
producer ids (docs/adr/0017), and leaves out those that come from its own target topic, and those that another
flow copies to that topic directly. So A->B and B->A end where a record came from, and so does a mesh. A ring
over a third cluster without such direct flows (A->B, B->C and C->A) copies a record round without end. Two
aliases can stand for one cluster and are then one place in a ring. Equal addresses show this when the file is
read, cluster ids once the clusters have answered.
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
_Place = tuple[ClusterAlias, str]
"""A topic on a cluster."""
Places = Mapping[ClusterAlias, ClusterAlias]
"""Maps an alias to the first alias of the same cluster. Aliases that stand alone are absent."""


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
        # A cluster with the addresses of two others makes all three one place.
        for other in known[1:]:
            places.update({each: place for each, at in places.items() if at == other}, **{other: place})
            first.update({mark: place for mark, at in first.items() if at == other})
        if place != alias:
            places[alias] = place
        first.update(dict.fromkeys(marks[alias], place))
    return places


def ring_of(selectors: Iterable[TopicSelector], topic: str, places: Places | None = None) -> Ring | None:
    """The flows that copy a topic of this name in an endless loop, in order from the smallest cluster; None
    without a loop.

    Follows renames (`twinlog.topic.rename`): a record that returns under another name and is selected again
    loops as well. Leaves out a flow from a cluster to itself, which never runs.
    """
    places = places or {}
    onward, longest = _onward(selectors, places)
    done: set[tuple[_Place | None, _Place]] = set()
    for start in sorted(onward):
        ring = _closed_way(onward, places, (start, topic), [], done, longest)
        if ring is not None:
            first = min(range(len(ring)), key=lambda at: ring[at].flow.source)
            return (*ring[first:], *ring[:first])
    return None


def ring_through(selector: TopicSelector, others: Iterable[TopicSelector], topic: str) -> Ring | None:
    """The flows over which the copy of a topic comes back to the topic itself, `selector` first; None without
    such a way. `others` are flows of the file; those that show origins in names do not matter."""
    name = _name_of_copy(selector, topic)
    if name is None:
        return None
    home = (selector.flow.source, topic)
    onward, longest = _onward((selector, *others), {})
    there = (selector.flow.target, name)
    return _closed_way(onward, {}, there, [(selector, home)], set(), longest, home=home)


def circle_of(flow: Flow, flows: Iterable[Flow]) -> frozenset[Flow]:
    """The others of these flows over which a way leads from `flow` back to its source."""
    known = frozenset(flows)
    ahead = _reached(flow.target, [(each.source, each.target) for each in known])
    behind = _reached(flow.source, [(each.target, each.source) for each in known])
    return frozenset(each for each in known - {flow} if each.source in ahead and each.target in behind)


def _reached(start: ClusterAlias, ways: Iterable[tuple[ClusterAlias, ClusterAlias]]) -> set[ClusterAlias]:
    onward: dict[ClusterAlias, set[ClusterAlias]] = {}
    for one, other in ways:
        onward.setdefault(one, set()).add(other)
    reached, waiting = {start}, [start]
    while waiting:
        new = onward.get(waiting.pop(), set()) - reached
        reached |= new
        waiting.extend(new)
    return reached


def _onward(
    selectors: Iterable[TopicSelector], places: Places
) -> tuple[Mapping[ClusterAlias, Sequence[TopicSelector]], int]:
    """The flows by the place where they begin, and how many flows a way has that is endless."""
    onward: dict[ClusterAlias, list[TopicSelector]] = {}
    for selector in selectors:
        source, target = (places.get(end, end) for end in (selector.flow.source, selector.flow.target))
        if source != target:
            onward.setdefault(source, []).append(selector)
    return onward, _ROUNDS * sum(map(len, onward.values())) + 1


_ROUNDS: Final = 3
"""How many rounds with a changed name count as an endless loop."""


def _closed_way(
    onward: Mapping[ClusterAlias, Sequence[TopicSelector]],
    places: Places,
    here: _Place,
    way: list[tuple[TopicSelector, _Place]],
    done: set[tuple[_Place | None, _Place]],
    longest: int,
    home: _Place | None = None,
) -> Ring | None:
    """`way`: the flows so far, with their starting places. `done`: places without a way back for what came
    there from the place before, which are skipped and extended here. `home`: where the way has to end; None:
    anywhere on itself."""
    before = way[-1][1] if way else None
    for selector in onward.get(here[0], ()):
        there = _copy_of(selector, here, places)
        if there is None or (before is not None and _has_it_already(onward, places, before, there)):
            continue
        passed = [place for _, place in way] + [here]
        flows = [each for each, _ in way] + [selector]
        if there in passed:
            if home in (None, there):
                return tuple(flows[passed.index(there) :])
            continue
        if len(flows) >= longest:
            return _first_round([cluster for cluster, _ in passed], flows)
        if (here, there) not in done:
            ring = _closed_way(onward, places, there, [*way, (selector, here)], done, longest, home)
            if ring is not None:
                return ring
    done.add((before, here))
    return None


def _has_it_already(
    onward: Mapping[ClusterAlias, Sequence[TopicSelector]], places: Places, origin: _Place, there: _Place
) -> bool:
    """Whether what a flow copied from `origin` is not copied on to `there`: it comes from there, or another
    flow copies it there directly."""
    return there == origin or any(
        _copy_of(each, origin, places) == there for each in onward.get(origin[0], ())
    )


def _copy_of(selector: TopicSelector, place: _Place, places: Places) -> _Place | None:
    name = _name_of_copy(selector, place[1])
    return None if name is None else (places.get(selector.flow.target, selector.flow.target), name)


def _first_round(clusters: Sequence[ClusterAlias], flows: Sequence[TopicSelector]) -> Ring:
    """The first round of a path that passes clusters several times."""
    end = next(at for at, cluster in enumerate(clusters) if cluster in clusters[:at])
    return tuple(flows[clusters.index(clusters[end]) : end])


def _name_of_copy(selector: TopicSelector, topic: str) -> str | None:
    """The name of the flow's copy of a topic; None when the flow does not select it, or when the name tells
    its origin."""
    policy = selector.policy
    if policy.tracks_topic_sources or not selector.selects(topic):
        return None
    return policy.format_remote_topic(selector.flow.source, topic)


def ring_text(ring: Ring) -> str:
    return " and ".join(str(selector.flow) for selector in ring)


def round_text(ring: Ring, topic: str) -> str:
    """For people: what loops, why, and the remedy."""
    return (
        f"{ring_text(ring)} would copy topics in a loop ({topic!r}, for example): they keep names "
        "(IdentityReplicationPolicy), and each selects what the other writes. "
        f"Make {_keys(ring)} distinct, exclude the topics in one of the flows (topics.exclude), add "
        "direct flows between their clusters (docs/both-ways.md), or use the default "
        "replication.policy.class"
    )


def refuse_loops(configuration: Configuration) -> None:
    """Raise ConfigError (reason LOOP) with the file, the flows and their keys if a topic would loop, whether
    or not it exists.

    Flows that other processes run count as well. Patterns that overlap only in names beyond the samples pass;
    `twinlog preflight` checks the existing topics.
    """
    whole = whole_file(configuration)
    for topic, ring in _rings(whole, same_places(_addresses(whole))):
        keys = _keys(ring)
        raise ConfigError(
            f"{configuration.file}: {round_text(ring, topic)}",
            reason="LOOP",
            metadata={"file": configuration.file, "keys": keys, "topic": topic},
        )


def looping_flows(
    configuration: Configuration, cluster_ids: Mapping[ClusterAlias, str]
) -> Mapping[Flow, StateError]:
    """The flows that would loop through aliases of one cluster, as its id shows; each with the reason
    (LOOP)."""
    places = same_places({alias: {cluster_id} for alias, cluster_id in cluster_ids.items()})
    found: dict[Flow, StateError] = {}
    for topic, ring in _rings(whole_file(configuration), places) if places else ():
        aliases = {end for each in ring for end in (each.flow.source, each.flow.target)}
        same = [f"{alias} is the same cluster as {at}" for alias, at in places.items() if alias in aliases]
        refusal = StateError(
            f"{round_text(ring, topic)}; {', '.join(same)}", reason="LOOP", metadata={"topic": topic}
        )
        found.update({each.flow: refusal for each in ring if each.flow not in found})
    return found


def _rings(whole: Configuration, places: Places) -> Iterator[tuple[str, Ring]]:
    """Topics that would loop, each with its flows."""
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


def _candidates(patterns: Iterable[Iterable[str]]) -> Iterator[str]:
    """Samples of every pattern, and pairs of samples joined: `a.*` and `.*b` overlap in `ab`."""
    found = sorted({name for each in patterns for pattern in each for name in samples(pattern)}, key=len)
    joined = ("".join(pair) for pair in permutations(found, 2))
    yield from islice(chain(found, joined), _MOST_CANDIDATES)


def whole_file(configuration: Configuration) -> Configuration:
    """The configuration with the flows of other processes. If the whole file cannot be read (another site's
    secret is missing here), only the flows of this process count."""
    if configuration.base is None:
        return configuration
    try:
        return configuration.base.whole_file()
    except ConfigError:
        return configuration
