"""Why a group is translated or not, from what is known of it."""

from dataclasses import replace

from twinlog_checkpoint.api.group_explainer import GroupFacts, Rule, explain
from unit.name_lists import group_lists


def test_offsets_that_may_not_be_read_are_said_with_the_reason() -> None:
    facts = GroupFacts(
        cluster_problem="",
        verdict=group_lists().judge("g"),
        state_on_source="EMPTY",
        group_type="classic",
        offsets=None,
        offsets_problem="no right to read offsets of group g",
        listed=True,
        refresh_interval_seconds=600,
        syncs_are_read=True,
        syncs_problem="",
        group_sync_enabled=True,
        state_on_target=None,
    )
    last = explain(facts)[-1]
    assert (last.rule, last.passed) == (Rule.OFFSETS, False)
    assert last.message == "its offsets cannot be read: no right to read offsets of group g"
    ruled = explain(replace(facts, changed_keys=("topics", "groups")))
    assert [each.message for each in ruled if each.rule is Rule.FILTER] == [
        "groups includes it by '.*' (groups: changed live, not the file's; `twinlog rules diff`)"
    ]
