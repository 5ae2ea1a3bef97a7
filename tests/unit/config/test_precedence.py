"""Which setting wins: against MM2's own MirrorMakerConfig."""

from collections.abc import Callable
from typing import Any

import pytest

from twinlog.config.values import precedence as precedence
from twinlog.config.values.precedence import ClusterSide, Connector, Settings
from twinlog.model import Flow
from twinlog.properties import Property

Golden = Callable[[str], list[dict[str, Any]]]
A_TO_B = Flow("a", "b")


def settings(values: dict[str, str]) -> dict[str, Property]:
    return {key: Property(key=key, value=value, line=1) for key, value in values.items()}


def plain(properties: Settings) -> dict[str, str]:
    return {key: prop.value for key, prop in properties.items()}


def unresolved(prop: Property) -> Property:
    return prop


def test_every_setting_is_mm2s(golden: Golden) -> None:
    for vector in golden("config_precedence"):
        raw = settings(vector["properties"])
        flows = precedence.herder_flows(vector["properties"], ["A", "B"])
        assert sorted(str(flow) for flow in flows) == vector["flows"]
        for flow in flows:
            expected = vector["by_flow"][str(flow)]
            base = precedence.connector_properties(raw, flow, Connector.SOURCE)
            assert plain(base) == expected["connector"]
            assert plain(precedence.worker_properties(raw, flow, unresolved)) == expected["worker"]
            aliases = Flow(base["source.cluster.alias"].value, base["target.cluster.alias"].value)
            clients = {
                f"{side}_{kind}": plain(properties(base, side))
                for side in ClusterSide
                for kind, properties in (
                    ("consumer", precedence.consumer_properties),
                    ("producer", precedence.producer_properties),
                    ("admin", precedence.admin_properties),
                )
            }
            for name, client in clients.items():
                user = client.get("client.id")
                client["client.id"] = precedence.client_id(aliases, base["name"].value, "role", user=user)
                assert client == expected[name], name
        for alias, by_client in vector["mirror_clients"].items():
            for client_name, given in by_client.items():
                assert plain(precedence.mirror_client_properties(raw, alias, client_name)) == given


@pytest.mark.parametrize(
    ("value", "runs"), [("true", True), ("TRUE", True), ("true ", False), ("yes", False), ("false", False)]
)
def test_flows_are_found_with_javas_parse_boolean(value: str, runs: bool) -> None:
    flows = precedence.herder_flows({"emit.heartbeats.enabled": "false", "a->b.enabled": value}, ["a", "b"])
    assert (A_TO_B in flows) is runs


def test_references_stay_as_written_in_connectors_and_are_resolved_for_workers() -> None:
    raw = settings({"ssl.key.password": "${fake:secret:password}", "config.providers": "${fake:x:y}"})

    def resolved(prop: Property) -> Property:
        return Property(key=prop.key, value="secret2")

    base = plain(precedence.connector_properties(raw, A_TO_B, Connector.SOURCE))
    worker = plain(precedence.worker_properties(raw, A_TO_B, resolved))
    assert base["ssl.key.password"] == base["source.producer.ssl.key.password"] == "${fake:secret:password}"
    assert worker["ssl.key.password"] == worker["producer.ssl.key.password"] == "secret2"
    assert worker["config.providers"] == "${fake:x:y}"


def test_the_data_producer_takes_the_targets_settings_and_the_flows_overrides() -> None:
    raw = settings(
        {
            "b.bootstrap.servers": "b:1",
            "b.producer.linger.ms": "5",
            "b.producer.batch.size": "1",
            "a->b.producer.override.batch.size": "2",
            "a->b.producer.compression.type": "lz4",
            "ssl.key.password": "x",
        }
    )
    worker = precedence.worker_properties(raw, A_TO_B, unresolved)
    base = precedence.connector_properties(raw, A_TO_B, Connector.SOURCE)
    assert plain(precedence.data_producer_properties(worker, base)) == {
        "bootstrap.servers": "b:1",
        "linger.ms": "5",
        "batch.size": "2",
        "ssl.key.password": "x",
    }
