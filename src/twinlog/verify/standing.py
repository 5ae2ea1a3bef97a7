"""The known state of each partition between verifications: how far it is proven, when, and its differences.
Pure: takes `now_ms`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from twinlog.comparison.model import NotComparedReason, PartitionProof
from twinlog.model import TopicPartition
from twinlog.verify.report import FlowVerdict, state_of

_LAG = (NotComparedReason.NOT_COPIED_YET, NotComparedReason.ROUTED)
"""What the next verification compares."""

_WORST_FIRST = (FlowVerdict.DIFFERENT, FlowVerdict.INCOMPLETE, FlowVerdict.EQUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofStanding:
    verdict: FlowVerdict
    """EQUAL also with lag after the proven part."""
    proven_until: int
    """Source offset up to which the copy is proven complete and equal."""
    proven_at_ms: int
    """When that was proven; stays when a later verification could not compare."""
    checked_at_ms: int
    """When it was last verified."""
    differences: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    reason: str = ""
    """Why it is INCOMPLETE; for a copy that was DIFFERENT, why it could not be compared again."""


def standings(
    before: Mapping[TopicPartition, ProofStanding], proofs: Iterable[PartitionProof], *, now_ms: int
) -> dict[TopicPartition, ProofStanding]:
    """The state after one more verification; partitions that were not part of it keep theirs."""
    after = dict(before)
    for proof in proofs:
        after[proof.source] = _standing(before.get(proof.source), proof, now_ms)
    return after


def advanced(
    before: Mapping[TopicPartition, ProofStanding], reached: Mapping[TopicPartition, int], *, now_ms: int
) -> dict[TopicPartition, ProofStanding]:
    """News of a running verification: copies proven equal further than known, up to these source offsets. A
    copy with known differences keeps its verdict until its verification has ended."""
    news = {}
    for partition, until in reached.items():
        known = before.get(partition)
        if known is None or (known.verdict is FlowVerdict.EQUAL and known.proven_until < until):
            news[partition] = ProofStanding(
                verdict=FlowVerdict.EQUAL, proven_until=until, proven_at_ms=now_ms, checked_at_ms=now_ms
            )
    return news


def by_log(
    found: Mapping[TopicPartition, ProofStanding], routed_from: Callable[[str], str]
) -> dict[TopicPartition, ProofStanding]:
    """The state of each partition of the source: the worst of the topics to which its records go.
    `routed_from`: the topic whose records take the route of this name; its own name for a topic."""
    logs: dict[TopicPartition, list[ProofStanding]] = {}
    for partition, standing in found.items():
        log = TopicPartition(routed_from(partition.topic), partition.partition)
        logs.setdefault(log, []).append(standing)
    return {log: _together(standings) for log, standings in logs.items()}


def _together(standings: Sequence[ProofStanding]) -> ProofStanding:
    worst = min(standings, key=lambda each: _WORST_FIRST.index(each.verdict))
    return replace(
        worst,
        proven_until=min(each.proven_until for each in standings),
        proven_at_ms=min(each.proven_at_ms for each in standings),
        checked_at_ms=min(each.checked_at_ms for each in standings),
        differences=dict(sum((Counter(each.differences) for each in standings), Counter[str]())),
    )


def _standing(before: ProofStanding | None, proof: PartitionProof, now_ms: int) -> ProofStanding:
    harmful = [each for each in proof.not_compared if not each.is_harmless and each.reason not in _LAG]
    failed = [each.reason for each in harmful if each.reason not in tuple(NotComparedReason)]
    if failed and not proof.differences and before is not None and before.verdict is FlowVerdict.DIFFERENT:
        # A cluster was away: no verification has found the copy equal since.
        return replace(before, checked_at_ms=now_ms, reason=failed[0])
    if harmful and not proof.differences:
        return ProofStanding(
            verdict=FlowVerdict.INCOMPLETE,
            proven_until=0 if before is None else before.proven_until,
            proven_at_ms=0 if before is None else before.proven_at_ms,
            checked_at_ms=now_ms,
            reason=str(harmful[0].reason),
        )
    kinds = Counter[str]()
    for each in proof.differences:
        kinds[str(each.kind)] += each.count
    first = [each.source_offset for each in proof.differences if each.source_offset is not None]
    first += [each.from_offset for each in proof.not_compared if each.reason in _LAG and not each.is_harmless]
    return ProofStanding(
        verdict=FlowVerdict.DIFFERENT if state_of(proof) is FlowVerdict.DIFFERENT else FlowVerdict.EQUAL,
        proven_until=min([proof.source_to, *first]),
        proven_at_ms=now_ms,
        checked_at_ms=now_ms,
        differences=dict(sorted(kinds.items())),
    )
