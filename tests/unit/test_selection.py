"""Topic selection: MM2's rule and the reason that decided (MirrorSourceConnectorTest)."""

from dataclasses import replace

import pytest

from twinlog.filters import NameFilter
from twinlog.model import Flow
from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy
from twinlog.policy.rename import RenamingPolicy, parse_renames
from twinlog.selection import TopicDecision, TopicReason, TopicSelector
from unit.cases import about
from unit.name_lists import topic_lists

FLOW = Flow("source", "target")


def selector(
    topic_filter: NameFilter | None = None,
    policy: ReplicationPolicy | None = None,
    *,
    heartbeats: bool = True,
) -> TopicSelector:
    return TopicSelector(
        flow=FLOW,
        policy=policy or DefaultReplicationPolicy(),
        topic_filter=topic_filter or topic_lists(),
        heartbeats_replication_enabled=heartbeats,
    )


NOTHING = topic_lists("")
RENAMED = RenamingPolicy(base=IdentityReplicationPolicy(), renames=parse_renames("team-(.*) -> eu-$1"))


def test_a_selected_topic_says_its_pattern_and_its_name_on_the_target() -> None:
    assert selector().decide("orders") == TopicDecision(
        topic="orders",
        reason=TopicReason.SELECTED,
        rule="topics: pattern '.*'",
        remote_topic="source.orders",
        pattern=".*",
    )


@pytest.mark.parametrize(
    ("topic", "reason", "rule"),
    [
        ("__consumer_offsets", TopicReason.EXCLUDED, "topics.exclude: pattern '__.*'"),
        ("mm2-offsets.A.internal", TopicReason.EXCLUDED, r"topics.exclude: pattern 'mm2.*\\.internal'"),
        (".hidden", TopicReason.INTERNAL, "an internal topic: the name starts with '__' or '.'"),
        ("A.checkpoints.internal", TopicReason.INTERNAL, "a checkpoints topic"),
        ("x.target.t", TopicReason.CYCLE, "came through cluster target"),
        ("source.t", TopicReason.CYCLE, "came through cluster source"),
        ("other.t", TopicReason.SELECTED, "topics: pattern '.*'"),
        ("orders.internal", TopicReason.SELECTED, "topics: pattern '.*'"),
    ],
)
def test_the_first_rule_that_decides_is_the_reason(topic: str, reason: TopicReason, rule: str) -> None:
    decision = selector().decide(topic)
    assert decision.reason is reason
    assert rule in decision.rule
    assert decision.selected is (reason is TopicReason.SELECTED)


def test_mm2_topics_are_internal_even_when_the_filter_takes_them() -> None:
    takes_all = topic_lists(exclude="")
    decision = selector(takes_all).decide("mm2-offsets.A.internal")
    assert decision.reason is TopicReason.INTERNAL
    assert "mirror" in decision.rule
    assert selector(takes_all).decide("__consumer_offsets").reason is TopicReason.INTERNAL


def test_what_no_rule_would_have_copied_is_explained_by_that() -> None:
    rules = selector(
        topic_lists("orders, team-.*", exclude=r"__.*,mm2.*\.internal,logs,team-x"), policy=RENAMED
    )
    told = {name: rules.explain(name).reason for name in ("orders", "other", "logs", "team-x")}
    assert told == {
        "orders": TopicReason.SELECTED,
        "other": TopicReason.NOT_INCLUDED,
        "logs": TopicReason.EXCLUDED,
        "team-x": TopicReason.EXCLUDED,
    }
    assert rules.explain("__consumer_offsets").reason is TopicReason.INTERNAL
    assert rules.explain("mm2-offsets.A.internal").reason is TopicReason.INTERNAL
    named = selector(topic_lists("orders"))
    assert (named.decide("target.t").reason, named.explain("target.t").reason) == (
        TopicReason.NOT_INCLUDED,
        TopicReason.CYCLE,
    )
    assert replace(named, is_stopped=True).explain("orders").reason is TopicReason.EXCLUDED


def test_a_cycle_names_its_cluster() -> None:
    assert selector().decide("x.target.t").alias == "target"


def test_not_included() -> None:
    decision = selector(topic_lists("orders, payments")).decide("other")
    assert decision.reason is TopicReason.NOT_INCLUDED
    assert decision.rule == "topics: no pattern matches"
    assert not decision.selected


def test_heartbeats_are_replicated_though_the_filter_says_no() -> None:
    assert selector(NOTHING).decide("heartbeats").reason is TopicReason.HEARTBEATS
    assert selector(NOTHING).selects("other.heartbeats")
    assert not selector(NOTHING).selects("target.heartbeats")


def test_heartbeats_follow_the_filter_when_their_replication_is_off() -> None:
    assert not selector(NOTHING, heartbeats=False).selects("heartbeats")
    assert selector(heartbeats=False).decide("heartbeats").reason is TopicReason.SELECTED


def test_identity_selects_what_default_calls_a_cycle() -> None:
    identity = IdentityReplicationPolicy(source_cluster_alias="source")
    decision = selector(policy=identity).decide("target.topic1")
    assert decision.selected
    assert decision.remote_topic == "target.topic1"
    assert selector(policy=identity).decide("target.heartbeats").reason is TopicReason.CYCLE


def test_no_topic_is_copied_into_one_of_the_mirrors_own() -> None:
    """Somebody who may create `checkpoints.internal` on A could else write the flow's checkpoints."""
    for policy in [DefaultReplicationPolicy, IdentityReplicationPolicy]:
        for separator in [".", "_", "-"]:
            for internal_separator in [".", "_", "-"]:
                with about(policy, separator, internal_separator):
                    rules = selector(
                        topic_lists(exclude=""),
                        policy(separator=separator, internal_separator=internal_separator),
                    )
                    own = [
                        rules.policy.checkpoints_topic("source"),
                        rules.policy.checkpoints_topic("other"),
                        rules.policy.offset_syncs_topic("source"),
                        *(
                            f"mm2-{kind}.source.internal"
                            for kind in ("offsets", "configs", "status", "configsync", "failover")
                        ),
                    ]
                    names = {name.removeprefix(f"source{separator}") for name in own} | set(own)
                    decisions = [
                        decision for decision in map(rules.decide, names) if decision.remote_topic in own
                    ]
                    assert {decision.reason for decision in decisions} <= {TopicReason.INTERNAL}
                    assert decisions or separator != internal_separator
                    assert rules.decide("orders.internal").selected


def test_the_configured_positions_topic_is_not_a_copys_name() -> None:
    rules = replace(selector(), own_topics=frozenset({"source.positions"}))
    decision = rules.decide("positions")
    assert decision.reason is TopicReason.INTERNAL
    assert "source.positions" in decision.rule
    assert rules.decide("orders").selected


def test_checkpoints_internal_of_the_source_is_internal() -> None:
    decision = selector().decide("checkpoints.internal")
    assert (decision.reason, decision.remote_topic) == (TopicReason.INTERNAL, "source.checkpoints.internal")
    assert "an internal topic of a flow" in decision.rule
