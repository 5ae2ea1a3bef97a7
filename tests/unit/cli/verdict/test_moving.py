"""GO, WAIT and NO-GO of a move: what the status and the plan have against it, each told once."""

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.status.rows import FlowRow, InForce, ServiceRow, Status
from twinlog.cli.verdict.moving import BACKLOG, against, checks_of, overall, verdict_words, with_plan
from twinlog.cli.verdict.verdict import verdict_of
from unit.cli.moves.plans import checks


def healthy_status() -> Status:
    row = FlowRow(flow="A->B", records=9, lag_records=0, path="ALIVE", group_count=1, groups={"EXACT": 3})
    row.partitions, row.partitions_of_unknown_lag = {"RUNNING": 7}, 0
    service = ServiceRow(name="source", endpoint="h:1", health="SERVING")
    return Status(services=[service], flows={"A->B": row})


def test_the_plan_knows_the_backlog_better_than_the_status_unless_it_never_drains() -> None:
    status = healthy_status()
    row = status.flows["A->B"]
    row.lag_records, row.caught_up_in_seconds = 3, 5.0

    def words() -> str:
        return verdict_words(with_plan(checks_of(status, "failover", "A->B"), checks()))

    assert words() == "GO"
    row.falls_behind_per_second, row.caught_up_in_seconds = 40.0, None
    assert words() == "NO-GO: 3 records left, and 40 more each second"
    blocked = checks(lambda plan: plan.blockers.append("A is away: --accept-loss continues"))
    told = verdict_words(with_plan(checks_of(status, "failover", "A->B"), blocked))
    assert told == "NO-GO: A is away: --accept-loss continues; 3 records left, and 40 more each second"
    row.falls_behind_per_second = 0.0
    row.partitions = {"RUNNING": 1, "PAUSED": 6}
    command = "twinlog resume 'A->B' --topic clicks"
    row.in_force = [InForce(kind="PAUSE", about="A->B clicks", message="paused", command=command)]
    assert words() == "NO-GO: 6 partitions are PAUSED: clicks"


def test_a_failback_is_not_held_up_by_the_copy_and_a_plan_knows_groups_better_than_the_status() -> None:
    status = healthy_status()
    row = status.flows["A->B"]
    row.groups = {"NO_SYNC": 1}
    row.in_force = [InForce(kind="GAPS", about="A->B", message="3 offsets are lost")]
    assert overall(checks_of(status, "failback", "A->B")) == "GO"
    assert overall(checks_of(status, "failover", "A->B")) == "NO_GO"
    row.in_force = [InForce(kind="FOREIGN", about="A->B", message="other producers wrote 7 records")]
    assert overall(checks_of(status, "failback", "A->B")) == "NO_GO"
    row.in_force = [InForce(kind="MOVE", about="A->B", message="failover r1 was interrupted")]
    assert overall(checks_of(status, "failover", "A->B")) == "WAIT"
    row.in_force = []
    assert overall(checks_of(status, "failover", "A->B")) == "GO"


def test_a_service_that_is_away_explains_what_it_would_tell_and_nothing_else() -> None:
    status = healthy_status()
    status.services = [
        ServiceRow(name=name, endpoint="", health="DOWN" if name == "checkpoint" else "SERVING")
        for name in ("source", "checkpoint", "heartbeat", "configsync")
    ]
    row = status.flows["A->B"]
    row.group_count, row.path = None, "SILENT"
    found = checks_of(status, "failover", "A->B")
    assert {check.title for check in found if check.verdict == "NO_GO" and not check.follows} == {
        "Services and clusters answer",
        "Heartbeats arrive",
    }


def test_what_waits_for_a_dead_broker_is_no_go_and_told_as_one_reason() -> None:
    status = healthy_status()
    silent = types_pb2.ClusterStatus(
        alias="B", reachable=True, silent_brokers=[2], partitions_without_leader=1
    )
    status.add_clusters("source", [silent])
    row = status.flows["A->B"]
    row.lag_records, row.partitions = 105, {"RUNNING": 6, "STALLED": 1}
    row.add_note("source", "LEADER_UNAVAILABLE", "orders-0: no leader")
    (issue,) = verdict_of(status).issues
    blocker = issue.message.partition(". 1 of 7")[0]

    def late(plan: pb2.MovePlan) -> None:
        plan.records_not_copied = 105
        plan.blockers.append(blocker)

    found = with_plan(checks_of(status, "failover", "A->B", [blocker]), checks(late))
    assert {check.message: check.verdict for check in found if check.verdict != "GO"} == {
        blocker: "NO_GO",
        issue.message: "NO_GO",
        "it waits: broker 2 of B does not answer": "NO_GO",
        "105 records are not copied yet": "NO_GO",
    }
    assert verdict_words(found) == f"NO-GO: {blocker}"
    # Also where the plan offers more.
    offers = f"{blocker}, or move what can be moved without it (--accept-loss)"
    found = with_plan(
        checks_of(status, "failover", "A->B", [offers]), checks(lambda plan: plan.blockers.append(offers))
    )
    assert verdict_words(found, briefly=True) == "NO-GO: broker 2 of B does not answer"
    assert offers in [check.message for check in against(found)]
    assert issue.message not in [check.message for check in against(found)]
    # At a pace that is known they need only time.
    row.partitions, row.notes, row.caught_up_in_seconds = {"RUNNING": 7}, [], 5.0
    found = with_plan(checks_of(status, "failover", "A->B", [blocker]), checks(late))
    assert {check.verdict for check in found if check.title == BACKLOG} == {"WAIT"}
