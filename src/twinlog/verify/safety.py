"""Finds the source offset up to which everything is proven to be on the target and may be deleted. Pure.

Stricter than a verdict: records that retention deleted from the copy, gaps, and records never copied are not
on the target, whether or not the gap is known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from twinlog.comparison.model import Kind, NotCompared, PartitionProof, Reason, Side
from twinlog.model import TopicPartition

_NOT_COPIED = (Reason.KNOWN_GAP, Reason.NOT_COPIED_YET)
_CHANGED = "transforms change or drop records of this topic: the copy does not have them as they are"
_DISPLACED = "the copy has a later record of the key: its cleaner removes the copy of this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRange:
    """Records of the source below `until` are on the target unchanged."""

    source: TopicPartition
    begin: int
    """First offset of the source's log."""
    until: int
    end: int
    """The requested offset: `until` when all of it is safe."""
    reason: str = ""
    """The obstacle at `until`: a kind of difference, or the reason of a range not compared; empty when all is
    safe."""
    detail: str = ""

    @property
    def is_whole(self) -> bool:
        """Any range at its end that was not compared, such as lag, is an obstacle as well."""
        return not self.reason


def safe_range(
    proof: PartitionProof, whole: PartitionProof | None = None, *, is_changed: bool = False
) -> SafeRange:
    """The range of one partition that may be deleted on the source, from a proof that begins at its log's
    start. Of a compacted copy, where that ends before the log does: also from the `whole` one, because a
    record behind the range may be the last of a key in the range. `is_changed`: the copy has what transforms
    made of the records, and that was compared."""
    # The comparison may begin after records that the target lacks; `source_from` lies after them then.
    begin = min([proof.source_from, *(each.from_offset for each in _left_out(proof))])
    end = max([proof.source_to, *(each.to_offset for each in _left_out(proof))])
    seen = [proof] if whole is None else [proof, whole]
    blockers = [
        *_blockers(proof),
        *([(begin, str(Reason.TRANSFORMED), _CHANGED)] if is_changed else ()),
        *(blocker for each in seen for blocker in _of_the_copy(each, begin, proof.source_to)),
    ]
    until, reason, detail = min([*blockers, (end, "", "")])
    return SafeRange(
        source=proof.source,
        begin=begin,
        until=max(until, begin),
        end=end,
        reason=reason,
        detail=detail,
    )


def safe_ranges(
    proofs: Iterable[PartitionProof],
    whole: Mapping[TopicPartition, PartitionProof] | None,
    *,
    is_changed: Callable[[str], bool] = lambda _topic: False,
) -> list[SafeRange]:
    """The ranges of several partitions. `whole`: the proofs of compacted copies up to their end; None where
    `proofs` are such. A compacted copy that is not in it has no range: what lies behind it was not seen.
    `is_changed`: whether transforms change or drop records of a topic."""
    return [
        safe_range(
            proof,
            None if whole is None else whole.get(proof.source),
            is_changed=is_changed(proof.source.topic),
        )
        for proof in proofs
        if whole is None or not proof.target_compacted or proof.source in whole
    ]


def _of_the_copy(proof: PartitionProof, begin: int, end: int) -> Iterator[tuple[int, str, str]]:
    """What the copy loses, or nobody has seen of it."""
    if proof.displaced_from is not None and proof.displaced_from < end:
        yield proof.displaced_from, str(Kind.FOREIGN), _DISPLACED
    for left_out in proof.not_compared:
        # Behind what could not be compared, a later record of any key may stand in a compacted copy.
        ends_here = proof.target_compacted and left_out.reason not in _NOT_COPIED
        if (left_out.side is Side.TARGET or ends_here) and not left_out.is_harmless:
            yield begin, str(left_out.reason), left_out.detail


def _blockers(proof: PartitionProof) -> Iterator[tuple[int, str, str]]:
    """Source offset, reason and text of everything that is not proven to be on the target."""
    for each in proof.differences:
        if each.source_offset is not None:  # otherwise it stands after the last record of the source
            yield each.source_offset, str(each.kind), ", ".join(each.changed)
    for left_out in _left_out(proof):
        yield left_out.from_offset, str(left_out.reason), left_out.detail


def _left_out(proof: PartitionProof) -> list[NotCompared]:
    """What the source has and was not compared."""
    return [each for each in proof.not_compared if each.side is Side.SOURCE and each.reason != Reason.LOST]
