"""`twinlog status --check` is 0 only if everything moves."""

from collections.abc import Callable

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.check import problems_of
from twinlog.cli.status.query import explain_silence
from twinlog.cli.status.rows import FlowRow, InForce, ServiceRow, Status
from twinlog.cli.status.view import check_lines


def healthy() -> Status:
    status = Status(
        services=[
            ServiceRow(name=name, endpoint="h:1", health="SERVING")
            for name in ("source", "checkpoint", "heartbeat", "configsync")
        ]
    )
    row = status.flow(types_pb2.Flow(source="A", target="B"))
    row.partitions, row.records, row.lag_records = {"RUNNING": 3, "PAUSED": 0}, 7, 5_000
    row.partitions_of_unknown_lag, row.path = 0, "ALIVE"
    status.add_clusters("source", [types_pb2.ClusterStatus(alias="A", reachable=True)])
    return status


def flow(status: Status) -> FlowRow:
    return status.flows["A->B"]


def pause(status: Status) -> None:
    flow(status).partitions = {"PAUSED": 3}
    flow(status).in_force.append(InForce(kind="PAUSE", about="A->B", message="paused"))


def service_down(status: Status) -> None:
    status.services[1] = ServiceRow(
        name="checkpoint", endpoint="h:1", reason="PEER_UNAVAILABLE", message="refused"
    )


def cluster_away(status: Status) -> None:
    away = types_pb2.ClusterStatus(alias="B", reachable=False, reason="KAFKA_UNAVAILABLE", message="refused")
    status.add_clusters("source", [away])


def waiting_topic(status: Status) -> None:
    told = "selected and not copied: orders: PLAN_PENDING"
    flow(status).in_force.append(InForce(kind="WAITING", about="A->B", message=told))


def lag_unknown(status: Status) -> None:
    flow(status).lag_records, flow(status).partitions_of_unknown_lag = None, 2


def positions_unknown(status: Status) -> None:
    flow(status).lag_records = None


def stalled(status: Status) -> None:
    flow(status).partitions = {"RUNNING": 2, "STALLED": 1}


def slow_target(status: Status) -> None:
    flow(status).add_note("source", "TARGET_SLOW", "1 partition")


def silent(status: Status) -> None:
    flow(status).path = "SILENT"
    flow(status).add_note("heartbeat", "HEARTBEAT_MISSING", "none came")


def not_in_the_source(status: Status) -> None:
    status.flows["A->B"] = FlowRow(flow="A->B", path="ALIVE")


def no_flow(status: Status) -> None:
    status.flows.clear()


def test_a_lag_that_is_copied_gaps_limits_and_changed_rules_move() -> None:
    status = healthy()
    flow(status).in_force += [
        InForce(kind=kind, about="A->B", message="so") for kind in ("GAPS", "LIMIT", "RULE", "MANUAL")
    ]
    flow(status).add_note("heartbeat", "HEARTBEATS_DISABLED", "by the file")
    assert problems_of(status) == []
    assert check_lines([]) == ["everything moves"]


@pytest.mark.parametrize(
    ("what", "about", "reason"),
    [
        (pause, "A->B", "PAUSED"),
        (service_down, "checkpoint", "PEER_UNAVAILABLE"),
        (cluster_away, "B", "KAFKA_UNAVAILABLE"),
        (waiting_topic, "A->B", "TOPICS_WAITING"),
        (lag_unknown, "A->B", "LAG_UNKNOWN"),
        (positions_unknown, "A->B", "LAG_UNKNOWN"),
        (stalled, "A->B", "STALLED"),
        (slow_target, "A->B", "TARGET_SLOW"),
        (silent, "A->B", "HEARTBEAT_MISSING"),
        (not_in_the_source, "A->B", "NOT_COPIED"),
        (no_flow, "twinlog", "NO_FLOWS"),
    ],
)
def test_what_does_not_move_or_is_not_known_is_named(
    what: Callable[[Status], None], about: str, reason: str
) -> None:
    status = healthy()
    what(status)
    assert [(each.about, each.reason) for each in problems_of(status)] == [(about, reason)]
    (line,) = check_lines(problems_of(status))
    assert line.startswith(f"{about}: {reason}: ")


def test_heartbeats_of_a_paused_flow_are_no_trouble_of_their_own() -> None:
    status = healthy()
    pause(status)
    silent(status)
    explain_silence(flow(status))
    (note,) = flow(status).notes
    assert "paused" in note.message
    assert [each.reason for each in problems_of(status)] == ["PAUSED"]
