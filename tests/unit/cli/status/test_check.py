"""`twinlog status --check` is 0 only if everything moves."""

from collections.abc import Callable

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.check import problems_of, standing_by
from twinlog.cli.status.query import explain_silence
from twinlog.cli.status.rows import FlowRow, InForce, ServiceRow, Status
from twinlog.cli.status.view import check_as_json, check_lines, verdict_line


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
    told = "selected but not copied: orders: PLAN_PENDING"
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


def path_unknown(status: Status) -> None:
    flow(status).path = "UNKNOWN"


def path_hidden(status: Status) -> None:
    flow(status).path = "UNKNOWN"
    flow(status).add_note("heartbeat", "TOPIC_UNAUTHORIZED", "READ is missing")


def groups_not_translated(status: Status) -> None:
    flow(status).add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "the offset syncs may not be read")


def twin(status: Status) -> None:
    flow(status).add_note("source", "TWIN_DEPLOYMENT", "another deployment copies it")


def standby(status: Status) -> None:
    for service in ("source", "checkpoint", "heartbeat", "configsync"):
        flow(status).add_note(service, "OWNED_ELSEWHERE", "another process copies it")
    flow(status).partitions, flow(status).path = {"WAITING": 3}, "ALIVE"


def test_a_healthy_standby_is_no_problem_and_is_said_to_stand_by() -> None:
    status = healthy()
    standby(status)
    assert problems_of(status) == []
    assert standing_by(status) == ["A->B"]
    (line,) = check_lines([], standing_by(status))
    assert "on standby here, copied by another process: A->B" in line
    assert check_as_json([], ["A->B"]) == {"ok": True, "problems": [], "standing_by": ["A->B"]}


@pytest.mark.parametrize(("harm", "reason"), [("STALLED", "STALLED"), ("lag", "LAG_UNKNOWN")])
def test_a_standby_sees_that_nothing_moves_at_the_other_process(harm: str, reason: str) -> None:
    status = healthy()
    standby(status)
    if harm == "lag":
        lag_unknown(status)
    else:
        flow(status).partitions = {"WAITING": 2, harm: 1}
    assert [each.reason for each in problems_of(status)] == [reason]


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
        (path_unknown, "A->B", "PATH_UNKNOWN"),
        (path_hidden, "A->B", "TOPIC_UNAUTHORIZED"),
        (groups_not_translated, "A->B", "GROUPS_NOT_TRANSLATED"),
        (twin, "A->B", "TWIN_DEPLOYMENT"),
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
    (problem,) = problems_of(status)
    (line,) = check_lines([problem])
    assert line.startswith(f"{about}: {reason}: ")
    assert problem.command in line


def test_the_first_line_says_whether_everything_moves_and_hides_no_loss() -> None:
    status = healthy()
    assert verdict_line(status, problems_of(status)) == "everything moves"
    flow(status).in_force.append(InForce(kind="GAPS", about="A->B", message="3 offsets"))
    assert verdict_line(status, problems_of(status)) == "everything moves; in force: GAPS"
    stalled(status)
    silent(status)
    assert verdict_line(status, problems_of(status)) == (
        "2 problems: HEARTBEAT_MISSING, STALLED (`twinlog status --check`)"
    )


def test_a_problem_names_the_command_that_shows_more_of_it() -> None:
    status = healthy()
    stalled(status)
    assert check_lines(problems_of(status)) == [
        "A->B: STALLED: 1 partition is STALLED (`twinlog partitions 'A->B' --trouble`)"
    ]


def test_heartbeats_of_a_paused_flow_are_no_trouble_of_their_own() -> None:
    status = healthy()
    pause(status)
    silent(status)
    explain_silence(flow(status))
    (note,) = flow(status).notes
    assert "paused" in note.message
    assert [each.reason for each in problems_of(status)] == ["PAUSED"]
