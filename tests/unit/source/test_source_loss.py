"""What the source no longer holds."""

import pytest

from twinlog_source.task.loss import LossReason, find_loss


@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_inside_the_log_or_at_its_end_is_no_loss(position: int) -> None:
    assert find_loss(position=position, log_start_offset=10, log_end_offset=20) is None


def test_retention_lost_the_exact_range_before_the_log_start() -> None:
    loss = find_loss(position=7, log_start_offset=10, log_end_offset=20)
    assert loss is not None
    assert (loss.reason, loss.from_offset, loss.to_offset, loss.resume_at) == (
        LossReason.RETENTION,
        7,
        10,
        10,
    )
    assert loss.lost_records == 3


def test_a_truncation_is_told_and_loses_nothing_on_the_target() -> None:
    loss = find_loss(position=25, log_start_offset=10, log_end_offset=20)
    assert loss is not None
    assert (loss.reason, loss.from_offset, loss.to_offset, loss.resume_at) == (
        LossReason.TRUNCATION,
        20,
        25,
        20,
    )
    assert loss.lost_records == 0
