"""Explains records that one side lost or never had while the other has them: known gaps, retention, and
records before the first copy."""

from collections.abc import Iterable, Sequence

from twinlog.comparison.judging.findings import Findings
from twinlog.comparison.judging.pairing import STRONG
from twinlog.comparison.model import (
    EMPTY_COPY,
    KnownGap,
    Range,
    Reason,
    Side,
)
from twinlog.comparison.records import Entry
from twinlog.comparison.results import Hunk

_NEAR_END = 64
"""Records of the copy, beyond the number of differing ones, searched for a changed one at the end of a
range."""


def take_known_gaps(findings: Findings) -> None:
    for gap in findings.bounds.gaps:
        taken = _take_source(findings, gap)
        findings.not_compared(
            Side.SOURCE, taken, Reason.KNOWN_GAP, detail=gap.reason, is_harmless=gap.acknowledged
        )


def take_lost(findings: Findings) -> None:
    """Explain records that retention deleted on one side."""
    bounds = findings.bounds
    for hunk in findings.hunks:
        source_gone = _touches(findings.comparison.source.lost, hunk.source_before, hunk.source_after)
        target_gone = _touches(findings.comparison.target.lost, hunk.target_before, hunk.target_after)
        if source_gone or target_gone:
            # The records after the hunk match, so its last records do.
            _take_last(findings, hunk, STRONG if findings.proof.timestamps_compared else 1)
        if source_gone and hunk.target:
            gone, hunk.target = _parted(findings, hunk.target, findings.comparison.source.lost)
            findings.not_compared(Side.TARGET, gone, bounds.only_on_target)
        if target_gone and hunk.source:
            gone, hunk.source = _parted(findings, hunk.source, findings.comparison.target.lost)
            findings.not_compared(Side.SOURCE, gone, Reason.TARGET_RETENTION)
        if hunk.is_head and bounds.head_is_free:
            # Also where the copy has nothing of the range yet.
            _take_last(findings, hunk, STRONG)
            hunk.target = []
        if hunk.is_beyond:
            del hunk.target[len(hunk.source) + _NEAR_END :]
            findings.take_changed(hunk, least=STRONG)
            hunk.target = []
        if hunk.is_head and hunk.source_after is not None and bounds.begins_anywhere:
            begin = (Range(0, bounds.target_start),)
            gone, hunk.source = _parted(findings, hunk.source, begin)
            findings.not_compared(Side.SOURCE, gone, Reason.BEFORE_FIRST_COPY)
        if (
            hunk.is_head
            and bounds.begins_anywhere
            and findings.comparison.target.limit == bounds.target_start
        ):
            _take_before_nothing(findings, hunk)


def _take_source(findings: Findings, gap: KnownGap) -> list[Entry]:
    """Not if the copy has earlier records of the range: those were copied again since. At most as many as a
    joined gap lost; the ledger does not know which of its records these are."""
    begin, end = gap.from_offset, gap.to_offset
    taken: list[Entry] = []
    left = gap.lost_offsets - sum(
        passed.to_offset - passed.from_offset
        for passed in findings.proof.not_compared
        if passed.reason == Reason.KNOWN_GAP and passed.detail == gap.reason
        if begin <= passed.from_offset and passed.to_offset == end
    )
    for hunk in findings.hunks:
        if hunk.equal_until > begin and not gap.is_joined:
            continue
        excused = [entry for entry in hunk.source if begin <= entry.offset < end]
        del excused[max(0, left - len(taken)) :]
        offsets = {entry.offset for entry in excused}
        hunk.source = [entry for entry in hunk.source if entry.offset not in offsets]
        taken += excused
    return taken


def _take_before_nothing(findings: Findings, hunk: Hunk) -> None:
    """Nothing shows where an empty copy has begun."""
    copied_until = findings.comparison.position or 0
    before = [entry for entry in hunk.source if entry.offset < copied_until]
    hunk.source = [entry for entry in hunk.source if entry.offset >= copied_until]
    findings.not_compared(Side.SOURCE, before, Reason.BEFORE_FIRST_COPY, detail=EMPTY_COPY, is_harmless=False)


def _parted(
    findings: Findings, entries: list[Entry], lost: Sequence[Range]
) -> tuple[list[Entry], list[Entry]]:
    """The records that the other side lost, and those that it must still have; promised offsets tell them
    apart. An empty range marks a place where a log was cut off, or another log begins."""
    offsets = findings.comparison.outcome.offsets
    if any(each.from_offset == each.to_offset for each in lost):
        return entries, []
    end = max((each.to_offset for each in lost), default=0)
    gone = [entry for entry in entries if entry.offset < end or not offsets.is_promised(entry.offset)]
    left = [entry for entry in entries if entry.offset >= end and offsets.is_promised(entry.offset)]
    return gone, left


def _take_last(findings: Findings, hunk: Hunk, least: int) -> None:
    """Pair a hunk with records that are not compared: only its last ones can be the same, changed."""
    both = min(len(hunk.source), len(hunk.target))
    before = hunk.source[: len(hunk.source) - both], hunk.target[: len(hunk.target) - both]
    hunk.source, hunk.target = hunk.source[len(before[0]) :], hunk.target[len(before[1]) :]
    findings.take_changed(hunk, least=least)
    hunk.source, hunk.target = before[0] + hunk.source, before[1] + hunk.target


def _touches(lost: Iterable[Range], before: int, after: int | None) -> bool:
    """Whether records were lost between two places of a log."""
    return any(each.to_offset >= before and (after is None or each.from_offset <= after) for each in lost)
