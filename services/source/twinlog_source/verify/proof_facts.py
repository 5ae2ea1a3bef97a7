"""Converts the results of continuous verification from and to facts on the positions topic. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from twinlog.model import TopicPartition
from twinlog.verify.report import Verdict
from twinlog.verify.standing import ProofStanding
from twinlog_source.log.facts import ProofFact

RESTATED_MS = 3_600_000
"""A result of which only the time has changed is stored again after this time: a copy at rest costs a record
an hour, and after a restart its age is at most that much too high."""


def to_fact(partition: TopicPartition, standing: ProofStanding, ranges: str) -> ProofFact:
    return ProofFact(
        partition=partition,
        verdict=str(standing.verdict),
        proven_until=standing.proven_until,
        proven_at_ms=standing.proven_at_ms,
        checked_at_ms=standing.checked_at_ms,
        differences=dict(standing.differences),
        reason=standing.reason,
        ranges=ranges,
    )


def to_standing(fact: ProofFact) -> ProofStanding | None:
    """None for a verdict that this version does not know."""
    if fact.verdict not in tuple(Verdict):
        return None
    return ProofStanding(
        verdict=Verdict(fact.verdict),
        proven_until=fact.proven_until,
        proven_at_ms=fact.proven_at_ms,
        checked_at_ms=fact.checked_at_ms,
        differences=dict(fact.differences),
        reason=fact.reason,
    )


def range_key(partition: TopicPartition) -> str:
    """The key under which `ProvenRanges` keeps the range of a partition in memory."""
    return f"{partition.topic}-{partition.partition}"


def to_store(facts: Iterable[ProofFact], on_log: Mapping[TopicPartition, ProofFact]) -> list[ProofFact]:
    """The results that differ from what the log has."""
    return [fact for fact in facts if _is_news(fact, on_log.get(fact.partition))]


def _is_news(fact: ProofFact, stored: ProofFact | None) -> bool:
    if stored is None or fact.checked_at_ms - stored.checked_at_ms >= RESTATED_MS:
        return True
    at_the_same_time = replace(fact, proven_at_ms=stored.proven_at_ms, checked_at_ms=stored.checked_at_ms)
    return at_the_same_time != stored
