"""Decides what each hunk is: differences by kind, effects of compaction, and ranges not compared.

A record that both sides have at other places is ORDER; a second copy of a record that the source has once is
a DUPLICATE; two mostly equal records are one, CHANGED; the rest is MISSING and FOREIGN. Before that, records
are set aside that retention deleted, that the ledger of gaps knows, that compaction removed, or that were not
copied yet.
"""

from collections.abc import Iterable

from twinlog.comparison.compare import Comparison
from twinlog.comparison.judging.elsewhere import take_duplicates, take_order
from twinlog.comparison.judging.findings import Findings
from twinlog.comparison.judging.lost import take_known_gaps, take_lost
from twinlog.comparison.judging.superseded import take_superseded
from twinlog.comparison.kept_offsets import Place
from twinlog.comparison.model import (
    NO_POSITION,
    Bounds,
    Difference,
    Kind,
    PartitionProof,
    Reason,
    Side,
)
from twinlog.comparison.results import Hunk
from twinlog.comparison.runs import merged, merged_ranges
from twinlog.comparison.sides import Steps
from twinlog.errors import TwinlogError

END = 1 << 63


def judge(comparison: Comparison) -> Steps[PartitionProof]:
    """Return the complete proof. Run it after `compare`; it reads more where a hunk needs it.

    The driver may throw a TwinlogError at a read request: results up to then stand.
    """
    comparison.end()
    hunks = [_below_goals(hunk, comparison.bounds) for hunk in comparison.outcome.hunks]
    findings = Findings(comparison, hunks)
    proof, bounds = findings.proof, findings.bounds
    take_known_gaps(findings)
    take_order(findings)
    take_lost(findings)
    if bounds.source_compacted or bounds.target_compacted:
        try:
            yield from take_superseded(findings)
        except TwinlogError as error:
            # Compaction may explain all of them.
            proof.not_read(error, goal=bounds.source_goal)
            findings.hunks = []
    yield from take_duplicates(findings)
    for hunk in findings.hunks:
        findings.take_changed(hunk, least=1)
        _take_rest(findings, hunk)
    proof.differences = [*merged(findings.differences), *_shifted(findings)]
    proof.differences.sort(key=_place)
    proof.not_compared = merged_ranges(proof.not_compared)
    return proof


def _below_goals(hunk: Hunk, bounds: Bounds) -> Hunk:
    within = [entry for entry in hunk.source if entry.offset < bounds.source_goal]
    hunk.is_beyond = bounds.tail_is_free and (hunk.source_after is None or within != hunk.source)
    hunk.source = within
    if not bounds.tail_is_free:
        hunk.target = [entry for entry in hunk.target if entry.offset < bounds.target_goal]
    elif hunk.equal_until > bounds.source_goal:
        hunk.target = []
    return hunk


def _shifted(findings: Findings) -> list[Difference]:
    """Records at other offsets than promised, unless a difference right before them explains it."""
    offsets = findings.comparison.outcome.offsets
    if not offsets.runs:
        return []
    sources = {each.source_offset for each in findings.differences}
    targets = {each.target_offset for each in findings.differences}
    return offsets.differences(
        Place(hunk.source_after, hunk.target_after)
        for hunk in findings.comparison.outcome.hunks
        if _is_in(sources, hunk.source_before, hunk.source_after)
        or _is_in(targets, hunk.target_before, hunk.target_after)
    )


def _take_rest(findings: Findings, hunk: Hunk) -> None:
    position = findings.comparison.position
    for entry in hunk.source:
        if hunk.is_tail and (position is None or entry.offset >= position):
            detail = NO_POSITION if position is None else ""
            findings.not_compared(Side.SOURCE, [entry], Reason.NOT_COPIED_YET, detail=detail)
        else:
            findings.find(Kind.MISSING, entry.offset, hunk.target_after)
            findings.remember(Side.SOURCE, entry)
    for entry in hunk.target:
        findings.find(Kind.FOREIGN, hunk.source_after, entry.offset)
        findings.remember(Side.TARGET, entry)


def _is_in(offsets: Iterable[int | None], begin: int, end: int | None) -> bool:
    return any(offset is not None and begin <= offset and (end is None or offset < end) for offset in offsets)


def _place(difference: Difference) -> tuple[int, int]:
    """The sort key of a place; the end of a log comes last."""
    source, target = difference.source_offset, difference.target_offset
    return (END if source is None else source, END if target is None else target)
