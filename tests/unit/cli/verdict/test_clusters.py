"""What is told of a cluster that does not answer, or not wholly."""

import pytest

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.rows import InForce
from twinlog.cli.status.view import check_lines
from twinlog.cli.verdict.flows import failure_kind
from twinlog.cli.verdict.issues import Level
from twinlog.cli.verdict.moving import GO, NO_GO, checks_of, overall
from twinlog.cli.verdict.verdict import verdict_of
from unit.cli.verdict.statuses import REFUSED, SERVICES, away, flow, healthy


def test_a_cluster_that_no_service_reaches_explains_everything_about_it() -> None:
    status = healthy()
    away(status)
    row = flow(status)
    row.partitions = {"RUNNING": 1, "STALLED": 1, "BACKOFF": 1}
    row.path = "UNKNOWN"
    row.add_note("source", "KAFKA_UNAVAILABLE", REFUSED)
    row.add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "cluster B does not answer")
    row.add_note("checkpoint", "MOVES_UNKNOWN", "fences are not known")
    row.add_note("heartbeat", "KAFKA_TIMEOUT", "no answer")
    row.lag_records, row.partitions_of_unknown_lag = None, 2
    row.in_force.append(InForce(kind="GAPS", about="A->B", message="3 offsets are lost"))
    verdict = verdict_of(status)
    assert verdict.line == "2 problems: GAPS, KAFKA_UNAVAILABLE"
    (issue,) = [each for each in verdict.issues if each.about == "B"]
    assert issue.message == (
        "B does not answer: connection refused (all 4 services, since 2026-11-28 13:08:56 UTC)."
        " 2 of 3 partitions wait; nothing is lost while the source keeps its records."
        " Twinlog continues by itself"
    )
    assert issue.command == "twinlog preflight '/etc/my mirror.properties'"
    assert issue.flows == ("A->B",)
    assert issue.symptoms > 5
    assert f"source: {REFUSED}" in issue.details
    assert any("MOVES_UNKNOWN" in each for each in issue.details)
    assert REFUSED not in "\n".join(check_lines([issue]))
    assert REFUSED in "\n".join(check_lines([issue], verbose=True))


@pytest.mark.parametrize(
    ("state", "expected"), [("FAULTED", ["FAULTED", "KAFKA_UNAVAILABLE"]), ("PAUSED", None)]
)
def test_a_cluster_that_is_away_hides_no_fault_and_no_pause(state: str, expected: list[str] | None) -> None:
    status = healthy()
    away(status)
    flow(status).partitions = {"BACKOFF": 2, state: 1}
    flow(status).add_note("source", "KAFKA_UNAVAILABLE", REFUSED)
    issues = verdict_of(status).issues
    assert [each.reason for each in issues] == (expected or ["KAFKA_UNAVAILABLE", state])
    assert any("2 of 3 partitions wait" in each.message for each in issues), "the other is told beside it"


def test_a_cluster_that_refuses_the_credentials_does_not_mend_by_itself() -> None:
    status = healthy()
    away(status, reason="AUTHENTICATION_FAILED", message="the broker refused the credentials")
    flow(status).partitions = {"WAITING": 3}
    for service in SERVICES:
        flow(status).add_note(service, "AUTHENTICATION_FAILED", "the broker refused the credentials")
    (issue,) = verdict_of(status).issues
    assert "B refuses the login: authentication failed (all 4 services" in issue.message
    assert "by itself" not in issue.message


@pytest.mark.parametrize("ids", [(1, 2), (-1, -2)], ids=["known", "by the file"])
def test_of_a_cluster_that_is_away_is_told_which_brokers_to_start(ids: tuple[int, int]) -> None:
    """One service may never have reached it: its addresses are the file's."""
    status = healthy()
    for name in SERVICES:
        told = types_pb2.ClusterStatus(alias="B", reason="KAFKA_UNAVAILABLE", message=REFUSED)
        places = dict(zip(ids if name == "source" else (-1, -2), ("b1:9092", "b2:9092"), strict=True))
        told.broker_addresses.update(places)
        status.add_clusters(name, [told])
    (issue,) = verdict_of(status).issues
    known = "start broker 1 at b1:9092, and broker 2 at b2:9092"
    start = known if ids == (1, 2) else "start the brokers at b1:9092, b2:9092"
    assert issue.message.startswith(f"B does not answer: connection refused (all 4 services): {start}")


def test_a_cluster_that_some_services_reach_names_those_that_do_not() -> None:
    status = healthy()
    away(status, ["source"])
    (issue,) = verdict_of(status).issues
    assert issue.message == f"source: {REFUSED}"


def test_the_kind_of_failure_stands_in_front() -> None:
    told = {
        ("KAFKA_UNAVAILABLE", REFUSED): "connection refused",
        ("KAFKA_UNAVAILABLE", "no broker can be reached"): "no broker can be reached",
        ("KAFKA_UNAVAILABLE", "[Errno -2] Name or service not known"): "unknown host name",
        ("KAFKA_TIMEOUT", "no answer within 5 s"): "timed out",
        ("AUTHENTICATION_FAILED", ""): "authentication failed",
        ("SASL_MECHANISM_REFUSED", ""): "authentication failed",
        ("KAFKA_UNAVAILABLE", "certificate verify failed"): "TLS failed",
    }
    assert {each: failure_kind(*each) for each in told} == told


def test_partitions_without_a_leader_hold_up_no_flow_of_other_clusters() -> None:
    status = healthy()
    other = status.flow(types_pb2.Flow(source="A", target="C"))
    other.partitions, other.records, other.lag_records, other.path = {"RUNNING": 1}, 7, 0, "ALIVE"
    told = types_pb2.ClusterStatus(alias="C", reachable=True, silent_brokers=[2], partitions_without_leader=1)
    status.add_clusters("source", [told])
    assert [each.reason for each in verdict_of(status).failing] == ["BROKER_SILENT"]
    flow(status).lag_records = 0
    flow(status).group_count = 0
    assert overall(checks_of(status, "failover", "A->B")) == GO
    assert overall(checks_of(status, "failover", "A->C")) == NO_GO


@pytest.mark.parametrize(("reason", "alias"), [("TARGET_UNREADABLE", "B"), ("SOURCE_UNREADABLE", "A")])
def test_groups_that_nobody_can_read_are_a_problem_as_in_a_plan(reason: str, alias: str) -> None:
    status = healthy()
    row = flow(status)
    row.group_count, row.groups = 3, {"EXACT": 2, reason: 1}
    (issue,) = verdict_of(status).failing
    assert (issue.level, issue.about, issue.reason) == (Level.BAD, "A->B", reason)
    assert issue.message == f"1 offset of groups cannot be read on {alias} now"
    assert issue.command == "twinlog groups 'A->B'"
    told = types_pb2.ClusterStatus(alias=alias, reachable=True, silent_brokers=[2])
    status.add_clusters("checkpoint", [told])
    (issue,) = verdict_of(status).failing
    assert (issue.level, issue.about, issue.reason) == (Level.BAD, alias, "BROKER_SILENT")
    assert any(reason in each for each in issue.details)


def test_while_a_flow_starts_nobody_has_to_act_on_groups_that_cannot_be_read_yet() -> None:
    status = healthy()
    row = flow(status)
    row.group_count, row.groups = 1, {"TARGET_UNREADABLE": 1}
    row.add_note("source", "STARTING", "the first epoch is getting ready")
    assert [(each.reason, each.level) for each in verdict_of(status).issues] == [("STARTING", Level.WARN)]


def test_what_all_services_miss_of_a_broker_is_one_problem_before_it_is_known_to_be_silent() -> None:
    status = healthy()
    row = flow(status)
    row.partitions, row.groups = {"RUNNING": 5, "BACKOFF": 5}, {"TARGET_UNREADABLE": 4}
    row.add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "broker 3 cannot be reached")
    row.add_note("heartbeat", "KAFKA_UNAVAILABLE", "broker 2 cannot be reached")
    row.add_note("source", "LEADER_UNAVAILABLE", "5 partitions, such as orders-1: its leader is broker 3")
    verdict = verdict_of(status)
    assert verdict.line == "1 problem: LEADER_UNAVAILABLE"
    (issue,) = verdict.issues
    told = " ".join(issue.details)
    assert all(each in told for each in ("GROUPS_NOT_TRANSLATED", "KAFKA_UNAVAILABLE", "TARGET_UNREADABLE"))
    row.partitions["PAUSED"] = 1
    row.add_note("checkpoint", "TOPIC_UNAUTHORIZED", "an ACL is missing")
    assert verdict_of(status).line == "2 problems, 1 warning: LEADER_UNAVAILABLE, TOPIC_UNAUTHORIZED; PAUSED"


def test_replicas_that_stay_behind_while_every_broker_answers_hide_no_other_reason() -> None:
    status = healthy()
    row = flow(status)
    row.partitions = {"RUNNING": 5, "BACKOFF": 5}
    row.add_note("source", "NOT_ENOUGH_REPLICAS", "5 partitions, such as orders-1: 1 of 2 replicas in sync")
    row.add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "the offset syncs cannot be read")
    assert verdict_of(status).line == "2 problems: GROUPS_NOT_TRANSLATED, NOT_ENOUGH_REPLICAS"


def test_what_a_silent_broker_stops_is_told_as_its_consequence() -> None:
    status = healthy()
    told = types_pb2.ClusterStatus(alias="B", reachable=True, silent_brokers=[2, 3])
    for name in SERVICES[1:]:
        status.add_clusters(name, [told])
    away(status, ["configsync"])
    row = flow(status)
    row.partitions, row.path = {"RUNNING": 1, "STALLED": 4, "FAULTED": 1}, "UNKNOWN"
    row.add_note("source", "KAFKA_UNAVAILABLE", "2 partitions (2 more for other reasons): no broker")
    row.add_note("checkpoint", "GROUPS_NOT_TRANSLATED", "no answer in time")
    row.add_note("heartbeat", "HEARTBEAT_MISSING", "none for 56 s")
    verdict = verdict_of(status)
    assert verdict.line == "2 problems: FAULTED, BROKER_SILENT"
    issue = verdict.issues[-1]
    assert issue.message == (
        "brokers 2, 3 of B do not answer; the others do, and every partition has a leader: start broker 2,"
        " and broker 3 (seen by checkpoint, configsync, heartbeat). 4 of 6 partitions wait; nothing is lost"
        " while the source keeps its records"
    )
    assert issue.stops
    assert issue.flows == ("A->B",)
    assert any("KAFKA_UNAVAILABLE" in each for each in issue.details)
    assert issue.command == "twinlog preflight '/etc/my mirror.properties'"
    assert verdict.failing


def test_behind_replicas_that_do_not_follow_is_the_cause_the_silent_broker() -> None:
    status = healthy()
    for name in SERVICES:
        told = types_pb2.ClusterStatus(alias="B", reachable=True, silent_brokers=[2])
        status.add_clusters(name, [told])
    row = flow(status)
    row.partitions = {"RUNNING": 1, "BACKOFF": 2}
    row.add_note("source", "HIGH_WATERMARK_BEHIND", "2 partitions: 3 records are being replicated")
    assert [each.reason for each in verdict_of(status).issues] == ["BROKER_SILENT"]
