"""Up to which offset of the source everything is on the target, proven: what may be deleted there. Pure.

Stricter than a verdict: what retention took of the copy, a gap, and what was never copied are not on the
target, known gap or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog.verify.model import NotCompared, PartitionProof, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRange:
    """Records of the source below `until` are on the target as they are."""

    source: TopicPartition
    begin: int
    """Where the source's log begins: what lies before is gone there."""
    until: int
    end: int
    """What was asked for: `until` when all of it is safe."""
    reason: str = ""
    """What stands at `until`: a kind of difference, or why it was not compared; empty when all is safe."""
    detail: str = ""

    @property
    def is_whole(self) -> bool:
        """An offset that is not compared at its end, such as lag, is a blocker as well."""
        return not self.reason


def safe_range(proof: PartitionProof) -> SafeRange:
    """The range of one partition that may be deleted on the source, for a proof from the beginning of its
    log."""
    # The comparison may begin behind what the target has not: `source_from` is behind it then.
    begin = min([proof.source_from, *(each.from_offset for each in _left_out(proof))])
    end = max([proof.source_to, *(each.to_offset for each in _left_out(proof))])
    until, reason, detail = min([*_blockers(proof, begin), (end, "", "")])
    return SafeRange(
        source=proof.source,
        begin=begin,
        until=max(until, begin),
        end=end,
        reason=reason,
        detail=detail,
    )


def _blockers(proof: PartitionProof, begin: int) -> Iterator[tuple[int, str, str]]:
    """Source offset, reason and words of everything that is not proven to be on the target."""
    for each in proof.differences:
        if each.source_offset is not None:  # else it stands behind the last record of the source
            yield each.source_offset, str(each.kind), ", ".join(each.changed)
    for left_out in proof.not_compared:
        if left_out.side is Side.SOURCE:
            yield left_out.from_offset, str(left_out.reason), left_out.detail
        elif not left_out.is_harmless:
            yield begin, str(left_out.reason), left_out.detail


def _left_out(proof: PartitionProof) -> list[NotCompared]:
    return [each for each in proof.not_compared if each.side is Side.SOURCE]
