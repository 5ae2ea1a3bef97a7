"""What the positions topic and the configuration tell about a copy: its beginning, its position, its gaps.

The bounds of a comparison, from the request and from truncations of the source. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from twinlog.comparison.align import OFFSET
from twinlog.comparison.model import (
    Bounds,
    KnownGap,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Range,
    Side,
)
from twinlog.config import FlowConfig
from twinlog.config.flow.settings import AutoOffsetReset, OffsetsMode
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import offsets_rule
from twinlog_source.log.facts import TransformStart
from twinlog_source.log.gaps import Gap
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.copy_mode import OffsetsReason
from twinlog_source.verify.gathering.topics import TopicPair

_TRUNCATION = "TRUNCATION"


def narrowed(
    bounds: Bounds,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    is_whole_copy: bool,
) -> Bounds:
    """Narrow the bounds to the requested range. `is_whole_copy`: the copy has nothing behind these ends."""
    begin, end = begins.get(bounds.source), ends.get(bounds.source)
    if end is not None and end < bounds.source_goal:
        bounds = replace(bounds, source_goal=max(end, bounds.source_start))
        if not is_whole_copy:
            # Records of the target behind the range are not compared. A copy that ends there has none.
            bounds = replace(bounds, target_goal=0, tail_is_free=True)
    if begin is not None and begin > bounds.source_start:
        start = min(begin, bounds.source_goal)
        bounds = replace(bounds, source_start=start, source_lost=(), head_is_free=True)
    return bounds


def of_one_transform(bounds: Bounds, same: Range | None) -> tuple[Bounds, list[NotCompared]]:
    """The bounds within the offsets that were copied with the `same` transform, and what lies outside."""
    if same is None:
        return bounds, []
    partition, goal = bounds.source, bounds.source_goal
    left_out = [
        NotCompared(
            side=Side.SOURCE,
            from_offset=begin,
            to_offset=end,
            reason=NotComparedReason.OTHER_TRANSFORMS,
        )
        for begin, end in (
            (bounds.source_start, min(same.from_offset, goal)),
            (max(same.to_offset, bounds.source_start), goal),
        )
        if begin < end
    ]
    if not left_out:
        return bounds, []
    end = {partition: same.to_offset}
    return narrowed(bounds, {partition: same.from_offset}, end, is_whole_copy=False), left_out


def with_truncations(bounds: Bounds) -> Bounds:
    """If the source's log was truncated after it was copied, the target has more than the source."""
    cuts = [Range(gap.from_offset, gap.from_offset) for gap in bounds.gaps if gap.reason == _TRUNCATION]
    kept = tuple(gap for gap in bounds.gaps if gap.reason != _TRUNCATION)
    until = bounds.offsets_kept_until
    if until is not None:
        until = min([until, *(cut.from_offset for cut in cuts)])
    return replace(bounds, gaps=kept, source_lost=(*bounds.source_lost, *cuts), offsets_kept_until=until)


def end_promise(proof: PartitionProof, source_offset: int) -> None:
    """From there on other offsets than the source's are no difference."""
    proof.offsets_promised = False
    proof.differences = [
        each
        for each in proof.differences
        if each.changed != (OFFSET,) or (each.source_offset or 0) < source_offset
    ]


def bounds_of_nothing(
    partition: TopicPartition, copy: TopicPartition, start: int, end: int, *, was_recreated: bool
) -> Bounds:
    """The bounds of a partition that only the copy has: the earlier topic may have had it, too."""
    return Bounds(
        source=partition,
        target=copy,
        source_start=0,
        source_goal=0,
        source_limit=0,
        target_start=start,
        target_goal=end,
        target_limit=end,
        position=None,
        source_lost=(Range(0, 0),) if was_recreated else (),
        only_on_target=NotComparedReason.EARLIER_TOPIC
        if was_recreated
        else NotComparedReason.SOURCE_RETENTION,
    )


_RECREATED = "TOPIC_RECREATED"
AFTER_ALL = 1 << 62
"""Behind every offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCopies:
    flow: FlowConfig
    positions: PositionsLog
    pairs: Mapping[str, TopicPair]
    is_complete: bool
    """Everything counts as copied."""
    transform_of: Callable[[str], str]
    """As `TopicTransforms.digest`."""

    def position_of(self, partition: TopicPartition, positions: Mapping[TopicPartition, int]) -> int | None:
        """None also if the stored position belongs to a deleted topic: then nothing of this one is copied
        yet."""
        if self.is_complete:
            return AFTER_ALL
        mark = self.positions.control.topics.get(partition.topic)
        is_another = mark is not None and mark.topic_id != self.pairs[partition.topic].source.topic_id
        return None if is_another else positions.get(partition)

    def was_recreated(self, partition: TopicPartition) -> bool:
        """The source topic was recreated: the copy has records of the old one, too."""
        mark = self.positions.control.topics.get(partition.topic)
        if mark is None:
            return False
        return mark.topic_id != self.pairs[partition.topic].source.topic_id or not mark.known_partitions

    def offsets_kept(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """The range in which the copy should have the source's offsets, as recorded by its writer or else by
        the configuration."""
        fact = self.positions.control.copies.get(partition)
        if fact is None or fact.target_topic_id != self.pairs[partition.topic].target.topic_id:
            wanted = offsets_rule(self.flow).wanted(partition.topic)
            return (0 if wanted is OffsetsMode.PRESERVED else None), None
        if fact.preserved:
            return fact.since, None
        return (0, fact.since) if fact.since > 0 and not self.was_recreated(partition) else (None, None)

    def same_transform(self, partition: TopicPartition) -> Range | None:
        """The source offsets whose records were copied with the transform of this configuration; None = all,
        as far as is recorded."""
        fact = self.positions.control.transforms.get(partition)
        if fact is None or fact.target_topic_id != self.pairs[partition.topic].target.topic_id:
            return None
        starts = [TransformStart("", 0), *fact.starts, TransformStart("", AFTER_ALL)]
        found = [
            Range(start.offset, after.offset)
            for start, after in pairwise(starts)
            if start.digest == self.transform_of(partition.topic) and start.offset < after.offset
        ]
        return found[-1] if found else Range(AFTER_ALL, AFTER_ALL)

    def is_both_ways(self, partition: TopicPartition) -> bool:
        """Whether the copy has offsets of its own because another flow copies the topic back."""
        fact = self.positions.control.copies.get(partition)
        return fact is not None and fact.reason == OffsetsReason.BOTH_WAYS

    def known_gaps(self, partition: TopicPartition) -> tuple[KnownGap, ...]:
        return tuple(_known_gap(gap) for gap, is_of_present in self._gaps(partition) if is_of_present)

    def lost(self, partition: TopicPartition, source_start: int) -> list[NotCompared]:
        """What the source's log, which begins at `source_start`, and the copy both lack."""
        found = []
        for gap, is_of_present in self._gaps(partition):
            end = min(gap.to_offset, source_start) if is_of_present else gap.to_offset
            if gap.is_loss and gap.from_offset < end:
                found.append(
                    NotCompared(
                        side=Side.SOURCE,
                        from_offset=gap.from_offset,
                        to_offset=end,
                        reason=NotComparedReason.LOST,
                        detail=_told(gap, is_of_present=is_of_present),
                        is_harmless=True,
                    )
                )
        return found

    def _gaps(self, partition: TopicPartition) -> Iterator[tuple[Gap, bool]]:
        """Each with whether its offsets are those of the present topic: a deleted one's mean nothing now. Of
        a gap that does not name its topic the time tells, as far as the clocks of tasks agree."""
        found = [gap for gap in self.positions.gaps.values() if gap.partition == partition]
        mark = self.positions.control.topics.get(partition.topic)
        pair = self.pairs.get(partition.topic)
        present = "" if pair is None else pair.source.topic_id
        recreated = [gap.found_at_ms for gap in found if gap.reason == _RECREATED]
        forgotten = max([0 if mark is None else mark.since_ms, *recreated])
        for gap in sorted(found, key=lambda gap: (gap.found_at_ms, gap.from_offset)):
            by_time = gap.found_at_ms > forgotten
            yield gap, gap.topic_id == present if gap.topic_id and present else by_time

    def begins_anywhere(self, partition: TopicPartition) -> bool:
        """Whether the copy may begin after the start of the log. Topics and partitions that are newer than
        the flow always begin at their first record."""
        mark = self.positions.control.topics.get(partition.topic)
        if mark is not None and partition.partition >= mark.known_partitions:
            return False
        settings = self.flow.source
        named = settings.start_group or settings.start_time_ms is not None
        return bool(named) or settings.auto_offset_reset is not AutoOffsetReset.EARLIEST


def _told(gap: Gap, *, is_of_present: bool) -> str:
    told = [gap.reason]
    if gap.lost_of_joined is not None:
        told.append(f"{gap.lost_of_joined} of these offsets")
    if not is_of_present:
        told.append("offsets of an earlier topic")
    if gap.acknowledged_by:
        told.append(f"acknowledged by {gap.acknowledged_by}")
    return f"{', '.join(told)}: see twinlog gaps"


def _known_gap(gap: Gap) -> KnownGap:
    return KnownGap(
        from_offset=gap.from_offset,
        to_offset=gap.to_offset,
        reason=gap.reason,
        acknowledged=bool(gap.acknowledged_by),
        lost_of_joined=gap.lost_of_joined,
    )
