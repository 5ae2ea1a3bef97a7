"""Which topics the flows of a properties file select, where names of aliases, separators and other flows
matter."""

import pytest

from twinlog.config import Configuration
from twinlog.model import Flow
from twinlog.selection import TopicReason, TopicSelector
from twinlog.selection_configured import topic_selector
from unit.config.config_files import load_text

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"


def file(aliases: str, *lines: str) -> Configuration:
    servers = [f"{alias.strip()}.bootstrap.servers = {alias.strip()}:9092" for alias in aliases.split(",")]
    return load_text("\n".join([f"clusters = {aliases}", *servers, *lines]))


def selector(configuration: Configuration, source: str, target: str) -> TopicSelector:
    return topic_selector(configuration.flow(Flow(source, target)))


@pytest.mark.parametrize(
    ("aliases", "separator"),
    [("dc-a, dc-b", "-"), ("A.eu, B.eu", "."), ("a__x, a__y", "__"), ("x, x-x", "-")],
)
def test_a_copy_does_not_come_back_where_aliases_contain_the_separator(aliases: str, separator: str) -> None:
    first, second = aliases.split(", ")
    configuration = file(
        aliases,
        f"{first}->{second}.enabled = true",
        f"{second}->{first}.enabled = true",
        f"replication.policy.separator = {separator}",
    )
    there, back = selector(configuration, first, second), selector(configuration, second, first)
    copy = there.decide("orders")
    assert copy.selected
    assert copy.remote_topic == f"{first}{separator}orders"
    assert back.decide(copy.remote_topic).reason is TopicReason.CYCLE
    assert back.policy.topic_source(copy.remote_topic) == first
    assert back.policy.upstream_topic(copy.remote_topic) == "orders"
    assert there.policy.is_heartbeats_topic(f"{first}{separator}heartbeats")


def test_a_copy_goes_round_no_third_cluster_whose_alias_contains_the_separator() -> None:
    aliases = ["dc-a", "dc-b", "dc-c"]
    ways = [(one, other) for one in aliases for other in aliases if one != other]
    configuration = file(
        ", ".join(aliases),
        *(f"{one}->{other}.enabled = true" for one, other in ways),
        "replication.policy.separator = -",
    )
    names = {"dc-a": {"orders"}, "dc-b": set(), "dc-c": set()}
    for _ in range(6):
        for one, other in ways:
            rules = selector(configuration, one, other)
            names[other] |= {rules.decide(name).remote_topic for name in names[one] if rules.selects(name)}
    assert names == {
        "dc-a": {"orders"},
        "dc-b": {"dc-a-orders", "dc-c-dc-a-orders"},
        "dc-c": {"dc-a-orders", "dc-b-dc-a-orders"},
    }


def test_two_clusters_never_share_the_name_of_a_copy() -> None:
    configuration = file("A, A.eu, B", "A->B.enabled = true", "A.eu->B.enabled = true")
    of_a = selector(configuration, "A", "B").decide("eu.payments")
    assert of_a.reason is TopicReason.EXCLUDED
    assert "a copy from cluster A.eu" in of_a.rule
    assert selector(configuration, "A", "B").selects("us.payments")
    assert selector(configuration, "A.eu", "B").decide("payments").remote_topic == "A.eu.payments"


@pytest.mark.parametrize(
    ("line", "topic"),
    [
        ("C->B.offsets.storage.topic = connect-offsets", "connect-offsets"),
        ("B.offset.storage.topic = connect-offsets", "connect-offsets"),
        ("C->B.config.storage.topic = connect-configs", "connect-configs"),
        ("C->B.replication.policy.separator = _", "C_checkpoints_internal"),
        ("C->B.replication.policy.separator = _", "mm2-offset-syncs_C_internal"),
    ],
)
def test_a_flow_that_keeps_names_copies_into_no_topic_of_another_flows_state(line: str, topic: str) -> None:
    configuration = file(
        "A, B, C", IDENTITY, "A->B.enabled = true", "C->B.enabled = true", "topics.exclude =", line
    )
    rules = selector(configuration, "A", "B")
    assert rules.decide(topic).reason is TopicReason.INTERNAL
    assert rules.selects("orders")
