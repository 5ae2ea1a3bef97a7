"""Checks the offsets of new copies, and the cost of filling the offsets before them. Pure.

Covers topics that are not on the target yet, or that another program created there. For all others this was
decided when their copy began.
"""

from collections.abc import Iterator, Sequence

from twinlog.config import OffsetsMode
from twinlog.errors import KafkaError
from twinlog.policy.expected_offsets import (
    FILLER_BYTES_PER_OFFSET,
    MOST_AT_LEADER,
    MOST_MARKERS,
    ExpectedReason,
    NewTopic,
    OffsetsRule,
    expected_offsets,
    fill_words,
    offsets_rule,
)
from twinlog.preflight.facts import Finding, FlowFacts, TopicFacts, error, fine, warning

_KEY = "twinlog.offsets"


def check_offsets(flow: FlowFacts, flows: Sequence[FlowFacts] = ()) -> Iterator[Finding]:
    """Lines for the flow, and one for each new topic that cannot have its source's offsets, although it must
    or a key would allow it, or whose target topic already holds records. `flows` are all of the file: what
    one of them reads is never said to be deleted."""
    rule, about = offsets_rule(flow.config), str(flow.flow)
    new = [
        NewTopic(name=topic.name, cleanup_policy=_cleanup_policy(topic), log_starts=topic.log_starts)
        for topic in flow.topics
        if isinstance(topic.target, KafkaError) or (topic.target_ends is not None and not _is_written(topic))
    ]
    if flow.config.source.exactly_once:
        yield from _written_targets(flow, rule, flows)
    found = expected_offsets(new, rule, exactly_once=flow.config.source.exactly_once)
    candidates = {
        name: each for name, each in found.items() if each.reason != ExpectedReason.OFFSETS_CONFIGURED
    }
    if not candidates:
        return
    if not flow.config.source.exactly_once:
        what = "copies have offsets of their own: exactly.once.source.support is disabled"
        if any(each.must for each in candidates.values()):
            yield error(about, _KEY, what, "remove exactly.once.source.support=disabled")
        else:
            yield fine(about, _KEY, what)
        return
    for name, each in candidates.items():
        if each.preserved or (each.reason == ExpectedReason.COMPACTED and not each.must):
            continue
        make = error if each.must else warning
        remedy = f"raise {each.key} before it is copied for the first time"
        if each.reason == ExpectedReason.COMPACTED:
            remedy = "name it in twinlog.offsets.translated.topics"
        yield make(about, _KEY, f"{name}: its copy has offsets of its own: {each.message}", remedy)
    preserved = [each for each in candidates.values() if each.preserved]
    compacted = sum(each.reason == ExpectedReason.COMPACTED and not each.must for each in candidates.values())
    if preserved:
        cost = _cost(len(preserved), sum(each.filled_offsets for each in preserved))
        yield fine(about, _KEY, cost + _holes(flow))
    if compacted:
        copies = f"{compacted} new compacted {'topic' if compacted == 1 else 'topics'}"
        yield fine(about, _KEY, f"{copies} will have offsets of their own")


def _is_written(topic: TopicFacts) -> bool:
    """Whether its target topic holds or held records before the flow has copied anything."""
    return any(topic.target_ends or ())


def _written_targets(flow: FlowFacts, rule: OffsetsRule, flows: Sequence[FlowFacts]) -> Iterator[Finding]:
    target = flow.flow.target
    for topic in flow.topics:
        if not _is_written(topic) or rule.wanted(topic.name) is OffsetsMode.TRANSLATED:
            continue
        copy = topic.target_name
        readers = [
            str(each.flow)
            for each in flows
            if each.flow.source == target and each.selector.decide(copy).selected
        ]
        remedy = (
            f"keep {copy} on {target}: {' and '.join(readers)} copies it; if offsets of its own are wanted,"
            f" name {topic.name} in twinlog.offsets.translated.topics"
            if readers
            else f"for the source's offsets delete {copy} on {target} before the flow starts for the first"
            " time, if nothing else needs its records"
        )
        yield warning(
            str(flow.flow),
            _KEY,
            f"{topic.name}: its target topic {copy} on {target} holds records already: unless these are the"
            " source's at the same offsets, its copy has offsets of its own and is appended to them",
            remedy,
        )


def _holes(flow: FlowFacts) -> str:
    """The longest gap that consumers do not see, as text."""
    if isinstance(flow.target_operations, KafkaError):
        return ""
    if "ALTER" in flow.target_operations:
        return f"; holes of up to {MOST_AT_LEADER} offsets are filled by markers at the leaders"
    return (
        f"; holes of up to {MOST_MARKERS} offsets are filled by transactions, and of up to {MOST_AT_LEADER}"
        f" by markers at the leaders where {flow.target_principal} has ALTER on the cluster"
        f" {flow.flow.target}"
    )


def fills_offsets(flow: FlowFacts) -> bool:
    """Whether new copies shall have their source's offsets and do not begin at offset 0."""
    rule = offsets_rule(flow.config)
    return flow.config.source.exactly_once and any(
        any(topic.log_starts) and rule.wanted(topic.name) is not OffsetsMode.TRANSLATED
        for topic in flow.topics
    )


def _cleanup_policy(topic: TopicFacts) -> str:
    configs = () if isinstance(topic.source_configs, KafkaError) else topic.source_configs
    return next((entry.value or "" for entry in configs if entry.name == "cleanup.policy"), "")


def _cost(topics: int, filled: int) -> str:
    copies = f"{topics} new {'topic' if topics == 1 else 'topics'} will have the source's offsets"
    if not filled:
        return copies
    size = fill_words(filled * FILLER_BYTES_PER_OFFSET)
    return (
        f"{copies}; filling {filled} offsets before the first records takes {size} on each replica of the"
        " target until Kafka deletes them"
    )
