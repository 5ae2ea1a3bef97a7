"""A partition in parts that are compared side by side: cut where both logs have the same records, and put
together again."""

from collections.abc import Sequence
from dataclasses import replace

from twinlog.verify.judge import END
from twinlog.verify.model import Bounds, Difference, Kind, PartitionProof, Range, Side
from twinlog.verify.runs import merged, merged_ranges, singles


def split_offsets(bounds: Bounds, most_offsets: int) -> list[int]:
    """Source offsets to cut a partition at, none where it cannot be cut: round ones, so that they are the
    same the next time."""
    if bounds.source_compacted or bounds.target_compacted:
        return []  # what explains a record may be in any later part
    first = (bounds.source_start // most_offsets + 1) * most_offsets
    return [*range(first, bounds.source_goal - most_offsets // 2, most_offsets)]


def parts(bounds: Bounds, cuts: Sequence[tuple[int, int]]) -> list[Bounds]:
    """The partition cut at these places, each the same record in both logs, in order."""
    if not cuts:
        return [bounds]
    whole = Range(bounds.source_start, bounds.source_limit)
    begins = [(bounds.source_start, bounds.target_start), *cuts]
    found = []
    for number, (source, target) in enumerate(begins):
        part = replace(bounds, source_start=source, target_start=target, source_range=whole)
        if number:
            part = replace(part, source_lost=(), target_lost=(), begins_anywhere=False, head_is_free=False)
        if number < len(cuts):
            source_end, target_end = cuts[number]
            part = replace(
                part,
                source_goal=source_end,
                source_limit=source_end,
                target_goal=target_end,
                target_limit=target_end,
                position=source_end,
            )
        found.append(part)
    return found


def joined(proofs: Sequence[PartitionProof]) -> PartitionProof:
    """One proof of all parts of a partition, in any order."""
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
        same_offsets=all(proof.same_offsets for proof in ordered),
        bytes=sum(proof.bytes for proof in ordered),
        timestamps_compared=all(proof.timestamps_compared for proof in ordered),
    )
    for proof in ordered:
        whole.unmatched |= proof.unmatched
        whole.not_compared += proof.not_compared
        whole.differences += proof.differences
    whole.not_compared = merged_ranges(whole.not_compared)
    if len(ordered) > 1 and whole.differences:
        whole.differences = _moved_between(whole)
    return whole


def _moved_between(proof: PartitionProof) -> list[Difference]:
    """What is missing in one part and foreign in another one is out of order."""
    contents: dict[object, list[int]] = {}
    for (side, offset), content in proof.unmatched.items():
        if side is Side.TARGET:
            contents.setdefault(content, []).append(offset)
    moved: dict[int, int] = {}
    for (side, offset), content in proof.unmatched.items():
        if side is Side.SOURCE and contents.get(content):
            moved[offset] = contents[content].pop(0)
    arrived = set(moved.values())
    found = []
    for each in singles(proof.differences):
        if each.kind is Kind.FOREIGN and each.target_offset in arrived:
            continue
        if each.kind is Kind.MISSING and each.source_offset in moved:
            target = moved[each.source_offset]
            found.append(replace(each, kind=Kind.ORDER, target_offset=target))
        else:
            found.append(each)
    return sorted(merged(found), key=_place)


def _place(difference: Difference) -> tuple[int, int]:
    source, target = difference.source_offset, difference.target_offset
    return (END if source is None else source, END if target is None else target)
