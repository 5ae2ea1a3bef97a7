"""Connect's transforms in a properties file: their keys, and what they do to names and offsets."""

import pytest

from twinlog.config import OffsetsMode
from twinlog.errors import ConfigError
from twinlog.policy import policy_from_config
from twinlog.policy.expected_offsets import offsets_rule
from twinlog.policy.transformed import TopicTransforms
from unit.config.config_files import TWO_CLUSTERS, load_text, problems

_FILTER = """
A->B.transforms = drop
A->B.transforms.drop.type = org.apache.kafka.connect.transforms.Filter
A->B.transforms.drop.predicate = audit
A->B.predicates = audit
A->B.predicates.audit.type = org.apache.kafka.connect.transforms.predicates.TopicNameMatches
A->B.predicates.audit.pattern = A\\\\.audit.*
"""
_ROUTER = """
A->B.transforms = route
A->B.transforms.route.type = org.apache.kafka.connect.transforms.RegexRouter
A->B.transforms.route.regex = A\\\\.(.*)
A->B.transforms.route.replacement = {}
"""


@pytest.mark.parametrize("written", [".audit.*", "transforms.Filter"])
def test_blanks_around_a_value_are_no_part_of_it_but_behind_negate(written: str) -> None:
    text = TWO_CLUSTERS + _FILTER
    flow = load_text(text.replace(written, f"{written} \\t")).enabled_flows[0]
    assert TopicTransforms(flow.policy_config, "A").of("audit.log").drops_records
    with pytest.raises(ConfigError, match="negate: must be true or false, not 'true '"):
        load_text(text + "A->B.transforms.drop.negate = true \n")


def test_a_flow_has_the_transforms_of_its_file() -> None:
    flow = load_text(TWO_CLUSTERS + _FILTER).enabled_flows[0]
    transforms = TopicTransforms(flow.policy_config, "A")
    assert transforms.of("audit.log").drops_records
    assert transforms.changes("orders") is None
    assert transforms.changes("heartbeats") is None


def test_routers_of_single_records_leave_all_records_as_they_are_and_other_steps_do_not() -> None:
    day = "\nA->B.transforms.day.type = org.apache.kafka.connect.transforms.TimestampRouter\n"
    for names, changes in (("day", False), ("day, drop", True)):
        text = (TWO_CLUSTERS + _FILTER + day).replace("transforms = drop", f"transforms = {names}")
        transforms = TopicTransforms(load_text(text).enabled_flows[0].policy_config, "A")
        assert (transforms.routes_records("orders"), transforms.changes_content("orders")) == (True, changes)
    transforms = TopicTransforms(load_text(TWO_CLUSTERS + _FILTER).enabled_flows[0].policy_config, "A")
    assert (transforms.changes_content("audit"), transforms.changes_content("orders")) == (True, False)


def test_transforms_at_the_top_level_hold_for_every_flow() -> None:
    flow = load_text(TWO_CLUSTERS + _FILTER.replace("A->B.", "")).enabled_flows[0]
    assert TopicTransforms(flow.policy_config, "A").dropped_by("audit") == "transforms"


def test_a_copy_that_lacks_records_is_translated() -> None:
    rule = offsets_rule(load_text(TWO_CLUSTERS + _FILTER).enabled_flows[0])
    assert rule.wanted("audit") is OffsetsMode.TRANSLATED
    assert rule.translated_by("audit") == "transforms"
    assert rule.wanted("orders") is OffsetsMode.AUTO


@pytest.mark.parametrize(
    ("replacement", "topic", "copy"),
    [("$1", "orders", "orders"), ("eu-$1", "orders", "eu-orders"), ("eu-$1", "a.b", "eu-a.b")],
)
def test_a_router_names_copies_and_its_names_are_read_back(replacement: str, topic: str, copy: str) -> None:
    flow = load_text(TWO_CLUSTERS + _ROUTER.format(replacement)).enabled_flows[0]
    policy = policy_from_config(flow.policy_config)
    assert policy.format_remote_topic("A", topic) == copy
    assert (policy.topic_source(copy), policy.upstream_topic(copy)) == ("A", topic)


def test_heartbeats_and_internal_topics_are_not_routed() -> None:
    policy = policy_from_config(
        load_text(TWO_CLUSTERS + _ROUTER.format("eu-$1")).enabled_flows[0].policy_config
    )
    assert policy.format_remote_topic("A", "heartbeats") == "A.heartbeats"
    assert policy.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert policy.checkpoints_topic("A") == "A.checkpoints.internal"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A->B.transforms = mask", "A->B.transforms.mask.type: must have a value"),
        (_ROUTER.replace("RegexRouter", "SetSchemaMetadata$Value"),
         "A->B.transforms.route.type: Twinlog does not have the transform"),
        (_FILTER.replace("= audit", "= other", 1), "A->B.transforms.drop.predicate: predicates does not"),
        ("A->B.header.converter = org.apache.kafka.connect.storage.SimpleHeaderConverter",
         "A->B.header.converter: "),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_its_key(line: str, problem: str) -> None:
    (found,) = problems(f"{TWO_CLUSTERS}\n{line}")
    assert problem in found


def test_headers_may_have_the_converter_that_mirror_maker_needs_to_insert_one() -> None:
    converter = "A->B.header.converter = org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert load_text(f"{TWO_CLUSTERS}{_FILTER}{converter}").enabled_flows


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ("RegexRouter\nA->B.transforms.route.regex = (.*)[0-9]\nA->B.transforms.route.replacement = $1",
         "is not part of a topic name"),
        ("RegexRouter\nA->B.transforms.route.regex = (.*)-(.*)\nA->B.transforms.route.replacement = $1",
         "each pair of parentheses must be used exactly once"),
    ],
)  # fmt: skip
def test_a_router_whose_names_cannot_be_read_back_is_refused(transform: str, why: str) -> None:
    text = f"{TWO_CLUSTERS}\nA->B.transforms = route\nA->B.transforms.route.type = {transform}"
    with pytest.raises(ConfigError) as raised:
        policy_from_config(load_text(text).enabled_flows[0].policy_config)
    assert str(raised.value).startswith("transforms.route: ")
    assert why in str(raised.value)
