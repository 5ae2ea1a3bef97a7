"""Decides what each hunk is: differences by kind, effects of compaction, and ranges not compared.

A record that both sides have at other places is ORDER; a second copy of a record that the source has once is
a DUPLICATE; two mostly equal records are one, CHANGED; the rest is MISSING and FOREIGN. Before that, records
are set aside that retention deleted, that the ledger of gaps knows, that compaction removed, or that were not
copied yet.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from twinlog.comparison.align import Place
from twinlog.comparison.compare import Comparison
from twinlog.comparison.judging.findings import STRONG, Findings, changed_pairs, take_superseded
from twinlog.comparison.model import (
    EMPTY_COPY,
    NO_POSITION,
    Bounds,
    Difference,
    DifferenceKind,
    KnownGap,
    NotComparedReason,
    PartitionProof,
    Range,
    Side,
)
from twinlog.comparison.records import Entry
from twinlog.comparison.results import Hunk
from twinlog.comparison.runs import merged, merged_ranges
from twinlog.comparison.sides import Steps
from twinlog.errors import TwinlogError

# Explains records that one side lost or never had while the other has them: known gaps, retention, and
# records before the first copy.

_NEAR_END = 64
"""Records of the copy, beyond the number of differing ones, searched for a changed one at the end of a
range."""


def take_known_gaps(findings: Findings) -> None:
    for gap in findings.bounds.gaps:
        taken = _take_source(findings, gap)
        findings.not_compared(
            Side.SOURCE, taken, NotComparedReason.KNOWN_GAP, detail=gap.reason, is_harmless=gap.acknowledged
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
            findings.not_compared(Side.SOURCE, gone, NotComparedReason.TARGET_RETENTION)
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
            findings.not_compared(Side.SOURCE, gone, NotComparedReason.BEFORE_FIRST_COPY)
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
        if passed.reason == NotComparedReason.KNOWN_GAP and passed.detail == gap.reason
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
    findings.not_compared(
        Side.SOURCE, before, NotComparedReason.BEFORE_FIRST_COPY, detail=EMPTY_COPY, is_harmless=False
    )


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


# Finds records that both sides have at other places: ORDER and DUPLICATE.

_NEAR_OFFSETS = 20_000
"""How far back a duplicate is searched before the whole source is read again."""


def take_order(findings: Findings) -> None:
    if not any(hunk.source for hunk in findings.hunks):
        return
    places: defaultdict[object, deque[int]] = defaultdict(deque)
    for hunk in findings.hunks:
        for entry in hunk.target:
            places[findings.identity(entry)].append(entry.offset)
    taken = set()
    for hunk in findings.hunks:
        left = []
        for entry in hunk.source:
            elsewhere = places.get(findings.identity(entry))
            if not elsewhere:
                left.append(entry)
                continue
            copy = elsewhere.popleft()
            taken.add(copy)
            findings.find(DifferenceKind.ORDER, entry.offset, copy)
        hunk.source = left
    for hunk in findings.hunks:
        hunk.target = [entry for entry in hunk.target if entry.offset not in taken]


def take_duplicates(findings: Findings) -> Steps[None]:
    wanted: dict[object, list[int]] = {
        findings.identity(entry): [] for hunk in findings.hunks for entry in hunk.target
    }
    if not wanted:
        return

    def note(entry: Entry) -> None:
        offsets = wanted.get(findings.identity(entry))
        if offsets is not None:
            offsets.append(entry.offset)

    begin, end = findings.bounds.source_start, findings.comparison.source.limit
    if findings.bounds.source_log_start is not None:
        begin = min(begin, findings.bounds.source_log_start)
    places = [hunk.source_before for hunk in findings.hunks if hunk.target]
    near, behind = max(begin, min(places) - _NEAR_OFFSETS), min(max(places) + 1, end)
    try:
        yield from findings.scan(Side.SOURCE, near, behind, note)
        # A record mostly equal to the one in its place is that one, changed: no need to read everything.
        changed = {
            findings.identity(copy)
            for hunk in findings.hunks
            for _, copy, _ in changed_pairs(hunk.source, hunk.target, least=STRONG)
        }
        if not all(offsets or identity in changed for identity, offsets in wanted.items()):
            yield from findings.scan(Side.SOURCE, begin, near, note)
            yield from findings.scan(Side.SOURCE, behind, end, note)
    except TwinlogError as error:
        # They differ all the same: records that are not found are FOREIGN.
        findings.proof.not_read(error, goal=findings.bounds.source_goal)
    for hunk in findings.hunks:
        left = []
        for entry in hunk.target:
            offsets = wanted[findings.identity(entry)]
            if not offsets:
                left.append(entry)
                continue
            earlier = [offset for offset in offsets if offset < hunk.source_before]
            findings.find(DifferenceKind.DUPLICATE, max(earlier) if earlier else min(offsets), entry.offset)
        hunk.target = left


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
            findings.not_compared(Side.SOURCE, [entry], NotComparedReason.NOT_COPIED_YET, detail=detail)
        elif detail := findings.bounds.too_large.get(entry.offset, ""):
            findings.not_compared(Side.SOURCE, [entry], NotComparedReason.RECORD_TOO_LARGE, detail=detail)
        else:
            findings.find(DifferenceKind.MISSING, entry.offset, hunk.target_after)
            findings.remember(Side.SOURCE, entry)
    for entry in hunk.target:
        findings.find(DifferenceKind.FOREIGN, hunk.source_after, entry.offset)
        findings.remember(Side.TARGET, entry)


def _is_in(offsets: Iterable[int | None], begin: int, end: int | None) -> bool:
    return any(offset is not None and begin <= offset and (end is None or offset < end) for offset in offsets)


def _place(difference: Difference) -> tuple[int, int]:
    """The sort key of a place; the end of a log comes last."""
    source, target = difference.source_offset, difference.target_offset
    return (END if source is None else source, END if target is None else target)
