"""Which topics together are one logical topic."""

from twinlog.client.logical_consumer import MemberTopic, members
from twinlog.policy import DefaultReplicationPolicy, IdentityReplicationPolicy

TOPICS = [
    "orders",
    "A.orders",
    "B.C.orders",
    "A.payments",
    "orders-archive",
    "A.orders-archive",
    "heartbeats",
]


def test_the_topic_and_its_copies_over_any_number_of_hops() -> None:
    found = members(DefaultReplicationPolicy(), TOPICS, ["orders"])
    assert found == {
        "orders": MemberTopic(topic="orders", logical_topic="orders", upstream=()),
        "A.orders": MemberTopic(topic="A.orders", logical_topic="orders", upstream=("A",)),
        "B.C.orders": MemberTopic(topic="B.C.orders", logical_topic="orders", upstream=("C", "B")),
    }
    assert {name: member.origin for name, member in found.items()} == {
        "orders": None,
        "A.orders": "A",
        "B.C.orders": "C",
    }


def test_several_logical_topics() -> None:
    found = members(DefaultReplicationPolicy(), TOPICS, ["orders-archive", "payments"])
    assert {name: member.logical_topic for name, member in found.items()} == {
        "A.payments": "payments",
        "orders-archive": "orders-archive",
        "A.orders-archive": "orders-archive",
    }


def test_a_logical_name_with_the_separator_is_itself() -> None:
    found = members(DefaultReplicationPolicy(), ["v1.orders", "A.v1.orders", "orders"], ["v1.orders"])
    assert sorted(found) == ["A.v1.orders", "v1.orders"]
    assert found["v1.orders"].origin is None


def test_where_names_are_kept_there_is_one() -> None:
    assert sorted(members(IdentityReplicationPolicy(), TOPICS, ["orders"])) == ["orders"]


def test_in_a_mesh_each_origin_is_read_once_from_its_nearest_copy() -> None:
    mesh = ["orders", "A.orders", "C.A.orders", "A.C.orders", "D.C.orders"]
    found = members(DefaultReplicationPolicy(), mesh, ["orders"])
    assert {name: member.origin for name, member in found.items()} == {
        "orders": None,
        "A.orders": "A",
        "A.C.orders": "C",
    }


def test_names_that_only_look_like_copies_are_told_apart_by_the_aliases() -> None:
    topics = ["orders", "v1.orders", "A.orders", "A.v1.orders"]
    anything = members(DefaultReplicationPolicy(), topics, ["orders"])
    assert sorted(anything) == ["A.orders", "orders", "v1.orders"]
    assert sorted(members(DefaultReplicationPolicy(), topics, ["orders"], ["A", "B"])) == [
        "A.orders",
        "orders",
    ]
