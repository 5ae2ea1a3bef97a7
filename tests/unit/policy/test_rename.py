"""`twinlog.topic.rename`: every name can be read back, and two topics never get one name."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import ConfigError
from twinlog.model import Flow
from twinlog.policy import ReplicationPolicy, cycle_alias, policy_from_config, upstream_clusters
from twinlog.policy.rename import parse_renames
from twinlog.selection import TopicReason, TopicSelector
from unit.cases import about
from unit.name_lists import topic_lists

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
RULES = "team-(.*) -> eu-team-$1; legacy_orders -> orders; ([a-z]+)_v([0-9]+) -> v$2.$1"
topics = st.one_of(
    st.text(alphabet=string.ascii_lowercase[:4] + "._-1", min_size=1, max_size=12),
    st.sampled_from(
        ["team-a", "eu-team-a", "eu-team-team-a", "orders", "legacy_orders", "ab_v1", "v1.ab", "v1.v1"]
    ),
)


def policy(rules: str = RULES, **more: str) -> ReplicationPolicy:
    return policy_from_config({"twinlog.topic.rename": rules, "source.cluster.alias": "A", **more})


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("team-orders", "eu-team-orders"),
        ("team-", "eu-team-"),
        ("legacy_orders", "orders"),
        ("clicks_v12", "v12.clicks"),
        ("clicks_v", "clicks_v"),
        ("a.team-b", "a.team-b"),
    ],
)
def test_the_first_rule_that_takes_the_whole_name_renames(topic: str, name: str) -> None:
    renames = parse_renames(RULES)
    assert renames.apply(topic) == name
    assert renames.undo(name) == topic
    assert renames.in_the_way(topic) is None


@given(topics)
def test_what_is_not_in_the_way_is_read_back(topic: str) -> None:
    renames = parse_renames(RULES)
    other = renames.in_the_way(topic)
    if other is None:
        assert renames.undo(renames.apply(topic)) == topic
    else:
        assert other != topic
        assert renames.apply(other) == renames.apply(topic)


@given(st.sets(topics, max_size=8), st.sampled_from(["", IDENTITY]))
def test_selected_topics_never_share_a_copy(names: set[str], policy_class: str) -> None:
    more = {"replication.policy.class": policy_class} if policy_class else {}
    chosen = policy(**more)
    selector = TopicSelector(flow=Flow("A", "B"), policy=chosen, topic_filter=topic_lists(".*"))
    taken = [decision for name in names if (decision := selector.decide(name)).selected]
    assert len({decision.remote_topic for decision in taken}) == len(taken)
    for decision in taken:
        assert chosen.upstream_topic(decision.remote_topic) == decision.topic
        assert chosen.topic_source(decision.remote_topic) == "A"


def test_rules_that_cannot_be_read_back_are_refused_before_anything_starts() -> None:
    for rules, said in [
        ("orders", "must have the form 'TOPIC -> NEW NAME'"),
        ("orders -> ", "must have the form 'TOPIC -> NEW NAME'"),
        ("team.* -> x", "put regular expressions in parentheses"),
        ("(team) -> x", "exactly once"),
        ("(a)(b) -> $1$1", "exactly once"),
        ("(a) -> $2", r"\$2 names no parentheses"),
        ("((a)b) -> $1", "none inside another"),
        ("([) -> $1", "not a valid regular expression"),
        ("a -> b/c", "not part of a topic name"),
        ("(.*)-(.*) -> $2-$1", "and so would"),
        ("a -> c; b -> c", "'b' would be called 'c', and so would 'a'"),
        ("x(.*) -> y$1; y(a) -> y$1", "and so would"),
        (f"(.*) -> {'n' * 249}$1", "not a valid topic name"),
    ]:
        with about(rules, said):
            with pytest.raises(ConfigError, match=said) as refused:
                policy(rules)
            assert refused.value.reason == "RENAME_REFUSED"
            assert "twinlog.topic.rename" in str(refused.value)


def test_a_topic_that_has_the_new_name_of_another_is_not_copied_and_says_why() -> None:
    selector = TopicSelector(flow=Flow("A", "B"), policy=policy(), topic_filter=topic_lists(".*"))
    decision = selector.decide("orders")
    assert decision.reason is TopicReason.EXCLUDED
    assert "legacy_orders" in decision.rule
    assert "twinlog.topic.rename" in decision.rule
    assert selector.decide("legacy_orders").selected


def test_names_on_the_target_carry_the_alias_unless_the_policy_keeps_names() -> None:
    assert policy().format_remote_topic("A", "team-x") == "A.eu-team-x"
    assert policy().upstream_topic("A.eu-team-x") == "team-x"
    assert policy().original_topic("A.eu-team-x") == "team-x"
    keeping = policy(**{"replication.policy.class": IDENTITY})
    assert keeping.format_remote_topic("A", "team-x") == "eu-team-x"
    assert keeping.upstream_topic("eu-team-x") == "team-x"
    assert keeping.original_topic("eu-team-x") == "team-x"


@pytest.mark.parametrize(
    "topic", ["heartbeats", "A.heartbeats", "mm2-offsets.A.internal", "A.checkpoints.internal"]
)
def test_heartbeats_and_internal_topics_keep_the_names_by_which_others_find_them(topic: str) -> None:
    everything = policy("(.*) -> eu-$1")
    plain = policy("")
    assert everything.format_remote_topic("A", topic) == plain.format_remote_topic("A", topic)
    assert everything.upstream_topic(topic) == plain.upstream_topic(topic)
    assert upstream_clusters(everything, ["A.heartbeats"]) == {"A"}
    assert everything.format_remote_topic("A", "") == "A.", "what all copies begin with"


def test_names_that_lead_back_to_each_other_end_the_search_for_circles() -> None:
    swapped = policy("a -> b; b -> a", **{"replication.policy.class": IDENTITY})
    assert cycle_alias(swapped, Flow("A", "B"), "a") is None
    assert swapped.original_topic("a") == "b"


def test_without_rules_there_is_the_policy_itself() -> None:
    assert policy("  ") == policy_from_config({"source.cluster.alias": "A"})
    assert policy() == policy()


@pytest.mark.parametrize("policy_class", ["", IDENTITY])
@pytest.mark.parametrize(
    ("rules", "topic"),
    [
        ("legacy-(.*) -> $1", "orders"),
        ("team-(team.*) -> $1", "teamx"),
        ("team-(team.*) -> $1", "team-teamx"),
        ("A.b.(.*) -> $1", "A.orders"),
    ],
)
def test_a_rule_that_strips_a_prefix_names_no_endless_way(rules: str, topic: str, policy_class: str) -> None:
    more = {"replication.policy.class": policy_class} if policy_class else {}
    named = policy(rules, **more)
    selector = TopicSelector(flow=Flow("A", "B"), policy=named, topic_filter=topic_lists(".*"))
    assert selector.decide(topic).remote_topic == named.format_remote_topic("A", topic)
    assert len(named.original_topic(topic)) <= 249


@given(
    st.sampled_from(["legacy-(.*) -> $1", "(.*)-old -> $1", "(_*)x(.*) -> $1$2"]),
    st.text(alphabet="_.x-old", max_size=6).map(lambda text: f"legacy-{text}consumer_offsets-old"),
    st.sampled_from(["", IDENTITY]),
)
def test_no_rule_makes_a_copy_an_internal_topic_of_the_target(
    rule: str, topic: str, policy_class: str
) -> None:
    """Config sync would change the target's own `__consumer_offsets`."""
    more = {"replication.policy.class": policy_class} if policy_class else {}
    selector = TopicSelector(
        flow=Flow("A", "B"),
        policy=policy(rule, **more),
        topic_filter=topic_lists(exclude=""),
    )
    decision = selector.decide(topic)
    assert not decision.selected or not decision.remote_topic.startswith(("__", "."))


def test_a_renamed_copy_is_never_called_consumer_offsets() -> None:
    selector = TopicSelector(
        flow=Flow("A", "B"),
        policy=policy("legacy-(.*) -> $1", **{"replication.policy.class": IDENTITY}),
        topic_filter=topic_lists("legacy-.*"),
    )
    decision = selector.decide("legacy-__consumer_offsets")
    assert (decision.reason, decision.remote_topic) == (TopicReason.INTERNAL, "__consumer_offsets")
    assert selector.selects("legacy-orders")
