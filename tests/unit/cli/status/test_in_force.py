"""What status says of a flow that somebody ordered, or that is left of what happened."""

import json
import re
from importlib import resources

from google.protobuf.duration_pb2 import Duration

from twinlog.api.common.v1 import types_pb2
from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.status import rows as kinds
from twinlog.cli.status.details import _add_ordered, _add_proof, _no_limit
from twinlog.cli.status.rows import FlowRow
from twinlog.cli.verdict.flows import _in_force
from twinlog.cli.verdict.issues import Level

FLOW = types_pb2.Flow(source="A", target="B")


def test_foreign_writes_name_the_copies_and_the_command_that_lists_them() -> None:
    row = FlowRow(flow="A->B")
    named = [types_pb2.TopicPartition(topic="audit", partition=number) for number in (0, 3)]
    _add_proof(row, source.FlowStatus(flow=FLOW, foreign_records=5, foreign_partitions=named))
    (told,) = row.in_force
    assert told.message == "other producers wrote 5 records into the copies of audit-0, audit-3"
    assert (told.kind, told.command) == ("FOREIGN", "twinlog foreign 'A->B'")


def test_a_delay_lent_cores_copies_that_lost_the_offsets_and_sparks_ui_are_in_force() -> None:
    row = FlowRow(flow="A->B")
    lost = {"SOURCE_RECREATED": 1, "FOREIGN_WRITE": 2}
    flow = source.FlowStatus(flow=FLOW, delay=Duration(seconds=45), offsets_lost_by_reason=lost)
    flow.spark_ui = "http://127.0.0.1:4040"
    flow.lent_workers["box:17401, process 7"] = 2
    _add_ordered(row, flow)
    assert [(each.kind, each.message) for each in row.in_force] == [
        ("DELAY", "records are copied 45 s after they were written (twinlog.delay.seconds)"),
        ("LENT_CORES", "2 workers on cores of box:17401, process 7, which owns no flow"),
        ("SPARK_UI", "Spark shows its jobs to anybody at http://127.0.0.1:4040"),
        ("OFFSETS", "3 copies no longer have the source's offsets: FOREIGN_WRITE, SOURCE_RECREATED"),
    ]
    _add_ordered(none := FlowRow(flow="A->B"), source.FlowStatus(flow=FLOW))
    assert none.in_force == []


def test_what_the_verdict_only_notes_is_no_failure_on_the_page() -> None:
    files = [each.read_text() for each in resources.files("twinlog.cli.status").iterdir() if each.is_file()]
    held = {getattr(kinds, name) for text in files for name in re.findall(r"\.hold\(\s*kinds\.(\w+)", text)}
    page = (resources.files("twinlog.cli.ui") / "page" / "parts.js").read_text()
    (plain,) = re.findall(r"^const PLAIN = (.*);$", page, re.MULTILINE)
    row = FlowRow(flow="A->B")
    for kind in held - {kinds.WAITING}:
        row.hold(kind, "told")
    noted = {each.reason for each in _in_force(row) if each.level == Level.NOTE}
    assert {kinds.CYCLE, kinds.LENT_CORES, kinds.SPARK_UI} < noted
    assert noted <= set(json.loads(plain))


def test_a_limit_comes_with_the_command_that_ends_it() -> None:
    assert _no_limit(source.Scope(flow=FLOW)) == "twinlog throttle 'A->B' none"
    scope = source.Scope(flow=FLOW, source_topic="my orders")
    assert _no_limit(scope) == "twinlog throttle 'A->B' none --topic 'my orders'"
