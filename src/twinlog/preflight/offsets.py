"""Which offsets the copies of new topics will have, and what filling the offsets before them costs. Pure.

Of topics that are not on the target yet: what exists there was decided when its copy began.
"""

from collections.abc import Iterator

from twinlog.config import OffsetsMode
from twinlog.errors import KafkaError
from twinlog.policy.offsets_rule import FILLER_BYTES_PER_OFFSET, OffsetsRule
from twinlog.preflight.facts import FlowFacts, TopicFacts
from twinlog.preflight.findings import Finding, error, fine, warning

_KEY = "twinlog.offsets"


def check_offsets(flow: FlowFacts) -> Iterator[Finding]:
    """Lines for the flow, and one for each new topic that cannot have its source's offsets, although it must
    or a key would let it."""
    rule, about = OffsetsRule(flow.config.source.offsets), str(flow.flow)
    new = [topic for topic in flow.topics if isinstance(topic.target, KafkaError)]
    wanted = {topic.name: rule.wanted(topic.name) for topic in new}
    candidates = [topic for topic in new if wanted[topic.name] is not OffsetsMode.TRANSLATED]
    if not candidates:
        return
    if not flow.config.source.exactly_once:
        must = any(wanted[topic.name] is OffsetsMode.PRESERVED for topic in candidates)
        what = "copies have offsets of their own: exactly.once.source.support is disabled"
        if must:
            yield error(about, _KEY, what, "remove exactly.once.source.support=disabled")
        else:
            yield fine(about, _KEY, what)
        return
    left, filled, preserved, compacted = rule.fill_total, 0, 0, 0
    for topic in sorted(candidates, key=lambda each: (max(each.log_starts, default=0), each.name)):
        if wanted[topic.name] is OffsetsMode.AUTO and "compact" in _cleanup_policy(topic):
            compacted += 1
            continue
        objection = _objection(topic, rule, left)
        if objection is None:
            preserved += 1
            filled += sum(topic.log_starts)
            left -= sum(topic.log_starts)
            continue
        make = error if wanted[topic.name] is OffsetsMode.PRESERVED else warning
        what, remedy = objection
        yield make(about, _KEY, f"{topic.name}: its copy has offsets of its own: {what}", remedy)
    if preserved:
        yield fine(about, _KEY, _cost(preserved, filled))
    if compacted:
        copies = f"{compacted} new compacted {'topic' if compacted == 1 else 'topics'}"
        yield fine(about, _KEY, f"{copies} will have offsets of their own")


def fills_offsets(flow: FlowFacts) -> bool:
    """Whether new copies are to have their source's offsets, and do not begin at offset 0."""
    rule = OffsetsRule(flow.config.source.offsets)
    return flow.config.source.exactly_once and any(
        any(topic.log_starts) and rule.wanted(topic.name) is not OffsetsMode.TRANSLATED
        for topic in flow.topics
    )


def _objection(topic: TopicFacts, rule: OffsetsRule, left: int) -> tuple[str, str] | None:
    """Why not all partitions of a topic can have their source's offsets, and the remedy."""
    policy = _cleanup_policy(topic)
    if "compact" in policy:
        return f"cleanup.policy is {policy}", "name it in twinlog.offsets.translated.topics"
    most, total = max(topic.log_starts, default=0), sum(topic.log_starts)
    if most > rule.fill_max:
        return (
            f"a partition starts at offset {most}, above twinlog.offsets.fill.max={rule.fill_max}",
            "raise twinlog.offsets.fill.max before it is copied for the first time",
        )
    if total > left:
        return (
            f"{total} offsets would have to be filled, and twinlog.offsets.fill.total leaves {max(0, left)}",
            "raise twinlog.offsets.fill.total before it is copied for the first time",
        )
    return None


def _cleanup_policy(topic: TopicFacts) -> str:
    configs = () if isinstance(topic.source_configs, KafkaError) else topic.source_configs
    return next((entry.value or "" for entry in configs if entry.name == "cleanup.policy"), "")


def _cost(topics: int, filled: int) -> str:
    copies = f"{topics} new {'topic' if topics == 1 else 'topics'} will have the source's offsets"
    if not filled:
        return copies
    megabytes = filled * FILLER_BYTES_PER_OFFSET / 1e6
    return (
        f"{copies}; filling {filled} offsets before the first records takes about {megabytes:.1f} MB on each"
        " replica of the target until Kafka deletes them"
    )
