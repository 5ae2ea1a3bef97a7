"""One verdict: every issue once, at its cause, with its level and a remedy that can be pasted."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint_pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.details import add_groups
from twinlog.cli.status.query import explain_silence
from twinlog.cli.status.rows import FlowRow, InForce, ServiceRow, Status
from twinlog.cli.status.view import check_as_json, check_lines
from twinlog.cli.verdict.issues import Issue, Level
from twinlog.cli.verdict.moving import GO, NO_GO, WAIT, checks_of, overall
from twinlog.cli.verdict.verdict import standing_by, verdict_of
from unit.cases import about
from unit.cli.verdict.statuses import REFUSED, SERVICES, away, flow, healthy


def pause(status: Status) -> None:
    flow(status).partitions = {"PAUSED": 3}
    flow(status).in_force.append(
        InForce(kind="PAUSE", about="A->B", message="paused", command="twinlog resume 'A->B'")
    )


def service_down(status: Status) -> None:
    status.services[1] = ServiceRow(
        name="checkpoint", endpoint="h:1", reason="PEER_UNAVAILABLE", message="refused"
    )


def source_down(status: Status) -> None:
    status.services[0] = ServiceRow(
        name="source", endpoint="h:1", reason="PEER_UNAVAILABLE", message="refused"
    )
    status.flows["A->B"] = FlowRow(flow="A->B", path="ALIVE")


def not_by_one(status: Status) -> None:
    away(status, ["source"])


def waiting_topic(status: Status) -> None:
    told = "selected but not copied: orders: PLAN_PENDING"
    flow(status).in_force.append(InForce(kind="WAITING", about="A->B", message=told))


def lag_unknown(status: Status) -> None:
    flow(status).lag_records, flow(status).partitions_of_unknown_lag = None, 2


def positions_unknown(status: Status) -> None:
    flow(status).lag_records = None


def stalled(status: Status) -> None:
    flow(status).partitions = {"RUNNING": 2, "STALLED": 1}


def stalled_and_why(status: Status) -> None:
    stalled(status)
    flow(status).add_note("source", "TARGET_SLOW", "1 partition")


def silent(status: Status) -> None:
    flow(status).path = "SILENT"
    flow(status).add_note("heartbeat", "HEARTBEAT_MISSING", "none came")


def quota(status: Status) -> None:
    """It delays the copy of heartbeats as much as any other."""
    silent(status)
    flow(status).add_note("source", "QUOTA", "2 partitions: a quota of the target delays the copy")


def path_unknown(status: Status) -> None:
    flow(status).path = "UNKNOWN"


def path_hidden(status: Status) -> None:
    flow(status).path = "UNKNOWN"
    flow(status).add_note("heartbeat", "TOPIC_UNAUTHORIZED", "READ is missing")


def groups_not_translated(status: Status) -> None:
    flow(status).add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "the offset syncs may not be read")


def twin(status: Status) -> None:
    for service in ("source", "checkpoint"):
        flow(status).add_note(service, "TWIN_DEPLOYMENT", "another deployment copies it")


def not_in_the_source(status: Status) -> None:
    status.flows["A->B"] = FlowRow(flow="A->B", path="ALIVE")


def no_flow(status: Status) -> None:
    status.flows.clear()


def starts(status: Status) -> None:
    flow(status).partitions = {"WAITING": 3}
    lag_unknown(status)
    silent(status)
    for service in ("configsync", "source"):
        flow(status).add_note(service, "STARTING", "the first epoch is getting ready")


def no_replicas(status: Status) -> None:
    """A replication factor above the number of brokers: no service can create its topics."""
    flow(status).partitions = {"WAITING": 3}
    silent(status)
    lag_unknown(status)
    groups_not_translated(status)
    for service in ("source", "configsync", "checkpoint"):
        flow(status).add_note(service, "REPLICATION_FACTOR_INVALID", "3 replicas, 1 broker")


def test_what_does_not_move_or_is_not_known_is_one_issue() -> None:
    for what, level, named, reason in [
        (pause, Level.WARN, "A->B", "PAUSED"),
        (service_down, Level.BAD, "checkpoint", "PEER_UNAVAILABLE"),
        (source_down, Level.BAD, "source", "PEER_UNAVAILABLE"),
        (away, Level.BAD, "B", "KAFKA_UNAVAILABLE"),
        (not_by_one, Level.BAD, "B", "KAFKA_UNAVAILABLE"),
        (waiting_topic, Level.WARN, "A->B", "TOPICS_WAITING"),
        (lag_unknown, Level.BAD, "A->B", "LAG_UNKNOWN"),
        (positions_unknown, Level.BAD, "A->B", "LAG_UNKNOWN"),
        (stalled, Level.BAD, "A->B", "STALLED"),
        (stalled_and_why, Level.BAD, "A->B", "TARGET_SLOW"),
        (silent, Level.BAD, "A->B", "HEARTBEAT_MISSING"),
        (quota, Level.WARN, "A->B", "QUOTA"),
        (path_unknown, Level.BAD, "A->B", "PATH_UNKNOWN"),
        (path_hidden, Level.BAD, "A->B", "TOPIC_UNAUTHORIZED"),
        (groups_not_translated, Level.BAD, "A->B", "GROUPS_NOT_TRANSLATED"),
        (twin, Level.BAD, "A->B", "TWIN_DEPLOYMENT"),
        (not_in_the_source, Level.BAD, "A->B", "NOT_COPIED"),
        (no_flow, Level.BAD, "twinlog", "NO_FLOWS"),
        (starts, Level.WARN, "A->B", "STARTING"),
        (no_replicas, Level.BAD, "A->B", "REPLICATION_FACTOR_INVALID"),
    ]:
        with about(what.__name__):
            status = healthy()
            what(status)
            (issue,) = verdict_of(status).issues
            assert (issue.level, issue.about, issue.reason, issue.stops) == (level, named, reason, True)
            line = check_lines([issue])[0]
            assert line.startswith(f"{named}: {reason}: ")
            assert issue.command in line


def test_a_target_that_is_slow_for_a_moment_fails_no_check() -> None:
    status = healthy()
    flow(status).partitions = {"RUNNING": 3, "STALLED": 0}
    flow(status).add_note("source", "TARGET_SLOW", "1 partition")
    verdict = verdict_of(status)
    assert [(each.level, each.reason) for each in verdict.issues] == [(Level.WARN, "TARGET_SLOW")]
    assert not verdict.failing
    assert not verdict.waiting


def test_a_lag_that_is_copied_is_no_issue_and_what_is_ordered_is_a_note() -> None:
    status = healthy()
    assert verdict_of(status).line == "everything moves"
    flow(status).in_force += [
        InForce(kind=kind, about="A->B", message="so")
        for kind in ("LIMIT", "RULE", "MANUAL", "DELAY", "FENCE")
    ]
    flow(status).add_note("heartbeat", "HEARTBEATS_DISABLED", "by the file")
    verdict = verdict_of(status)
    assert {each.level for each in verdict.issues} == {Level.NOTE}
    assert (verdict.failing, verdict.waiting, verdict.pressing) == ([], [], [])
    assert verdict.line == "everything moves; in force: DELAY, FENCE, LIMIT, MANUAL, RULE"
    assert check_lines([]) == ["everything moves"]
    assert check_lines([], (), "1 warning: MOVE") == ["everything moves; 1 warning: MOVE"]


def test_losses_and_foreign_writes_are_problems_that_stop_nothing() -> None:
    status = healthy()
    flow(status).in_force += [
        InForce(kind=kind, about="A->B", message="so") for kind in ("GAPS", "FOREIGN", "MOVE")
    ]
    flow(status).falls_behind_per_second = 40.0
    pause(status)
    verdict = verdict_of(status)
    assert verdict.line == "2 problems, 3 warnings: FOREIGN, GAPS; FALLING_BEHIND, MOVE, PAUSED"
    assert [each.reason for each in verdict.stopping] == ["PAUSED"]
    assert [each.reason for each in verdict.failing] == ["FOREIGN", "GAPS", "PAUSED"]
    (behind,) = [each for each in verdict.issues if each.reason == "FALLING_BEHIND"]
    assert behind.message == "the lag grows by 40 records each second"


def begins(status: Status) -> None:
    """Of a delayed flow no heartbeat arrives before the delay is over."""
    flow(status).path = "UNKNOWN"
    flow(status).add_note("heartbeat", "STARTING", "no heartbeat has been seen on the target yet")


def in_force(kind: str) -> Callable[[Status], None]:
    return lambda status: flow(status).in_force.append(InForce(kind=kind, about="A->B", message="so"))


def heartbeats_off(status: Status) -> None:
    flow(status).path = "UNKNOWN"
    flow(status).add_note("heartbeat", "HEARTBEATS_DISABLED", "by the file")


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (lambda _: None, GO),
        (heartbeats_off, GO),
        *((in_force(kind), GO) for kind in ("LIMIT", "RULE", "MANUAL", "DELAY", "FENCE", "OFFSETS")),
        *((change, WAIT) for change in (starts, begins)),
        *((in_force(kind), NO_GO) for kind in ("GAPS", "DIFFERS", "FOREIGN", "WAITING")),
        *((change, NO_GO) for change in (pause, service_down, away, stalled, silent, path_unknown)),
    ],
)
def test_the_check_fails_where_a_plan_says_no_go_and_waits_where_it_says_wait(
    what: Callable[[Status], None], expected: str
) -> None:
    status = healthy()
    row = flow(status)
    row.group_count, row.lag_records = 0, 0
    what(status)
    verdict = verdict_of(status)
    assert (NO_GO if verdict.failing else WAIT if verdict.waiting else GO) == expected
    assert overall(checks_of(status, "failover", "A->B")) == expected


@pytest.mark.parametrize("services", [SERVICES, SERVICES[:1]])
def test_a_cluster_of_other_flows_holds_up_no_move(services: Sequence[str]) -> None:
    status = healthy()
    flow(status).group_count, flow(status).lag_records = 0, 0
    status.flow(types_pb2.Flow(source="A", target="C"))
    gone = types_pb2.ClusterStatus(alias="C", reachable=False, reason="KAFKA_UNAVAILABLE", message=REFUSED)
    for name in SERVICES:
        other = types_pb2.ClusterStatus(alias="C", reachable=True)
        status.add_clusters(name, [gone if name in services else other])
    assert "C" in {each.about for each in verdict_of(status).failing}
    for kind in ("failover", "failback"):
        assert overall(checks_of(status, kind, "A->B")) == GO
        assert overall(checks_of(status, kind, "A->C")) == NO_GO


def test_a_flow_that_waits_for_its_first_heartbeat_hides_no_other_problem() -> None:
    status = healthy()
    begins(status)
    groups_not_translated(status)
    verdict = verdict_of(status)
    assert [each.reason for each in verdict.failing] == ["GROUPS_NOT_TRANSLATED"]
    assert [each.reason for each in verdict.waiting] == ["STARTING"]


def test_groups_of_a_flow_whose_owner_is_not_known_yet_are_waited_for() -> None:
    status = healthy()
    flow_ = types_pb2.Flow(source="A", target="B")
    progress = checkpoint_pb2.FlowProgress(
        flow=flow_, obstacle="it is being found out", obstacle_reason="STARTING"
    )
    add_groups(checkpoint_pb2.ListGroupsResponse(flows=[progress]), status)
    verdict = verdict_of(status)
    assert ([each.reason for each in verdict.waiting], verdict.failing) == (["STARTING"], [])


def test_a_deployment_that_does_not_run_is_one_problem_with_the_command_that_starts_it() -> None:
    rows = [
        ServiceRow(name=name, endpoint="h:1", reason="PEER_UNAVAILABLE", message="no") for name in SERVICES
    ]
    status = Status(services=rows, asked_file="/etc/mm2.properties")
    verdict = verdict_of(status)
    assert verdict.line == "1 problem: PEER_UNAVAILABLE"
    (issue,) = verdict.issues
    assert issue.command == "twinlog run /etc/mm2.properties"
    unknown = verdict_of(replace(status, asked_file="")).issues[0]
    assert (unknown.command, "`twinlog run FILE` starts them" in unknown.message) == ("", True)
    assert len(issue.details) == len(SERVICES)


def test_the_order_of_issues_does_not_depend_on_which_service_answers_first() -> None:
    def told(services: Sequence[str]) -> Sequence[Issue]:
        status = healthy()
        away(status, services)
        flow(status).partitions = {"STALLED": 3}
        for service in services:
            flow(status).add_note(service, "TOPIC_UNAUTHORIZED", f"READ is missing: {service}")
        return verdict_of(status).issues

    assert told(SERVICES) == told(SERVICES[::-1])


def test_remedies_have_no_places_left_and_never_ask_for_the_status_again() -> None:
    status = healthy()
    for row in status.services:
        row.config = ""
    away(status, ["source"])
    flow(status).add_note("checkpoint", "NOT_READY", "wait")
    flow(status).add_note("source", "NO_TOPICS", "none")
    assert [each.command for each in verdict_of(status).issues] == ["", "", ""]


def test_one_pause_is_named_with_the_command_that_ends_it() -> None:
    status = healthy()
    flow(status).partitions = {"RUNNING": 2, "PAUSED": 6}
    command = "twinlog resume 'A->B' --topic clicks"
    flow(status).in_force = [InForce(kind="PAUSE", about="A->B clicks", message="paused", command=command)]
    (issue,) = verdict_of(status).issues
    assert (issue.message, issue.command) == ("6 partitions are PAUSED: clicks", command)


def standby(status: Status) -> None:
    for service in SERVICES:
        flow(status).add_note(service, "OWNED_ELSEWHERE", "another process copies it")
    flow(status).partitions, flow(status).path = {"WAITING": 3}, "ALIVE"


def test_a_healthy_standby_is_no_problem_and_is_said_to_stand_by() -> None:
    status = healthy()
    standby(status)
    assert verdict_of(status).line == "everything moves"
    assert standing_by(status) == ["A->B"]
    (line,) = check_lines([], standing_by(status))
    assert "on standby here, copied by another process: A->B" in line
    assert check_as_json([], [], ["A->B"])["standing_by"] == ["A->B"]


@pytest.mark.parametrize(("harm", "reason"), [("STALLED", "STALLED"), ("lag", "LAG_UNKNOWN")])
def test_a_standby_sees_that_nothing_moves_at_the_other_process(harm: str, reason: str) -> None:
    status = healthy()
    standby(status)
    if harm == "lag":
        lag_unknown(status)
    else:
        flow(status).partitions = {"WAITING": 2, harm: 1}
    assert [each.reason for each in verdict_of(status).failing] == [reason]


@pytest.mark.parametrize(
    ("scope", "paused"),
    [("A->B", True), ("A->B heartbeats", True), ("A->B heartbeats-0", True), ("A->B orders", False)],
)
def test_heartbeats_that_are_paused_are_no_trouble_of_their_own(scope: str, paused: bool) -> None:
    status = healthy()
    pause(status)
    flow(status).in_force[0] = replace(flow(status).in_force[0], about=scope)
    silent(status)
    explain_silence(flow(status))
    (note,) = flow(status).notes
    assert ("is paused: `twinlog resume 'A->B'`" in note.message) is paused
    found = [each.reason for each in verdict_of(status).issues]
    assert found == (["PAUSED"] if paused else ["HEARTBEAT_MISSING", "PAUSED"])
    heartbeats = checks_of(status, "failover", "A->B")[-1]
    assert heartbeats.verdict == (WAIT if paused else NO_GO)


def test_heartbeats_whose_topic_waits_are_no_trouble_of_their_own() -> None:
    status = healthy()
    silent(status)
    flow(status).hold("WAITING", "selected but not copied: heartbeats: PLAN_PENDING", about="A->B heartbeats")
    explain_silence(flow(status))
    (note,) = flow(status).notes
    assert note.message == "heartbeats are not copied: their topic waits (`twinlog explain topic heartbeats`)"
    assert [each.reason for each in verdict_of(status).issues] == ["TOPICS_WAITING"]


def test_groups_that_were_moved_are_no_trouble() -> None:
    status = healthy()
    flow(status).add_note("configsync", "FAILED_OVER", "groups were moved to B and not back")
    (issue,) = verdict_of(status).issues
    assert (issue.level, issue.stops) == (Level.NOTE, False)
