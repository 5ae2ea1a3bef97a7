"""Whether records could go round for ever, or two flows write into one topic. Pure."""

from collections.abc import Iterator, Sequence

from twinlog.model import ClusterAlias
from twinlog.preflight.facts import Facts, FlowFacts
from twinlog.preflight.findings import Finding, error, fine, warning


def check_loops(facts: Facts) -> Iterator[Finding]:
    """A name that comes back to a cluster it was on, over flows that keep names; two sources in one target
    topic.
    """
    looping = False
    for way in _rings(facts.flows):
        topics = sorted({topic.name for flow in way for topic in flow.topics if _goes_round(way, topic.name)})
        if topics:
            looping = True
            names = " and ".join(str(flow.flow) for flow in way)
            yield error(
                names,
                "loops",
                f"{', '.join(topics)} would go round for ever, since these flows keep names",
                "use the default policy, or exclude the topics in one of the flows",
            )
    if facts.flows and not looping:
        yield fine("all flows", "loops", "no topic comes back to where it was")
    yield from _collisions(facts.flows)


def _rings(flows: Sequence[FlowFacts]) -> Iterator[tuple[FlowFacts, ...]]:
    """Closed ways over flows that keep names, each once: it starts at its smallest cluster."""
    keeping = [flow for flow in flows if not flow.selector.policy.tracks_topic_sources]
    for start in sorted({flow.flow.source for flow in keeping}):
        yield from _ways(keeping, start, start, ())


def _ways(
    flows: Sequence[FlowFacts], start: ClusterAlias, here: ClusterAlias, so_far: tuple[FlowFacts, ...]
) -> Iterator[tuple[FlowFacts, ...]]:
    visited = {flow.flow.source for flow in so_far}
    for flow in flows:
        if flow.flow.source != here:
            continue
        if flow.flow.target == start:
            yield (*so_far, flow)
        elif flow.flow.target > start and flow.flow.target not in visited:
            yield from _ways(flows, start, flow.flow.target, (*so_far, flow))


def _goes_round(way: Sequence[FlowFacts], topic: str) -> bool:
    """Every flow of the way selects the name and keeps it."""
    return all(
        flow.selector.selects(topic)
        and flow.selector.policy.format_remote_topic(flow.flow.source, topic) == topic
        for flow in way
    )


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
                f"{' and '.join(origins)} are copied into one topic: offsets cannot be translated there",
                "use the default policy, or exclude the topic in all flows but one",
            )
