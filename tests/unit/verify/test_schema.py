"""The schema of the report: what every report is, and every field that a report can have is in it."""

import copy
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from twinlog.cli import app
from twinlog.comparison.model import (
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.model import Flow
from twinlog.testing.mirror_logs import SOURCE, TARGET
from twinlog.verify.page import report_schema
from twinlog.verify.report import FlowFailure, FlowReport, FlowVerdict, Writer, document

SHOWN = {"offset": 7, "timestamp_ms": 1, "key": None, "value": "hex:00", "headers": [["a", None]]}


def full() -> dict[str, Any]:
    """A report with every field that there is, by its way over JSON."""
    proof = PartitionProof(
        source=SOURCE,
        target=TARGET,
        source_from=0,
        source_to=100,
        target_from=0,
        target_to=99,
        source_hash="5b",
    )
    proof.differences = [
        Difference(kind=kind, source_offset=7, target_offset=6, changed=("key",), found_in="t-1@3")
        for kind in DifferenceKind
    ]
    proof.differences.append(Difference(kind=DifferenceKind.FOREIGN, source_offset=None, target_offset=9))
    proof.not_compared = [
        NotCompared(side=side, from_offset=90, to_offset=100, reason=reason)
        for side in Side
        for reason in NotComparedReason
    ]
    report = FlowReport(
        flow=Flow("A", "B"),
        began_at_ms=1_000,
        ended_at_ms=2_000,
        proofs=[proof],
        failures=[FlowFailure(reason="KAFKA_TIMEOUT", detail="A is away")],
        records={(SOURCE, "source", 7): SHOWN, (SOURCE, "target", 6): SHOWN},
        writers={(SOURCE, 6): Writer(producer_id=-1, producer_epoch=-1, transactional=False)},
    )
    told: dict[str, Any] = json.loads(json.dumps(document(report)))
    return told


def violations(document: Any) -> list[str]:
    return [each.message for each in Draft202012Validator(report_schema()).iter_errors(document)]


def test_a_report_with_every_field_is_valid() -> None:
    Draft202012Validator.check_schema(report_schema())
    assert violations(full()) == []


def test_the_schema_names_every_kind_verdict_and_field() -> None:
    told, schema = full(), report_schema()
    definitions = schema["$defs"]
    assert definitions["kind"]["enum"] == [*DifferenceKind]
    assert definitions["verdict"]["enum"] == [*FlowVerdict]
    assert told.keys() == schema["properties"].keys() == {*schema["required"]}
    for name, items in (("partition", "partitions"), ("not_compared", "not_compared")):
        assert told[items][-1].keys() == definitions[name]["properties"].keys()
    fields = {field for each in told["differences"] for field in each}
    assert fields == definitions["difference"]["properties"].keys()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "GOOD"),
        (("records",), -1),
        (("records",), True),
        (("differences_by_kind", "LOST"), 1),
        (("partitions", 0, "source_to"), "100"),
        (("differences", 0, "kind"), "SWAPPED"),
        (("differences", 0, "count"), 0),
        (("differences", 0, "changed"), []),
        (("differences", 0, "written_by"), {}),
        (("not_compared", 0, "side"), "both"),
        (("flow",), None),
    ],
)
def test_another_document_is_not_valid(path: tuple[str | int, ...], value: Any) -> None:
    told: Any = copy.deepcopy(full())
    inner = told
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert violations(told) != []


def test_a_document_without_a_field_is_not_valid() -> None:
    for field in full():
        told = full()
        del told[field]
        assert violations(told) == [f"{field!r} is a required property"]


def test_the_command_prints_the_schema_without_a_flow() -> None:
    answer = CliRunner().invoke(app, ["verify", "--schema"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output) == report_schema()
