"""The properties that MirrorMaker 2 gets in tests."""

from twinlog import properties
from twinlog.model import Flow
from twinlog.testing.java.mm2 import quick_mm2_properties

_CLUSTERS = {"A": {"bootstrap.servers": "a:1"}, "B": {"bootstrap.servers": "b:1", "security.protocol": "SSL"}}


def _read(text: str) -> dict[str, str]:
    entries = properties.parse(text.encode(), file="mm2").entries
    return {key: entry.value for key, entry in entries.items()}


def test_clusters_and_flows_are_named() -> None:
    settings = _read(quick_mm2_properties(_CLUSTERS, [Flow("A", "B")]))
    assert settings["clusters"] == "A, B"
    assert settings["A.bootstrap.servers"] == "a:1"
    assert settings["B.security.protocol"] == "SSL"
    assert settings["A->B.enabled"] == "true"
    assert settings["offset-syncs.topic.replication.factor"] == "1"


def test_the_other_direction_gets_no_worker_unless_it_is_a_flow() -> None:
    one_way = _read(quick_mm2_properties(_CLUSTERS, [Flow("A", "B")]))
    both_ways = _read(quick_mm2_properties(_CLUSTERS, [Flow("A", "B"), Flow("B", "A")]))
    assert one_way["B->A.emit.heartbeats.enabled"] == "false"
    assert not [key for key in both_ways if key.endswith("emit.heartbeats.enabled")]


def test_extra_settings_win() -> None:
    settings = _read(quick_mm2_properties(_CLUSTERS, [Flow("A", "B")], {"replication.factor": "3"}))
    assert settings["replication.factor"] == "3"
