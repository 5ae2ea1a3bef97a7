"""What `twinlog groups`, `failover` and `failback` print, from values."""

import contextvars
import json
from collections.abc import AsyncIterator, Callable

import pytest
import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as rules_pb2
from twinlog.api.source.v1 import source_service_pb2 as source_pb2
from twinlog.cli.checkpoint.groups import age, group_fields, listings, notes
from twinlog.cli.common.fields import Output, cells_of
from twinlog.cli.moves.calls import print_status
from twinlog.cli.moves.moves import print_plan, print_run
from twinlog.cli.moves.plan_outcome import status_as_json, summary
from twinlog.errors import StateError
from unit.cli.moves.plans import FLOW, a_plan, behind, checks, cut, gone, partition, stuck
from unit.cli.snapshots.recorded import Recorded
from unit.cli.snapshots.recorded import run as cli_run


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda plan: None, "not copied yet: nothing"),
        (gone, "not copied: unknown, A does not answer"),
        (behind, "not copied yet: 40 records, about 8 s at the present rate"),
        (stuck, "not copied yet: 40 records\n"),
        (
            cut,
            "was interrupted after CHECK, FENCE; `twinlog failover run 'A->B'` continues",
        ),
        (cut, "fence on A, no writes to: orders"),
        (lambda plan: plan.ClearField("partitions"), "nothing to move"),
    ],
)
def test_a_plan_says_it_in_words(
    change: Callable[[pb2.MovePlan], object], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plan(a_plan(change), [], Output.TABLE, refuses=False)
    assert line in capsys.readouterr().out


def test_what_a_group_lacks_comes_first_and_what_it_has_needs_no_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def two(plan: pb2.MovePlan) -> None:
        plan.partitions[0].message = "as it was"
        plan.partitions.append(partition("g", pb2.MOVE_ACTION_SKIP_NO_OFFSET))
        plan.partitions[1].message = "too old"

    print_plan(a_plan(two), [], Output.TABLE, refuses=False)
    _, _, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("too old")
    assert second.endswith("WRITE")


def test_what_stands_against_a_move_is_an_exit_code() -> None:
    with pytest.raises(typer.Exit) as refused:
        print_plan(a_plan(), [], Output.JSON, refuses=True)
    assert refused.value.exit_code == 1


def busy(plan: pb2.MovePlan) -> None:
    plan.partitions.append(partition("busy", pb2.MOVE_ACTION_SKIP_ACTIVE_BEFORE))


def there(plan: pb2.MovePlan) -> None:
    plan.partitions.append(partition("busy", pb2.MOVE_ACTION_SKIP_ACTIVE_THERE))


def held(plan: pb2.MovePlan) -> None:
    """Acknowledged records lie behind a transaction that has just begun."""
    plan.ClearField("records_not_copied")
    plan.at_most_not_copied = 503
    behind_it = types_pb2.TopicPartition(topic="orders", partition=3)
    plan.backlog.append(
        pb2.TopicBacklog(partition=behind_it, at_most=503, message="a transaction is open before them")
    )


def unread(plan: pb2.MovePlan) -> None:
    """With --accept-loss nothing blocks the others."""
    row = partition("g2", pb2.MOVE_ACTION_SKIP_NO_OFFSET)
    row.verdict, row.message = pb2.VERDICT_TARGET_UNREADABLE, "broker 2 cannot be reached"
    plan.partitions.append(row)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: None, "GO"),
        (lambda plan: plan.blockers.append("B is away"), "NO-GO: B is away"),
        (behind, "WAIT: 40 records are not copied yet, about 8 s"),
        (stuck, "WAIT: 40 records are not copied yet"),
        (held, "WAIT: at most 503 records are not copied yet: orders-3: a transaction is open before them"),
        (gone, "GO"),
        (busy, "WAIT: 1 of 2 groups has members on A: stop its consumers, or it is not moved"),
        (there, "WAIT: 1 of 2 groups has members on B: stop its consumers, or it is not moved"),
        (
            unread,
            "NO-GO: 1 group has offsets that cannot be read now, and stay: g2: broker 2 cannot be reached",
        ),
    ],
)
def test_a_plan_begins_and_ends_with_its_verdict(
    change: Callable[[pb2.MovePlan], object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checks(change)
    print_plan(a_plan(change), found, Output.TABLE, refuses=False)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == (words, words)
    print_plan(a_plan(change), found, Output.JSON, refuses=False)
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == words.partition(":")[0].replace("-", "_")
    assert [each["title"] for each in document["checks"]] == [each.title for each in found]


def test_the_end_of_a_run_counts_groups() -> None:
    def four(plan: pb2.MovePlan) -> None:
        plan.partitions.append(partition("busy", pb2.MOVE_ACTION_SKIP_ACTIVE_BEFORE))
        plan.partitions.append(partition("half", pb2.MOVE_ACTION_WRITE))
        plan.partitions.append(partition("half", pb2.MOVE_ACTION_SKIP_NO_OFFSET))
        plan.partitions.append(partition("none", pb2.MOVE_ACTION_SKIP_NO_OFFSET))

    assert summary(a_plan(four)) == [
        "moved: 2 of 4 groups",
        "no offset committed for some partitions: half, none",
        "not moved, because it has members: busy; stop them and run it again",
    ]


def test_what_keeps_groups_from_being_translated_is_said() -> None:
    away = types_pb2.ClusterStatus(
        alias="B", reason="KAFKA_UNAVAILABLE", message="no broker", broker_addresses={1: "b1:9092"}
    )
    not_yet = types_pb2.ClusterStatus(alias="C", reason="UNKNOWN", message="not looked at yet")
    flows = [
        pb2.FlowProgress(flow=FLOW, ready=False, obstacle="the topic is missing"),
        pb2.FlowProgress(flow=FLOW, ready=False),
        pb2.FlowProgress(flow=FLOW, ready=True, obstacle="cluster A: no broker"),
        pb2.FlowProgress(flow=FLOW, ready=True, obstacle="A->B: its owner is looked for"),
        pb2.FlowProgress(flow=FLOW, ready=True),
    ]
    assert notes(flows, [away, not_yet]) == [
        "B does not answer (no broker): start broker 1 at b1:9092",
        "A->B translates no groups yet: the topic is missing",
        "A->B translates no groups yet: its offset syncs are still being read",
        "A->B: cluster A: no broker",
        "A->B: its owner is looked for",
    ]


def test_a_list_of_groups_says_when_new_ones_are_found() -> None:
    listed, once = pb2.FlowProgress(flow=FLOW), pb2.FlowProgress(flow=FLOW)
    for flow in (listed, once):
        flow.groups_listed.FromMilliseconds(1_000)
    listed.next_listing.FromMilliseconds(601_000)
    known, within = "A->B: groups were listed 10 s ago;", "new ones are found within 590 s"
    within += " (refresh.groups.interval.seconds)"
    failed = pb2.FlowProgress(listing_failed="list groups: no broker", listing_failed_reason="KAFKA_TIMEOUT")
    failed.MergeFrom(listed)
    assert listings([listed, failed, once, pb2.FlowProgress(flow=FLOW)], now_ms=11_000) == [
        f"{known} {within}",
        f"{known} {within}; the last list failed: list groups: no broker (KAFKA_TIMEOUT)",
        f"{known} they are not listed again (refresh.groups.enabled=false)",
    ]


def test_ages_grow_from_the_last_look() -> None:
    row = pb2.GroupPartition(flow=FLOW, group="g")
    row.as_of.FromMilliseconds(1_000)
    assert cells_of(group_fields(lambda _: 5_000), row)[9] == "5 s"
    assert [age(ms) for ms in (999, 119_000, 120_000, 7_200_000, 200_000_000)] == [
        "0 s",
        "119 s",
        "2 min",
        "2 h",
        "2 d",
    ]


async def test_a_wait_that_does_not_move_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def events() -> AsyncIterator[pb2.RunFailoverResponse]:
        for left in (40, 40, 40, 7):
            step = pb2.MoveStep(
                name="DRAIN", state=pb2.STEP_STATE_PROGRESS, message="left", records_left=left
            )
            yield pb2.RunFailoverResponse(step=step)
        yield pb2.RunFailoverResponse(report=pb2.MoveReport(run_id="r1", plan=a_plan()))

    await print_run(events(), Output.TABLE)
    out = capsys.readouterr().out
    assert [line.split()[-1] for line in out.splitlines() if "DRAIN" in line] == ["(40)", "(7)"]
    assert "moved: 1 of 1 groups" in out


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize("already_done", [False, True])
async def test_a_run_that_leaves_groups_behind_does_not_count_as_done(
    output: Output, already_done: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy(plan: pb2.MovePlan) -> None:
        plan.partitions.append(partition("busy", pb2.MOVE_ACTION_SKIP_ACTIVE_THERE))

    async def events() -> AsyncIterator[pb2.RunFailoverResponse]:
        report = pb2.MoveReport(run_id="r1", already_done=already_done, plan=a_plan(busy))
        yield pb2.RunFailoverResponse(report=report)

    with pytest.raises(typer.Exit) as exit_info:
        await print_run(events(), output)
    assert exit_info.value.exit_code == 1
    out = capsys.readouterr().out
    if output is Output.TABLE:
        assert "not moved, because it has members: busy" in out
        assert ("moved: 1 of 2 groups" in out) is not already_done


def report_of(plan: pb2.MovePlan, *reasons: str) -> pb2.MoveReport:
    return pb2.MoveReport(run_id="r1", plan=plan, left_behind=reasons)


async def told(*events: pb2.RunFailoverResponse) -> AsyncIterator[pb2.RunFailoverResponse]:
    for event in events:
        yield event


async def test_a_run_says_what_consumers_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    await print_run(told(pb2.RunFailoverResponse(report=report_of(a_plan()))), Output.TABLE)
    out = capsys.readouterr().out
    assert "run r1: 1 of 1 groups of A->B continue on B" in out
    assert "undo: twinlog failback run 'A->B'" in out
    assert "next: start the consumers of these groups on B" in out
    assert "they have to subscribe to A.orders instead of orders" in out


@pytest.mark.parametrize("output", Output)
async def test_a_run_with_records_left_behind_is_not_complete(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(a_plan(), "not copied: orders-3: 10 records (PAUSED: by ann)")
    with pytest.raises(typer.Exit) as exit_info:
        await print_run(told(pb2.RunFailoverResponse(report=report)), output)
    assert exit_info.value.exit_code == 1
    out = capsys.readouterr().out
    assert "not copied: orders-3: 10 records (PAUSED: by ann)" in out
    assert ("do not switch A off yet" in out) is (output is Output.TABLE)


async def test_the_parts_of_a_large_report_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    part = pb2.MovePlanPart(
        partitions=[partition(f"g{number}", pb2.MOVE_ACTION_WRITE) for number in range(3)]
    )
    empty = a_plan(lambda plan: plan.ClearField("partitions"))
    events = told(pb2.RunFailoverResponse(part=part), pb2.RunFailoverResponse(report=report_of(empty)))
    await print_run(events, Output.JSON)
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert [entry["group"] for entry in document["plan"]["partitions"]] == ["g0", "g1", "g2"]
    assert document["complete"] is True


def test_a_reversal_goes_on_in_spite_of_a_no_go_and_ends_where_the_plan_is_blocked() -> None:
    rules = rules_pb2.Rules(rules=[rules_pb2.Rule(key="enabled", value="true")])
    recorded = Recorded(
        answers={
            "GetRules": [rules_pb2.GetRulesResponse(rules=rules)],
            "GetMove": [pb2.GetMoveResponse()],
            "ListPartitions": [source_pb2.ListPartitionsResponse()],
            "RunFailover": StateError("B is away", reason="MOVE_BLOCKED"),
        }
    )
    words = ["reverse", "A->B", "--execute", "--yes"]
    told = contextvars.copy_context().run(cli_run, words, recorded)
    assert told.startswith("exit 1\n")
    assert "nobody is asked, as --yes says" in told
    assert "B is away (MOVE_BLOCKED)" in told
    changed = [each for each in recorded.asked if each.startswith(("UpdateRules", "Pause", "RunFailover"))]
    assert [each.partition(" ")[0] for each in changed] == ["UpdateRules", "RunFailover"]
    assert 'source: "B"' in changed[0]


def test_what_speaks_against_a_run_is_json_where_the_answer_is() -> None:
    refused = StateError("B is away", reason="MOVE_BLOCKED")
    words = ["failover", "run", "A->B", "--yes", "-o", "json"]
    told = contextvars.copy_context().run(cli_run, words, Recorded(answers={"RunFailover": refused}))
    _, out, _, err, *_ = told.splitlines()
    assert json.loads(out)["verdict"] == "NO_GO"
    assert json.loads(err)["reason"] == "MOVE_BLOCKED"


def test_a_plan_tells_its_backlog_once_between_its_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    def behind_and_busy(plan: pb2.MovePlan) -> None:
        behind(plan)
        busy(plan)

    print_plan(a_plan(behind), checks(behind), Output.TABLE, refuses=False)
    first, *body, last = capsys.readouterr().out.splitlines()
    assert "40 records" in first == last
    assert not [line for line in body if "40 records" in line]
    print_plan(a_plan(behind), checks(behind_and_busy), Output.TABLE, refuses=False)
    assert sum("40 records" in line for line in capsys.readouterr().out.splitlines()) == 2


def test_what_is_still_being_counted_is_not_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    def still_counting(plan: pb2.MovePlan) -> None:
        plan.ClearField("records_not_copied")
        plan.counting, plan.at_most_not_copied = True, 120
        plan.backlog.append(
            pb2.TopicBacklog(
                partition=types_pb2.TopicPartition(topic="orders", partition=1),
                counting=True,
                at_most=120,
                message="counting; it is being copied",
            )
        )

    print_plan(a_plan(still_counting), [], Output.TABLE, refuses=False)
    out = capsys.readouterr().out
    assert "not copied yet: at most 120 records; they are still being counted" in out
    assert "<= 120" in out


def test_the_status_says_that_a_finished_run_left_something_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "offsets without a translation: g on late-0: NO_SYNC"
    run = pb2.MoveRun(kind=pb2.MOVE_KIND_FAILOVER, left_behind=[why])
    last = pb2.LastMove(run_id="r1", kind="failover", finished=True, left_behind=[why])
    for answer in (pb2.GetMoveResponse(run=run, last=last), pb2.GetMoveResponse(last=last)):
        print_status(FLOW, answer)
        out = capsys.readouterr().out
        assert out.count(f"not done: {why}") == 1
        assert "not complete" in out
        document = status_as_json(answer)
        assert document["last"]["complete"] is False
        assert document["run"] is None or document["run"]["complete"] is False


def test_what_no_flow_copies_is_said_and_does_not_count_as_missing() -> None:
    def by_rule(plan: pb2.MovePlan) -> None:
        plan.partitions.append(partition("half", pb2.MOVE_ACTION_SKIP_NO_OFFSET))
        plan.partitions[-1].verdict = pb2.VERDICT_NOT_REPLICATED

    assert summary(a_plan(by_rule))[1:] == ["topics that no flow copies, which stay on A: orders"]


def test_the_status_names_the_command_that_helps(capsys: pytest.CaptureFixture[str]) -> None:
    last = pb2.LastMove(run_id="r1", kind="failover", steps=["CHECK", "FENCE"], fenced_topics=["orders"])
    run = pb2.MoveRun(
        kind=pb2.MOVE_KIND_FAILOVER,
        running=True,
        steps=[pb2.MoveStep(name="DRAIN", state=pb2.STEP_STATE_PROGRESS, message="waiting")],
    )
    print_status(FLOW, pb2.GetMoveResponse(run=run, last=last))
    out = capsys.readouterr().out
    assert "`twinlog failover watch 'A->B'` follows it" in out
    assert "DRAIN" in out
    print_status(FLOW, pb2.GetMoveResponse(last=last))
    out = capsys.readouterr().out
    assert "interrupted after CHECK, FENCE" in out
    assert "`twinlog failover give-up 'A->B'` gives it up" in out
    assert "its fence denies writes to orders" in out
    print_status(FLOW, pb2.GetMoveResponse())
    assert capsys.readouterr().out == "no move of A->B is recorded\n"
    document = status_as_json(pb2.GetMoveResponse(run=run, last=last))
    assert (document["run"]["running"], document["last"]["fenced_topics"]) == (True, ["orders"])


@pytest.mark.parametrize(
    ("steps", "changed_nothing"),
    [
        ([], True),
        ([("CHECK", pb2.STEP_STATE_STARTED), ("CHECK", pb2.STEP_STATE_PROGRESS)], True),
        ([("CHECK", pb2.STEP_STATE_STARTED), ("CHECK", pb2.STEP_STATE_DONE)], False),
        ([("CHECK", pb2.STEP_STATE_DONE), ("FENCE", pb2.STEP_STATE_DONE)], False),
    ],
)
def test_the_status_of_a_refused_run_says_that_it_changed_nothing(
    steps: list[tuple[str, "pb2.StepState.ValueType"]],
    changed_nothing: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = pb2.MoveRun(
        kind=pb2.MOVE_KIND_FAILOVER,
        reason="MOVE_BLOCKED",
        message="broker 2 of B does not answer",
        steps=[pb2.MoveStep(name=name, state=state) for name, state in steps],
    )
    print_status(FLOW, pb2.GetMoveResponse(run=run))
    told = "broker 2 of B does not answer (MOVE_BLOCKED)"
    told += "; it changed nothing\n" if changed_nothing else "\n"
    out = capsys.readouterr().out
    assert told in out
    assert out.endswith("\nno earlier move of A->B is recorded\n"), "the one above is none that is recorded"


def test_the_first_line_names_the_cause_of_each_blocker(capsys: pytest.CaptureFixture[str]) -> None:
    silent = f"brokers 2, 3 of B do not answer; the others do: start broker 2 at {'b' * 60}"

    def blocked(plan: pb2.MovePlan) -> None:
        plan.blockers.extend([silent, "no process owns A->B now"])

    print_plan(a_plan(blocked), checks(blocked), Output.TABLE, refuses=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[-1] == "NO-GO: brokers 2, 3 of B do not answer; no process owns A->B now"
    assert f"NO-GO  {silent}" in lines
