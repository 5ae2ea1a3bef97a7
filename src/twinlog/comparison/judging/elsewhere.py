"""Finds records that both sides have at other places: ORDER and DUPLICATE."""

from collections import defaultdict, deque

from twinlog.comparison.judging.findings import Findings
from twinlog.comparison.judging.pairing import STRONG, changed_pairs
from twinlog.comparison.model import (
    Kind,
    Side,
)
from twinlog.comparison.records import Entry
from twinlog.comparison.sides import Steps
from twinlog.errors import TwinlogError

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
            findings.find(Kind.ORDER, entry.offset, copy)
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
            findings.find(Kind.DUPLICATE, max(earlier) if earlier else min(offsets), entry.offset)
        hunk.target = left
