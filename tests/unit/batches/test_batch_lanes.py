from typing import Any

import pytest

from twinlog.batches import (
    BatchHeader,
    Codec,
    Lane,
    LaneReason,
    TargetTopicLimits,
    Visibility,
    choose_lane,
)
from unit.cases import about

_BYTES = 1000
_FIT: dict[str, Any] = {
    "base_offset": 100,
    "batch_length": _BYTES - 12,
    "partition_leader_epoch": 3,
    "magic": 2,
    "crc": 0,
    "attributes": Codec.LZ4,
    "last_offset_delta": 9,
    "base_timestamp_ms": 0,
    "max_timestamp_ms": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "record_count": 10,
}


def _lane(
    target: TargetTopicLimits | None = None,
    wanted_offset: int = 100,
    visibility: Visibility = Visibility.VISIBLE,
    **changes: Any,
) -> tuple[Lane, LaneReason]:
    header = BatchHeader(**_FIT | changes)
    return choose_lane(header, wanted_offset, target or TargetTopicLimits(), visibility)


@pytest.mark.parametrize("codec", Codec)
def test_a_fit_batch_goes_unopened(codec: Codec) -> None:
    assert _lane(attributes=int(codec)) == (Lane.RAW, LaneReason.UNOPENED)


@pytest.mark.parametrize("attributes", [0x10, 0x40, 0x50], ids=["transactional", "delete horizon", "both"])
def test_bits_that_are_written_anew_do_not_matter(attributes: int) -> None:
    assert _lane(attributes=attributes) == (Lane.RAW, LaneReason.UNOPENED)


@pytest.mark.parametrize("wanted_offset", [0, 99, 100])
def test_a_batch_at_or_after_the_position_goes_unopened(wanted_offset: int) -> None:
    assert _lane(wanted_offset=wanted_offset) == (Lane.RAW, LaneReason.UNOPENED)


def test_what_raw_may_not_carry() -> None:
    rows: list[tuple[dict[str, Any], tuple[Lane, LaneReason]]] = [
        ({"magic": 1}, (Lane.RECODE, LaneReason.OLD_MAGIC)),
        ({"magic": 0}, (Lane.RECODE, LaneReason.OLD_MAGIC)),
        ({"attributes": 0x08}, (Lane.RECODE, LaneReason.LOG_APPEND_TIME)),
        ({"record_count": 9}, (Lane.RECODE, LaneReason.COMPACTION_HOLES)),
        ({"last_offset_delta": 10}, (Lane.RECODE, LaneReason.COMPACTION_HOLES)),
        ({"wanted_offset": 101}, (Lane.RECODE, LaneReason.STARTS_BEFORE_POSITION)),
        ({"wanted_offset": 109}, (Lane.RECODE, LaneReason.STARTS_BEFORE_POSITION)),
        ({"wanted_offset": 110}, (Lane.DROP, LaneReason.BEHIND_POSITION)),
        ({"attributes": 0x20}, (Lane.DROP, LaneReason.CONTROL)),
        ({"attributes": 0x30, "wanted_offset": 105}, (Lane.DROP, LaneReason.CONTROL)),
        ({"visibility": Visibility.CONTROL}, (Lane.DROP, LaneReason.CONTROL)),
        ({"visibility": Visibility.ABORTED}, (Lane.DROP, LaneReason.ABORTED)),
        ({"record_count": 0}, (Lane.DROP, LaneReason.EMPTY)),
    ]
    for changes, expected in rows:
        with about(changes, expected):
            assert _lane(**changes) == expected


def test_the_limit_counts_the_header_too() -> None:
    assert _lane(TargetTopicLimits(max_message_bytes=_BYTES)) == (Lane.RAW, LaneReason.UNOPENED)
    too_large = _lane(TargetTopicLimits(max_message_bytes=_BYTES - 1))
    assert too_large == (Lane.RECODE, LaneReason.TOO_LARGE_FOR_TARGET)


def test_a_target_with_its_own_codec_gets_it_from_us() -> None:
    assert _lane(TargetTopicLimits(codec=Codec.LZ4)) == (Lane.RAW, LaneReason.UNOPENED)
    assert _lane(TargetTopicLimits(codec=Codec.ZSTD)) == (Lane.RECODE, LaneReason.OTHER_CODEC)
    assert _lane(TargetTopicLimits(codec=Codec.NONE)) == (Lane.RECODE, LaneReason.OTHER_CODEC)
