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
        ("(.*)-(.*) -> $2$1", "and so would"),
        ("a -> c; b -> c", "'b' would be called 'c', and so would 'a'"),
        ("x(.*) -> y$1; y(a) -> y$1", "and so would"),
        (f"(.*) -> {'n' * 249}$1", "not a valid topic name"),
    ]:
        with about(rules, said):
            with pytest.raises(ConfigError, match=said) as refused:
                policy(rules)
            assert refused.value.reason == "RENAME_REFUSED"
            assert "twinlog.topic.rename" in str(refused.value)


_ROUTED = (
    # expression, replacement, topic, and its copy in Java
    (r"(.+?)\.(.+)", "copy.$1.of.$2", "orders.eu.x", "copy.A.of.orders.eu.x"),
    (r"A\.(orders|orders-eu)", "A.$1-copy", "orders-eu", "A.orders-copy-eu"),
    (r"A\.(orders-eu|orders)", "A.$1-copy", "orders-eu", "A.orders-eu-copy"),
    (r"(.*?)orders(.*)", "$1sales$2", "orders.orders", "A.sales.orders"),
    (r"(.*)\.(.*)", "$2.$1", "a.a.b", "b.A.a.a"),
    (r"(.*)\.(.*)", "$2.$1", "b.a.a", "a.A.b.a"),
)


@pytest.mark.parametrize(("regex", "replacement", "topic", "copy"), _ROUTED)
def test_a_topic_is_copied_under_javas_name_which_leads_back_to_it(
    regex: str, replacement: str, topic: str, copy: str
) -> None:
    """Lazy groups, and alternatives of which the first one takes less than the whole name."""
    routed = policy("", **routers((regex, replacement)))
    selector = TopicSelector(flow=Flow("A", "B"), policy=routed, topic_filter=topic_lists(".*"))
    decision = selector.decide(topic)
    assert (decision.selected, decision.remote_topic) == (True, copy), decision.rule
    assert (routed.topic_source(copy), routed.upstream_topic(copy)) == ("A", topic)


def routers(*pairs: tuple[str, str]) -> dict[str, str]:
    """Names as keys of the file."""
    names = [f"r{number}" for number in range(1, len(pairs) + 1)]
    keys = {"transforms": ",".join(names)}
    for name, (regex, replacement) in zip(names, pairs, strict=True):
        keys |= {
            f"transforms.{name}.type": "RegexRouter",
            f"transforms.{name}.regex": regex,
            f"transforms.{name}.replacement": replacement,
        }
    return keys


def test_of_two_routers_each_is_undone_and_the_one_that_gives_two_topics_one_name_is_named() -> None:
    both = policy("", **routers(_ROUTED[0][:2], (r"(.*)\.(orders|orders-eu)", "$1.$2-copy")))
    selector = TopicSelector(flow=Flow("A", "B"), policy=both, topic_filter=topic_lists(".*"))
    for topic, copy in (
        ("orders.eu.x", "copy.A.of.orders.eu.x"),
        ("orders-eu", "copy.A.of.orders-copy-eu"),
        ("orders", "copy.A.of.orders-copy"),
    ):
        decision = selector.decide(topic)
        assert (decision.selected, decision.remote_topic) == (True, copy), decision.rule
        assert both.upstream_topic(copy) == topic
    refused = selector.decide("orders-copy")
    assert refused.reason is TopicReason.EXCLUDED
    assert refused.rule.startswith("transforms.r2: its copy would have the name of the copy of orders:")


@given(
    st.sampled_from(_ROUTED),
    st.sets(st.from_regex(r"[abx.-]{0,3}(orders|orders-eu)?[abx.-]{1,4}", fullmatch=True), max_size=8),
)
def test_routed_topics_are_left_out_only_where_two_would_get_one_name(
    router: tuple[str, str, str, str], names: set[str]
) -> None:
    routed = policy("", **routers(router[:2]))
    selector = TopicSelector(flow=Flow("A", "B"), policy=routed, topic_filter=topic_lists(".*", exclude=""))
    copies = [selector.decide(name) for name in names]
    taken = [each for each in copies if each.selected]
    assert len({each.remote_topic for each in taken}) == len(taken)
    for each in copies:
        if "its copy would have the name" in each.rule and each.reason is TopicReason.EXCLUDED:
            other = each.rule.partition("copy of ")[2].partition(":")[0]
            assert other != each.topic
            assert routed.format_remote_topic("A", other) == routed.format_remote_topic("A", each.topic)


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
