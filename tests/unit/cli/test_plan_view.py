"""How plans and outcomes are printed."""

import json

import pytest
import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call
from twinlog.cli.common.fields import Output, as_json
from twinlog.cli.common.options import ask_each
from twinlog.cli.configsync.plan import PLAN as PLAN_FIELDS
from twinlog.cli.configsync.plan import (
    offsets_words,
    print_next_step,
    print_plan,
    print_plans,
)
from twinlog.errors import ConfigError, StateError, TransientKafkaError, TwinlogError

CREATE = pb2.PlannedAction(
    kind=pb2.ACTION_KIND_CREATE_TOPIC,
    scope="topics",
    source_topic="orders",
    target_topic="A.orders",
    after="3",
    configs={"retention.ms": "1000"},
    rule="absent on the target",
    text="CREATE A.orders",
    offsets=pb2.ExpectedOffsets(preserved=True, filled_offsets=3_000_000, filled_bytes=2_460_000),
)
REVERT = pb2.PlannedAction(
    kind=pb2.ACTION_KIND_SET_CONFIG,
    scope="configs",
    target_topic="A.users",
    name="retention.ms",
    before="5",
    after="",
    rule="explicit on source",
    text="SET A.users retention.ms 5",
    refused_reason="POLICY_VIOLATION",
    refused_message="no",
    drift=True,
)
DROP = pb2.PlannedAction(kind=pb2.ACTION_KIND_DELETE_ACL, scope="acls", rule="gone", text="DELETE ACL x")
SKIP = pb2.PlannedAction(kind=pb2.ACTION_KIND_SKIP, scope="configs", rule="excluded", text="SKIP A.users y")
PLAN = pb2.Plan(
    flow=types_pb2.Flow(source="A", target="B"),
    plan_id="1234",
    scopes=["acls", "configs", "topics"],
    actions=[CREATE, REVERT, DROP, SKIP],
    change_count=3,
    problems=[pb2.ScopeStatus(scope="quotas", reason="UNSUPPORTED_VERSION", message="too old")],
)


def call(output: Output) -> Call:
    return Call(config=None, endpoint=None, output=output)


def test_a_plan_is_a_diff_with_the_command_that_carries_it_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PLAN, skips=False)
    print_next_step(PLAN)
    assert capsys.readouterr().out.splitlines() == [
        "A->B: 3 changes in acls, configs, topics",
        "  + CREATE A.orders",
        f"      {offsets_words(CREATE.offsets)}",
        "  ~ SET A.users retention.ms 5 (drift)",
        "      the target refused it when it was last tried: no (POLICY_VIOLATION)",
        "  - DELETE ACL x",
        "  ! quotas: too old (UNSUPPORTED_VERSION)",
        "  1 thing left out on purpose: `twinlog plan 'A->B' --skips` shows them",
        "  twinlog apply 'A->B' --plan 1234",
    ]


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        (pb2.ExpectedOffsets(preserved=True), "preserved"),
        (
            CREATE.offsets,
            (
                "preserved; 3,000,000 offsets before the first records are filled, about 2.5 MB"
                " on each replica until Kafka deletes them"
            ),
        ),
        (
            pb2.ExpectedOffsets(reason="COMPACTED", message="cleanup.policy is compact"),
            "translated: cleanup.policy is compact (COMPACTED)",
        ),
    ],
)
def test_a_new_copy_is_shown_with_the_offsets_that_it_will_have(
    offsets: pb2.ExpectedOffsets, words: str
) -> None:
    assert offsets_words(offsets) == words


def test_what_is_left_out_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PLAN, skips=True)
    assert "    SKIP A.users y" in capsys.readouterr().out.splitlines()


def test_an_empty_plan_names_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    in_step = pb2.Plan(flow=PLAN.flow, scopes=["topics"])
    print_plan(in_step, skips=False)
    print_next_step(in_step)
    assert capsys.readouterr().out == "A->B: 0 changes in topics\n"


def test_json_holds_only_what_an_action_has_and_tells_empty_from_absent() -> None:
    create, revert, drop, _ = as_json(PLAN_FIELDS, PLAN)["actions"]
    assert create == {
        "kind": "CREATE_TOPIC",
        "scope": "topics",
        "source_topic": "orders",
        "target_topic": "A.orders",
        "after": "3",
        "configs": {"retention.ms": "1000"},
        "rule": "absent on the target",
        "drift": False,
        "text": "CREATE A.orders",
        "offsets": {
            "kind": "preserved",
            "reason": "",
            "message": "",
            "filled_offsets": 3_000_000,
            "filled_bytes": 2_460_000,
        },
    }
    assert (revert["before"], revert["after"]) == ("5", "")
    assert "before" not in drop


FLOWS = [types_pb2.Flow(source=source, target="B") for source in ("A", "C", "D")]
FAILURES: dict[str, TwinlogError] = {
    "A": TransientKafkaError("cluster A: no answer within 10 s", reason="KAFKA_TIMEOUT"),
    "D": StateError("D->B: both ends are one cluster", reason="SAME_CLUSTER"),
}


async def plan_of(flow: types_pb2.Flow) -> pb2.Plan:
    if flow.source in FAILURES:
        raise FAILURES[flow.source]
    return pb2.Plan(flow=flow, scopes=["topics"])


async def test_a_flow_that_cannot_be_planned_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    planned = await ask_each(FLOWS, plan_of)
    with pytest.raises(typer.Exit) as ended:
        print_plans(planned, call(Output.TABLE), skips=False, check=False)
    printed = capsys.readouterr()
    assert printed.out == "C->B: 0 changes in topics\n"
    assert printed.err.splitlines()[::2] == [
        "error: A->B: cluster A: no answer within 10 s (KAFKA_TIMEOUT)",
        "error: D->B: both ends are one cluster (SAME_CLUSTER)",
    ]
    assert all(line.startswith("next: twinlog ") for line in printed.err.splitlines()[1::2])
    assert ended.value.exit_code == 1


async def test_json_names_each_flow_that_cannot_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    planned = await ask_each(FLOWS, plan_of)
    with pytest.raises(typer.Exit) as ended:
        print_plans(planned, call(Output.JSON), skips=False, check=False)
    documents = json.loads(capsys.readouterr().out)
    assert [(each["flow"], each.get("reason")) for each in documents] == [
        ("A->B", "KAFKA_TIMEOUT"),
        ("C->B", None),
        ("D->B", "SAME_CLUSTER"),
    ]
    assert documents[0]["message"] == "cluster A: no answer within 10 s"
    assert ended.value.exit_code == 1


async def test_flows_that_are_all_planned_end_well(capsys: pytest.CaptureFixture[str]) -> None:
    print_plans(await ask_each(FLOWS[1:2], plan_of), call(Output.TABLE), skips=False, check=True)
    assert capsys.readouterr().err == ""


async def test_a_wrong_scope_is_no_matter_of_one_flow() -> None:
    async def refuse(flow: types_pb2.Flow) -> pb2.Plan:
        raise ConfigError("scopes: topic: none of topics, configs, acls, quotas")

    with pytest.raises(ConfigError):
        await ask_each(FLOWS, refuse)


@pytest.mark.parametrize("output", list(Output))
def test_what_could_not_be_read_is_not_in_step(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    problem = pb2.ScopeStatus(scope="acls", reason="CLUSTER_UNAUTHORIZED", message="an ACL is missing")
    plan = pb2.Plan(flow=PLAN.flow, scopes=["acls", "topics"], problems=[problem])
    with pytest.raises(typer.Exit) as ended:
        print_plans([plan], call(output), skips=False, check=True)
    assert ended.value.exit_code == 1
    assert "an ACL is missing" in capsys.readouterr().out
    print_plans([plan], call(output), skips=False, check=False)


def test_a_cluster_without_acls_is_in_step() -> None:
    problem = pb2.ScopeStatus(scope="acls", reason="NO_AUTHORIZER", message="B has no authorizer")
    plan = pb2.Plan(flow=PLAN.flow, scopes=["acls", "topics"], problems=[problem])
    print_plans([plan], call(Output.TABLE), skips=False, check=True)
