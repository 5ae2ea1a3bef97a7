"""What the log of a flow says of the end of a copy. Pure."""

from twinlog_source.log.facts import CheckedEnd, CopyFact, TargetFact
from twinlog_source.partitions.events import TargetRemembered


def recalled(
    topic_id: str, mark: TargetFact | None, copy: CopyFact | None, *, is_newest: bool
) -> TargetRemembered | None:
    """How far the copy with this topic id reached; None = the log does not say. `is_newest`: no position was
    stored after `mark`.

    A copy that was preserved reached to where it became translated, if its task has seen that. What was
    stored about it before that says only where it began (`end_offset` 0).
    """
    if mark is not None and mark.topic_id == topic_id and mark.end_offset:
        return TargetRemembered(
            partition=mark.partition,
            end_offset=mark.end_offset,
            position=mark.position,
            held_from=mark.held_from,
            is_newest=is_newest,
            checked=mark.checked,
        )
    if copy is None or copy.preserved or not copy.since or copy.target_topic_id != topic_id:
        return None
    if copy.leader_epoch is None:
        return None
    return TargetRemembered(
        partition=copy.partition,
        end_offset=copy.since,
        position=copy.since,
        held_from=None,
        checked=CheckedEnd(copy.leader_epoch, copy.since, copy.since),
    )


def lost_with_topic(*, position: int, first: int, held_from: int | None, has_common: bool) -> tuple[int, int]:
    """The source offsets of which only the former target topic had the records, from and to.

    `position`: how far it was copied. `first`: where a copy would begin on the source now. `held_from`: where
    the former copy began; None = unknown. `has_common`: the present topic continues behind records of the
    source that it has at their offsets, so only what the source itself no longer has is lost.
    """
    begin = min(first, position)
    return begin if held_from is None else min(begin, held_from), begin if has_common else position


def is_news(before: TargetFact, mark: TargetFact) -> bool:
    """Whether `mark` says more than `before`. Not if only its source position has moved: then nothing was
    written."""
    return (before.topic_id, before.end_offset, before.held_from, before.checked) != (
        mark.topic_id,
        mark.end_offset,
        mark.held_from,
        mark.checked,
    )
