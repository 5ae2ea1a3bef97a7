"""`twinlog topology`: what the tree, JSON and Graphviz say of clusters, flows and paths."""

from dataclasses import replace

from twinlog.cli.status.rows import ClusterRow, FlowRow, Note, Status
from twinlog.cli.topology import Link, Topology, as_dot, as_json, as_tree, without_heartbeats
from twinlog.errors import TransientKafkaError

ALIVE = Link(source="A", target="B", state="ALIVE", delay_seconds=0.0421, age_seconds=0.3)
SILENT = Link(
    source="B", target="C", state="SILENT", age_seconds=42.0, reason="HEARTBEAT_MISSING", message="none"
)
CHAIN = Topology(
    clusters={"A": "", "B": "", "C": "KAFKA_TIMEOUT"},
    links=[ALIVE, SILENT],
    paths=[(("A", "B"), "A.heartbeats"), (("A", "B", "C"), "B.A.heartbeats")],
)


def test_a_chain_is_a_tree_with_states_and_delays_and_the_paths_that_were_seen() -> None:
    assert list(as_tree(CHAIN)) == [
        "A",
        "└─ B  heartbeats ALIVE, 0.042 s",
        "   └─ C [KAFKA_TIMEOUT]  heartbeats SILENT: HEARTBEAT_MISSING",
        "",
        "heartbeats seen:",
        "  A -> B (A.heartbeats)",
        "  A -> B -> C (B.A.heartbeats)",
    ]


def test_states_and_lag_of_the_copies_come_before_the_heartbeats() -> None:
    copied = replace(ALIVE, partitions={"RUNNING": 36, "PAUSED": 2}, lag_records=20744)
    assert copied.words == "2 PAUSED, 36 RUNNING, lag 20,744; heartbeats ALIVE, 0.042 s"
    assert replace(copied, lag_records=None).words.startswith("2 PAUSED, 36 RUNNING, lag ?; ")


def test_a_circle_ends_and_is_said_once() -> None:
    back = Link(source="B", target="A", state="ALIVE", delay_seconds=1.0)
    lines = list(as_tree(Topology(clusters={"A": "", "B": ""}, links=[ALIVE, back], paths=[])))
    assert lines == ["A", "└─ B  heartbeats ALIVE, 0.042 s", "   └─ A  heartbeats ALIVE, 1.000 s (see above)"]


def test_a_fan_out_and_a_cluster_of_no_flow_are_all_there() -> None:
    other = Link(source="A", target="C", state="UNKNOWN", reason="STARTING")
    lines = list(
        as_tree(Topology(clusters={"A": "", "B": "", "C": "", "D": ""}, links=[other, ALIVE], paths=[]))
    )
    assert lines == ["A", "├─ B  heartbeats ALIVE, 0.042 s", "└─ C  heartbeats UNKNOWN: STARTING", "D"]


def test_json_holds_every_cluster_flow_and_path() -> None:
    found = as_json(CHAIN)
    assert found["clusters"][2] == {"alias": "C", "reachable": False, "reason": "KAFKA_TIMEOUT"}
    assert found["flows"][0]["flow"] == "A->B"
    assert found["flows"][0]["delay_seconds"] == 0.0421
    assert found["flows"][1]["delay_seconds"] is None
    assert found["paths"][1] == {"clusters": ["A", "B", "C"], "topic": "B.A.heartbeats"}


def test_graphviz_gets_quoted_names_and_dashes_for_what_does_not_arrive() -> None:
    odd = Link(source='A"x', target="B", state="SILENT", reason="HEARTBEAT_MISSING")
    lines = list(as_dot(Topology(clusters={'A"x': ""}, links=[odd], paths=[])))
    assert lines[0] == "digraph twinlog {"
    assert lines[-1] == "}"
    assert '  "A\\"x" -> "B" [label="heartbeats SILENT: HEARTBEAT_MISSING", style=dashed];' in lines


def test_a_clock_that_is_off_is_said() -> None:
    off = Link(source="A", target="B", state="ALIVE", delay_seconds=0.1, clock_skew_seconds=-2.04)
    assert list(as_tree(Topology(clusters={}, links=[off], paths=[]))) == [
        "A",
        "└─ B  heartbeats ALIVE, 0.100 s, another writer's clock is 2.0 s behind",
    ]


def test_without_the_heartbeat_service_the_others_tell_of_clusters_and_flows() -> None:
    away = Note(service="source", reason="KAFKA_TIMEOUT", message="no answer")
    status = Status(
        services=[],
        flows={"A->B": FlowRow(flow="A->B"), "B->C": FlowRow(flow="B->C")},
        clusters={
            "A": ClusterRow(alias="A", seen_by={"source": True}),
            "B": ClusterRow(alias="B", seen_by={"source": False, "checkpoint": True}, notes=[away]),
            "C": ClusterRow(alias="C", seen_by={"source": False}, notes=[away]),
        },
    )
    found = without_heartbeats(status, TransientKafkaError("no answer in time", reason="PEER_TIMEOUT"))
    assert list(as_tree(found)) == [
        "A",
        "└─ B  heartbeats UNKNOWN: PEER_TIMEOUT",
        "   └─ C [KAFKA_TIMEOUT]  heartbeats UNKNOWN: PEER_TIMEOUT",
    ]
    assert [flow["state"] for flow in as_json(found)["flows"]] == ["UNKNOWN", "UNKNOWN"]
