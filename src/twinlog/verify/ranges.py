"""Splits a partition into parts that are compared side by side, at records that both logs have, and joins the
results of equal parts."""

from collections.abc import Sequence
from dataclasses import replace

from twinlog.verify.model import Bounds, PartitionProof, Range
from twinlog.verify.runs import merged_ranges


def split_offsets(bounds: Bounds, most_offsets: int) -> list[int]:
    """Source offsets to split a partition at, none where it cannot be split. Round offsets, so that they are
    the same next time."""
    if bounds.source_compacted or bounds.target_compacted:
        return []  # the explanation of a record may be in any later part
    first = (bounds.source_start // most_offsets + 1) * most_offsets
    spans = [gap for gap in bounds.gaps if gap.is_joined]
    # The losses of a joined gap are counted in one part.
    return [
        at
        for at in range(first, bounds.source_goal - most_offsets // 2, most_offsets)
        if not any(gap.from_offset < at < gap.to_offset for gap in spans)
    ]


def parts(bounds: Bounds, cuts: Sequence[tuple[int, int]]) -> list[Bounds]:
    """The partition split at these places, each the same record in both logs, in order."""
    if not cuts:
        return [bounds]
    begins = [(bounds.source_start, bounds.target_start), *cuts]
    found = []
    for number, (source, target) in enumerate(begins):
        part = replace(bounds, source_start=source, target_start=target)
        if number:
            part = replace(part, target_lost=(), begins_anywhere=False, head_is_free=False)
        end = cuts[number][0] if number < len(cuts) else None
        part = replace(part, source_lost=_lost_of(bounds, source if number else None, end))
        if number < len(cuts):
            source_end, target_end = cuts[number]
            part = replace(
                part,
                source_goal=source_end,
                source_limit=source_end,
                target_goal=target_end,
                target_limit=target_end,
                position=source_end,
                may_grow=False,
                tail_is_free=False,
            )
        found.append(part)
    return found


def _lost_of(bounds: Bounds, begin: int | None, end: int | None) -> tuple[Range, ...]:
    """The source's losses in a part or at its end; None: at the beginning or end of the partition. Losses
    elsewhere explain nothing here."""
    return tuple(
        each
        for each in bounds.source_lost
        if (begin is None or each.from_offset > begin) and (end is None or each.from_offset <= end)
    )


def joined(proofs: Sequence[PartitionProof]) -> PartitionProof:
    """One proof of all parts of a partition, in any order, none of which has a difference.

    A partition with a difference must be compared whole: only that finds records that moved from one part to
    another, and a repeating place may have been split wrongly. Equality in parts is equality.
    """
    ordered = sorted(proofs, key=lambda proof: (proof.source_from, proof.source_to))
    first, last = ordered[0], ordered[-1]
    whole = PartitionProof(
        source=first.source,
        target=first.target,
        source_from=first.source_from,
        source_to=last.source_to,
        target_from=first.target_from,
        target_to=max(proof.target_to for proof in ordered),
        records=sum(proof.records for proof in ordered),
        unopened_records=sum(proof.unopened_records for proof in ordered),
        superseded_records=sum(proof.superseded_records for proof in ordered),
        target_compacted=first.target_compacted,
        same_offsets=all(proof.same_offsets for proof in ordered),
        offsets_promised=first.offsets_promised,
        bytes=sum(proof.bytes for proof in ordered),
        timestamps_compared=all(proof.timestamps_compared for proof in ordered),
    )
    for proof in ordered:
        whole.not_compared += proof.not_compared
    whole.not_compared = merged_ranges(whole.not_compared)
    return whole
