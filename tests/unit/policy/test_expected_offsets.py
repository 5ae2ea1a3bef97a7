"""Which offsets new copies will have, and what filling costs."""

import pytest

from twinlog.config.flow.settings import OffsetsMode, OffsetsSettings
from twinlog.policy.expected_offsets import (
    ExpectedReason,
    OffsetsRule,
    UncopiedTopic,
    expected_offsets,
    offsets_rule,
)
from unit.config.config_files import TWO_CLUSTERS, load_text

RULE = OffsetsRule(OffsetsSettings(mode=OffsetsMode.AUTO, fill_max=1_000, fill_total=1_500))


def topic(name: str, *log_starts: int, cleanup_policy: str = "delete") -> UncopiedTopic:
    return UncopiedTopic(name=name, cleanup_policy=cleanup_policy, log_starts=log_starts)


def test_topics_that_cost_least_share_what_may_be_filled_first() -> None:
    topics = [topic("old", 900, 100), topic("new", 0, 0), topic("older", 950), topic("younger", 0, 400)]
    found = expected_offsets(topics, RULE, exactly_once=True)
    assert {name: (each.preserved, each.filled_offsets) for name, each in found.items()} == {
        "new": (True, 0),
        "younger": (True, 400),
        "old": (True, 1_000),
        "older": (False, 0),
    }
    assert found["older"].key == "twinlog.offsets.fill.total"
    assert "leaves 100" in found["older"].message
    assert found["old"].filled_bytes == 820


@pytest.mark.parametrize(
    ("asked", "mode", "exactly_once", "reason"),
    [
        (topic("t", 0), OffsetsMode.TRANSLATED, True, ExpectedReason.OFFSETS_CONFIGURED),
        (topic("t", 0), OffsetsMode.AUTO, False, ExpectedReason.TRANSACTIONS_DISABLED),
        (topic("t", 0, cleanup_policy="compact,delete"), OffsetsMode.AUTO, True, ExpectedReason.COMPACTED),
        (topic("t", 0, 1_001), OffsetsMode.PRESERVED, True, ExpectedReason.FILL_TOO_LARGE),
    ],
)
def test_a_copy_that_cannot_have_the_sources_offsets_says_why(
    asked: UncopiedTopic, mode: OffsetsMode, exactly_once: bool, reason: str
) -> None:
    rule = OffsetsRule(OffsetsSettings(mode=mode, fill_max=1_000, fill_total=1_500))
    found = expected_offsets([asked], rule, exactly_once=exactly_once)["t"]
    assert (found.preserved, found.reason, found.filled_offsets) == (False, reason, 0)
    assert found.message
    assert found.must is (mode is OffsetsMode.PRESERVED)


@pytest.mark.parametrize("key", ["twinlog.offsets = preserved", "twinlog.offsets.preserved.topics = .*"])
def test_heartbeats_which_are_always_compacted_need_not_keep_the_sources_offsets(key: str) -> None:
    rule = offsets_rule(load_text(f"{TWO_CLUSTERS}{key}\n").enabled_flows[0])
    wanted = [rule.wanted(name) for name in ("heartbeats", "B.heartbeats", "orders")]
    assert wanted == [OffsetsMode.AUTO, OffsetsMode.AUTO, OffsetsMode.PRESERVED]


def test_no_copy_has_the_sources_offsets_where_all_are_to_have_their_own() -> None:
    rule = offsets_rule(load_text(f"{TWO_CLUSTERS}twinlog.offsets = translated\n").enabled_flows[0])
    assert rule.wanted("heartbeats") is rule.wanted("orders") is OffsetsMode.TRANSLATED
