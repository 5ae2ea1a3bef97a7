"""`twinlog foreign` and `gaps`: what is acknowledged, by whom, when, and the command for what is not."""

import contextvars

from google.protobuf.timestamp_pb2 import Timestamp

from twinlog.api.common.v1.types_pb2 import Flow, TopicPartition
from twinlog.api.source.v1 import source_service_pb2 as source
from unit.cli.snapshots.recorded import Recorded, run

FLOW = Flow(source="A", target="B")
STRETCHES = [
    source.ForeignWrite(from_offset=first, to_offset=first + 3, records=3, producer_id=7) for first in (5, 20)
]


def copy(number: int, *, left: int, by: str = "", at: int = 0) -> source.PartitionStatus:
    told = source.PartitionStatus(
        flow=FLOW,
        source=TopicPartition(topic="orders", partition=number),
        foreign_records=left,
        foreign_writes=STRETCHES,
        foreign_acknowledged_by=by,
    )
    if left:
        told.foreign_write.CopyFrom(STRETCHES[-1])
    if at:
        told.foreign_acknowledged_at.CopyFrom(Timestamp(seconds=at))
    return told


def told(
    *words: str,
    rows: list[source.PartitionStatus],
    gaps: tuple[source.LedgerGap, ...] = (),
    command: str = "foreign",
) -> list[str]:
    recorded = Recorded(
        answers={
            "ListFlows": [source.ListFlowsResponse(flows=[source.FlowStatus(flow=FLOW)])],
            "ListPartitions": [source.ListPartitionsResponse(partitions=rows)],
            "ListGaps": [source.ListGapsResponse(gaps=gaps)],
        }
    )
    text = contextvars.copy_context().run(run, [command, *words], recorded)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_what_is_acknowledged_is_listed_with_who_and_when() -> None:
    rows = [copy(0, left=0, by="ann", at=1_000_000_000), copy(1, left=3, by="ann", at=1), copy(2, left=6)]
    _, _, second, third, hidden, ack = told(rows=rows)
    assert second.startswith("A->B orders-1 3 20-22 producer id 7")
    assert third.startswith("A->B orders-2 6 20-22 producer id 7")
    assert hidden == "2 acknowledged: --all shows them"
    assert ack == "once dealt with: `twinlog foreign ack 'A->B'`"
    _, heading, first, before, *left = told("--all", rows=rows)
    assert heading.endswith(" acknowledged")
    assert first.startswith("A->B orders-0 6 20-22 ")
    assert first.endswith(" ann 2001-09-09T01:46:40Z")
    assert before.startswith("A->B orders-1 3 5-7 "), "those before"
    assert before.endswith(" ann 1970-01-01T00:00:01Z")
    assert [line.split()[:3] for line in left[:2]] == [["A->B", "orders-1", "3"], ["A->B", "orders-2", "6"]]


def test_who_acknowledged_what_an_earlier_release_did_not_record_is_not_known() -> None:
    rows = [copy(0, left=0)]
    assert told(rows=rows) == ["exit 0", "no foreign records", "1 acknowledged: --all shows them"]
    assert told("--all", rows=rows)[2].endswith(" ?")


def test_the_command_acknowledges_what_was_asked_for() -> None:
    gap = source.LedgerGap(flow=FLOW, partition=TopicPartition(topic="orders"), to_offset=3)
    for words, end in (((), " --all"), (("--topic", "A.orders"), " --topic A.orders")):
        last = told(*words, rows=[], gaps=(gap,), command="gaps")[-1]
        assert last == f"once dealt with: `twinlog gaps ack 'A->B'{end}`"
        last = told(*words, rows=[copy(0, left=6)])[-1]
        assert last == f"once dealt with: `twinlog foreign ack 'A->B'{end.removesuffix(' --all')}`"


def test_a_topic_that_is_not_copied_is_said_and_no_comfort() -> None:
    for command, nothing in (("gaps", "no gaps"), ("foreign", "no foreign records")):
        (_, said) = told("--topic", "order", rows=[], command=command)
        assert said == "no flow copies order: `twinlog explain topic order` says why"
        clean = source.PartitionStatus(flow=FLOW, source=TopicPartition(topic="orders"))
        for words, rows in ((("--topic", "orders"), [clean]), ((), [])):
            assert told(*words, rows=rows, command=command) == ["exit 0", nothing]
