"""Finds records that would loop, flows that write into the same topic, and copies that cannot be created
beside a topic of nearly the same name. Pure."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from twinlog.errors import KafkaError
from twinlog.loops import ring_of, ring_text, same_places
from twinlog.model import ClusterAlias, Flow
from twinlog.policy.internal_topics import source_of_offsets
from twinlog.preflight.facts import Facts, Finding, FlowFacts, error, fine, warning


def check_loops(facts: Facts) -> Iterator[Finding]:
    """A name that returns to a cluster through flows that keep names; two sources with one target topic."""
    rings: dict[str, set[str]] = {}
    selectors = [flow.selector for flow in facts.flows]
    places = same_places(
        {alias: {found.cluster_id} for alias, found in facts.clusters.items() if found.cluster_id}
    )
    for name in sorted({topic.name for flow in facts.flows for topic in flow.topics}):
        ring = ring_of(selectors, name, places)
        if ring is not None:
            rings.setdefault(ring_text(ring), set()).add(name)
    for flows, topics in sorted(rings.items()):
        yield error(
            flows,
            "loops",
            f"{', '.join(sorted(topics))} would be copied in a loop, because these flows keep names",
            "use the default policy, or exclude the topics in one of the flows",
        )
    unread = any(found.unreachable is not None for found in facts.clusters.values())
    if facts.flows and not rings and not unread:
        yield fine("all flows", "loops", "no topic is copied in a loop")
    yield from _meshes(facts)
    yield from _old_formats(facts)
    yield from _collisions(facts.flows)
    yield from _alike(facts)


def copied_back(flows: Sequence[FlowFacts]) -> Collection[tuple[Flow, str]]:
    """The topics of flows whose copies another flow copies back to them."""
    copies = {(flow.flow, topic.name, topic.target_name) for flow in flows for topic in flow.topics}
    return {
        (flow, name)
        for flow, name, target_name in copies
        if (Flow(flow.target, flow.source), target_name, name) in copies
    }


def _meshes(facts: Facts) -> Iterator[Finding]:
    """Flows of other files that seem to copy both to the source and to the target: of the topics that they
    copy under the same name, none knows what the other copies."""
    for flow in facts.flows:
        source, target = flow.flow.source, flow.flow.target
        if flow.selector.policy.tracks_topic_sources:
            continue
        here = {source, target, *(each.flow.source for each in facts.flows if each.flow.target == target)}
        there = [
            {source_of_offsets(name) for name in facts.clusters[alias].topics} for alias in (source, target)
        ]
        for alias in sorted(set.intersection(*there) - here - {None}, key=str):
            yield warning(
                str(flow.flow),
                "mesh",
                f"{alias}->{source} and {alias}->{target} of other files copy topics, too; those that all of"
                " them copy under the same name wait (ORIGIN_UNKNOWN)",
                f"put all flows to {target} into one file, or delete mm2-offsets.{alias}.internal on {target}"
                " if its flow is gone",
            )


def _old_formats(facts: Facts) -> Iterator[Finding]:
    """Topics whose brokers would store batches without producer ids: they refuse those with ids, as all
    copies are."""
    for flow in facts.flows:
        there = facts.clusters[flow.flow.target]
        of_brokers = there.broker_configs.get("log.message.format.version", "")
        written = there.broker_configs.get("inter.broker.protocol.version") or there.release
        for topic in flow.topics:
            entries = () if isinstance(topic.target_configs, KafkaError) else topic.target_configs
            own = {entry.name: entry.value for entry in entries}.get("message.format.version")
            stored = own or of_brokers
            if stored and _release(stored) < _FIRST_WITH_IDS and _release(written) < _FORMATS_IGNORED:
                yield error(
                    f"{flow.flow.target} {topic.target_name}",
                    "message format",
                    f"its format {stored} has no producer ids: brokers refuse all copies",
                    "set message.format.version to 0.11 or newer",
                )


_FIRST_WITH_IDS: Final = (0, 11)
_FORMATS_IGNORED: Final = (3, 0)
"""From this inter.broker.protocol.version on, brokers write the newest format (KIP-724)."""


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a release: `0.10.2-IV0` is (0, 10)."""
    return tuple(int(part) for part in version.partition("-")[0].split(".")[:2])


def _collisions(flows: Sequence[FlowFacts]) -> Iterator[Finding]:
    writers: dict[tuple[ClusterAlias, str], list[str]] = {}
    for flow in flows:
        for topic in flow.topics:
            place = (flow.flow.target, topic.target_name)
            writers.setdefault(place, []).append(f"{topic.name} of {flow.flow.source}")
    for (target, name), origins in sorted(writers.items()):
        if len(origins) > 1:
            yield warning(
                f"{target} {name}",
                "name collision",
                f"{' and '.join(origins)} are copied to the same topic, so their offsets cannot be"
                " translated",
                "use the default policy, and aliases of which none begins another one, or exclude the topic"
                " in all flows but one",
            )


def _alike(facts: Facts) -> Iterator[Finding]:
    """Kafka creates no topic whose name differs from another one's in `.` and `_` only: their metrics would
    have one name."""
    names: dict[tuple[ClusterAlias, str], set[str]] = {}
    for flow in facts.flows:
        for topic in flow.topics:
            if isinstance(topic.target, KafkaError):
                place = (flow.flow.target, topic.target_name.replace(".", "_"))
                names.setdefault(place, set()).add(topic.target_name)
    new = {(target, name) for (target, _), several in names.items() for name in several}
    for target in {target for target, _ in new}:
        for name in facts.clusters[target].topics:
            if (place := (target, name.replace(".", "_"))) in names:
                names[place].add(name)
    for (target, _), several in sorted(names.items()):
        if len(several) > 1:
            copies = sorted(name for name in several if (target, name) in new)
            yield error(
                f"{target} {copies[0]}",
                "name collision",
                f"Kafka creates only one of {' and '.join(sorted(several))}: names that differ in '.' and '_'"
                " only collide",
                "give the copy another name by twinlog.topic.rename, or exclude its topic",
            )
