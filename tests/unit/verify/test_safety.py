"""What may be deleted on the source: only what is on the target, proven, from the beginning of the log on."""

import pytest

from twinlog.comparison.model import (
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.testing.mirror_logs import SOURCE, TARGET
from twinlog.verify.report import safe_range, safe_ranges


def proof(*found: Difference | NotCompared, source_to: int = 100) -> PartitionProof:
    made = PartitionProof(
        source=SOURCE, target=TARGET, source_from=10, source_to=source_to, target_from=0, target_to=90
    )
    made.differences = [each for each in found if isinstance(each, Difference)]
    made.not_compared = [each for each in found if isinstance(each, NotCompared)]
    return made


def left_out(begin: int, end: int, reason: NotComparedReason, side: Side = Side.SOURCE) -> NotCompared:
    return NotCompared(
        side=side, from_offset=begin, to_offset=end, reason=reason, is_harmless=reason.is_harmless
    )


def test_all_that_is_proven_is_safe() -> None:
    found = safe_range(proof())
    assert (found.begin, found.until, found.end, found.is_whole) == (10, 100, 100, True)


def test_nothing_is_safe_that_transforms_changed_on_its_way() -> None:
    (found,) = safe_ranges([proof()], None, is_changed=lambda topic: topic == SOURCE.topic)
    assert (found.until, found.reason, found.is_whole) == (10, "TRANSFORMED", False)


@pytest.mark.parametrize("kind", [*DifferenceKind])
def test_nothing_from_the_first_difference_on_is_safe(kind: DifferenceKind) -> None:
    first = Difference(kind=kind, source_offset=40, target_offset=40)
    later = Difference(kind=kind, source_offset=70, target_offset=70)
    found = safe_range(proof(later, first))
    assert (found.until, found.reason, found.is_whole) == (40, str(kind), False)


def test_what_the_target_deleted_is_not_safe_although_the_copy_is_equal() -> None:
    found = safe_range(proof(left_out(10, 33, NotComparedReason.TARGET_RETENTION)))
    assert (found.until, found.reason, found.is_whole) == (10, "TARGET_RETENTION", False)


def test_what_the_source_deleted_stands_in_nobodys_way() -> None:
    assert safe_range(proof(left_out(0, 25, NotComparedReason.SOURCE_RETENTION, Side.TARGET))).is_whole


@pytest.mark.parametrize(
    "reason",
    [NotComparedReason.NOT_COPIED_YET, NotComparedReason.KNOWN_GAP, NotComparedReason.BEFORE_FIRST_COPY],
)
def test_what_is_not_on_the_target_is_not_safe_known_gap_or_not(reason: NotComparedReason) -> None:
    found = safe_range(proof(left_out(80, 120, reason), source_to=80))
    assert (found.until, found.end, found.reason) == (80, 120, str(reason))
    assert not found.is_whole


def test_a_copy_that_nobody_sees_to_its_end_makes_nothing_safe() -> None:
    found = safe_range(proof(left_out(50, 90, NotComparedReason.TARGET_OPEN_TRANSACTION, Side.TARGET)))
    assert (found.until, found.is_whole) == (10, False)


def test_what_neither_cluster_has_stands_in_nobodys_way() -> None:
    found = safe_range(
        proof(left_out(0, 7, NotComparedReason.LOST), left_out(200, 300, NotComparedReason.LOST))
    )
    assert (found.begin, found.until, found.end, found.is_whole) == (10, 100, 100, True)


def test_a_foreign_record_behind_the_end_takes_nothing_from_the_source_unless_it_displaces_a_record() -> None:
    behind = proof(Difference(kind=DifferenceKind.FOREIGN, source_offset=None, target_offset=95))
    assert safe_range(behind).is_whole
    behind.displaced_from = 40
    assert (safe_range(behind).until, safe_range(behind).reason) == (40, "FOREIGN")


def test_a_record_that_is_displaced_behind_the_range_does_not_belong_to_it() -> None:
    asked = proof()
    asked.displaced_from = 100
    assert safe_range(asked).is_whole
    assert safe_range(proof(), asked).is_whole


def test_a_foreign_record_behind_the_range_that_displaces_one_of_the_range_is_told() -> None:
    whole = proof(
        Difference(kind=DifferenceKind.FOREIGN, source_offset=150, target_offset=150), source_to=200
    )
    whole.displaced_from = 40
    found = safe_range(proof(), whole)
    assert (found.until, found.end, found.reason) == (40, 100, "FOREIGN")


@pytest.mark.parametrize("reason", [NotComparedReason.TOO_DIFFERENT, "KAFKA_TIMEOUT"])
def test_behind_what_could_not_be_compared_anything_may_displace_records_of_a_compacted_copy(
    reason: str,
) -> None:
    behind = NotCompared(side=Side.SOURCE, from_offset=150, to_offset=200, reason=reason)
    whole = proof(behind, source_to=150)
    assert safe_range(proof(), whole).is_whole, "the copy keeps all of its records"
    whole.target_compacted = True
    found = safe_range(proof(), whole)
    assert (found.until, found.reason) == (10, str(reason))


@pytest.mark.parametrize("reason", [NotComparedReason.NOT_COPIED_YET, NotComparedReason.KNOWN_GAP])
def test_what_is_not_copied_behind_the_range_displaces_nothing(reason: NotComparedReason) -> None:
    whole = proof(left_out(150, 200, reason), source_to=150)
    whole.target_compacted = True
    assert safe_range(proof(), whole).is_whole


def test_a_compacted_copy_has_no_range_if_nobody_has_seen_what_lies_behind_it() -> None:
    asked = proof()
    assert len(safe_ranges([asked], {})) == len(safe_ranges([asked], None)) == 1
    asked.target_compacted = True
    assert safe_ranges([asked], {}) == []
    assert len(safe_ranges([asked], {asked.source: asked})) == len(safe_ranges([asked], None)) == 1


def test_the_last_copies_of_what_the_target_wrote_are_not_safe() -> None:
    """Of a topic that is copied both ways. The flow back says what the source has of the target's records."""
    one = proof()
    one.one_origin = True
    back = PartitionProof(
        source=TARGET, target=SOURCE, source_from=0, source_to=90, target_from=10, target_to=100
    )
    assert safe_range(one, back=back).is_whole
    for found, until in (
        (left_out(10, 33, NotComparedReason.SOURCE_RETENTION, Side.TARGET), 10),
        (left_out(50, 60, NotComparedReason.SOURCE_RETENTION, Side.TARGET), 50),
        (left_out(0, 10, NotComparedReason.SOURCE_RETENTION, Side.TARGET), 100),
        (left_out(60, 90, NotComparedReason.NOT_COPIED_YET), 100),
        (Difference(kind=DifferenceKind.FOREIGN, source_offset=None, target_offset=70), 70),
        (Difference(kind=DifferenceKind.MISSING, source_offset=40, target_offset=70), 100),
    ):
        back.differences = [found] if isinstance(found, Difference) else []
        back.not_compared = [found] if isinstance(found, NotCompared) else []
        assert safe_range(one, back=back).until == until, found
    back.differences, back.target_to = [], 80
    assert (safe_range(one, back=back).until, safe_range(one).until) == (80, 10)
    (told,) = safe_ranges([one], None)
    assert (told.until, told.reason, told.is_whole) == (10, "BOTH_WAYS", False)
