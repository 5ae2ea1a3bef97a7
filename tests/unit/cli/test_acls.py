"""How ACLs are chosen and printed."""

import contextvars
import json

import pytest
import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.cli.common.call import Call
from twinlog.cli.common.failures import ANSWERS_IN_JSON
from twinlog.cli.common.fields import Output
from twinlog.cli.common.options import FailedFlow
from twinlog.cli.configsync.acls import FlowAcls, flows_of, on_cluster, print_acls
from twinlog.errors import ConfigError, StateError

A_TO_B = types_pb2.Flow(source="A", target="B")
C_TO_A = types_pb2.Flow(source="C", target="A")


def call(output: Output) -> Call:
    return Call(config=None, endpoint=None, output=output)


def binding(topic: str, user: str, operation: str = "READ") -> pb2.AclBinding:
    return pb2.AclBinding(
        resource_type="TOPIC",
        resource_name=topic,
        pattern_type="LITERAL",
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


COPIED = pb2.AclEntry(
    source=binding("orders", "alice"),
    target=binding("A.orders", "alice"),
    state=pb2.ACL_STATE_IN_STEP,
    rule="a literal topic that is replicated",
    made_by_twinlog=True,
)
FOUND = pb2.AclEntry(
    source=binding("orders", "bob"), target=binding("A.orders", "bob"), state=pb2.ACL_STATE_IN_STEP
)
AWAITED = pb2.AclEntry(
    source=binding("orders", "carol"), target=binding("A.orders", "carol"), state=pb2.ACL_STATE_MISSING
)
LEFT_OUT = pb2.AclEntry(
    source=binding("orders", "dave", "WRITE"), state=pb2.ACL_STATE_LEFT_OUT, rule="ALLOW WRITE"
)
SURPLUS = pb2.AclEntry(target=binding("A.orders", "erin"), state=pb2.ACL_STATE_SURPLUS, made_by_twinlog=True)
FOREIGN = pb2.AclEntry(target=binding("B", "frank"), state=pb2.ACL_STATE_FOREIGN)
ACLS = FlowAcls(flow=A_TO_B, entries=[COPIED, FOUND, AWAITED, LEFT_OUT, SURPLUS, FOREIGN])
FAILURE = FailedFlow(
    flow="C->A", error=StateError("C->A: cluster C has no authorizer", reason="SECURITY_DISABLED")
)
OTHER_FAILURE = FailedFlow(
    flow="D->A",
    error=StateError("D->A: it is being moved", reason="MOVE_BLOCKED", metadata={"group": "g"}),
)


def test_a_flow_without_any_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_acls([FlowAcls(flow=A_TO_B, entries=[])], call(Output.TABLE))
    assert capsys.readouterr().out == "A->B: no ACLs\n"


@pytest.mark.parametrize("output", list(Output))
def test_a_flow_that_fails_hides_no_other(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        ANSWERS_IN_JSON.set(output is Output.JSON)
        with pytest.raises(typer.Exit) as ended:
            print_acls([FAILURE, ACLS, OTHER_FAILURE], call(output))
        assert ended.value.exit_code == 1

    contextvars.Context().run(run)
    printed = capsys.readouterr()
    assert "User:alice" in printed.out
    lines = printed.err.splitlines()
    if output is Output.TABLE:
        assert lines[0] == "error: C->A: cluster C has no authorizer (SECURITY_DISABLED)"
        assert lines[1].startswith("next: twinlog ")
        assert lines[2:] == [
            "error: D->A: it is being moved (MOVE_BLOCKED)",
            "next: twinlog failover plan 'D->A'",
        ]
        return
    assert json.loads(printed.out)[0]["reason"] == "SECURITY_DISABLED"
    told = json.loads(printed.err)
    assert told["error"] == "C->A: cluster C has no authorizer; D->A: it is being moved"
    assert (told["reason"], told["metadata"]) == ("SECURITY_DISABLED", {"flow": "C->A"})
    assert told["next"].startswith("twinlog ")


def test_a_cluster_is_what_is_or_should_be_on_it_at_either_end() -> None:
    assert on_cluster(ACLS, "A").entries == [COPIED, FOUND, AWAITED, LEFT_OUT]
    assert on_cluster(ACLS, "B").entries == [COPIED, FOUND, AWAITED, SURPLUS, FOREIGN]
    assert flows_of([A_TO_B, C_TO_A], "A") == [A_TO_B, C_TO_A]
    assert flows_of([A_TO_B, C_TO_A], "B") == [A_TO_B]


def test_a_cluster_that_no_flow_has_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"^X is neither .*\(clusters: A, B, C\)$"):
        flows_of([A_TO_B, C_TO_A], "X")
