"""What `twinlog local up` prints can be pasted: addresses, and a properties file that its clusters run."""

import re
from pathlib import Path

import pytest

from twinlog.cli.common.fields import cells_of, columns_of, table_lines
from twinlog.cli.local import CLUSTER, file_of_started, mirror_file
from twinlog.config import load
from twinlog.local.registry import BrokerState, RunningBroker, RunningCluster


def cluster(name: str, brokers: int, security_protocol: str = "PLAINTEXT") -> RunningCluster:
    return RunningCluster(
        name=name,
        cluster_id=name,
        kafka_version="4.3.1",
        bootstrap_servers=",".join(f"{name}:{number}" for number in range(1, brokers + 1)),
        security_protocol=security_protocol,
        client_file="",
        brokers=tuple(
            RunningBroker(
                broker_id=number, address="127.0.0.1:1", pid=1, state=BrokerState.RUNNING, log_file=""
            )
            for number in range(brokers)
        ),
    )


@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (2, 2), (3, 3)])
def test_it_enables_a_flow_and_asks_each_cluster_for_no_more_replicas_than_it_has_brokers(
    brokers: int, factor: int, tmp_path: Path
) -> None:
    text = mirror_file(cluster("east", 3), cluster("west", brokers))
    file = tmp_path / "mm2.properties"
    file.write_text(text)
    configuration = load(file, environ={})
    assert [str(each.flow) for each in configuration.enabled_flows] == ["east->west"]
    assert [each.text for each in configuration.notices if each.level == "warning"] == []
    assert re.findall(r"replication\.factor=(\d)", text) == ["3"] * 6 + [str(factor)] * 7


def test_clusters_that_are_started_one_at_a_time_have_a_file_as_those_that_are_started_together() -> None:
    west, east, locked = cluster("west", 1), cluster("east", 1), cluster("locked", 1, "SASL_PLAINTEXT")
    assert file_of_started([west, east], [west, east]) == mirror_file(west, east)
    assert file_of_started([west], [west]) == ""
    assert file_of_started([east], [east, west]) == mirror_file(west, east)
    assert file_of_started([locked], [locked, west]) == ""


def test_addresses_are_shown_as_a_properties_file_has_them() -> None:
    shown = [cells_of(CLUSTER, cluster("east", 3))]
    for width in (None, 80, 200):
        lines = table_lines(columns_of(CLUSTER), shown, width=width)
        assert any("east:1,east:2,east:3" in line for line in lines)
