"""Which copies keep their source's offsets, and why the others do not."""

from dataclasses import replace

import pytest

from twinlog.config import OffsetsMode, OffsetsSettings
from twinlog.model import TopicPartition
from twinlog.policy.expected_offsets import OffsetsRule
from twinlog_source.partitions.copy_mode import (
    PRESERVED,
    CommonLog,
    NewCopy,
    OffsetsReason,
    decide,
    decide_all,
    refused,
)

NEW = NewCopy(
    partition=TopicPartition("t", 0),
    wanted=OffsetsMode.AUTO,
    begins_at=0,
    exactly_once=True,
    cleanup_policies=frozenset(("delete",)),
    position_stored=False,
    target_end=0,
)


def test_a_copy_that_begins_empty_keeps_the_offsets() -> None:
    assert decide(NEW, fill_max=0, fill_left=0) == PRESERVED
    assert decide(replace(NEW, both_ways=True), fill_max=0, fill_left=0) == PRESERVED
    assert decide(replace(NEW, wanted=OffsetsMode.PRESERVED, begins_at=9), fill_max=9, fill_left=9).preserved


@pytest.mark.parametrize(
    ("copy", "reason"),
    [
        (replace(NEW, wanted=OffsetsMode.TRANSLATED), OffsetsReason.OFFSETS_CONFIGURED),
        (replace(NEW, exactly_once=False), OffsetsReason.TRANSACTIONS_DISABLED),
        (replace(NEW, cleanup_policies=frozenset(("delete", "compact,delete"))), OffsetsReason.COMPACTED),
        (replace(NEW, position_stored=True), OffsetsReason.POSITION_STORED),
        (replace(NEW, target_end=1), OffsetsReason.TARGET_NOT_EMPTY),
        (replace(NEW, target_end=1, both_ways=True), OffsetsReason.BOTH_WAYS),
        (replace(NEW, has_topic_id=False), OffsetsReason.TARGET_TOO_OLD),
        (replace(NEW, refusal=(OffsetsReason.RIGHTS_MISSING, "no READ")), OffsetsReason.RIGHTS_MISSING),
        (replace(NEW, begins_at=101), OffsetsReason.FILL_TOO_LARGE),
        (replace(NEW, begins_at=51), OffsetsReason.FILL_TOO_LARGE),
    ],
)
def test_what_keeps_a_copy_from_the_sources_offsets_has_a_reason(
    copy: NewCopy, reason: OffsetsReason
) -> None:
    decision = decide(copy, fill_max=100, fill_left=50)
    assert (decision.preserved, decision.reason) == (False, reason)
    assert decision.message


def test_copies_that_cost_least_have_the_total_first() -> None:
    copies = [
        replace(NEW, partition=TopicPartition("t", number), begins_at=begins_at)
        for number, begins_at in enumerate((60, 10, 40, 0))
    ]
    decisions = decide_all(copies, fill_max=100, fill_left=55)
    assert [decisions[copy.partition].preserved for copy in copies] == [False, True, True, True]
    assert "leaves 5" in decisions[copies[0].partition].message


def test_patterns_of_topics_win_over_the_mode_and_translated_over_preserved() -> None:
    rule = OffsetsRule(
        OffsetsSettings(
            mode=OffsetsMode.AUTO, preserved_topics=("paid.*",), translated_topics=("paid-old", "log")
        )
    )
    assert [rule.wanted(name) for name in ("paid", "paid-old", "log", "logs")] == [
        OffsetsMode.PRESERVED,
        OffsetsMode.TRANSLATED,
        OffsetsMode.TRANSLATED,
        OffsetsMode.AUTO,
    ]


@pytest.mark.parametrize("reason", [*OffsetsReason, "FOREIGN_WRITE"])
def test_a_refused_copy_is_told_what_helps(reason: str) -> None:
    assert "why" in refused(reason, "why")
    assert "twinlog.offsets=auto" in refused(reason, "why")


@pytest.mark.parametrize(
    ("common_end", "not_before", "continues_at"),
    [(30, 25, 30), (5, 25, 25), (5, 0, 5)],
    ids=["all is there", "the rest was copied at other offsets", "the rest is not the source's"],
)
def test_a_copy_does_not_begin_before_the_place_that_somebody_told(
    common_end: int, not_before: int, continues_at: int
) -> None:
    copy = replace(
        NEW, begins_at=not_before, not_before=not_before, target_end=30, common=CommonLog(0, common_end)
    )
    assert copy.continues_at == continues_at
