"""The report: its verdict, its exit code, its fields, and the page made of it."""

from dataclasses import dataclass, field, replace

import pytest

from twinlog.batches import DecodedRecord
from twinlog.comparison.model import (
    Difference,
    DifferenceKind,
    NotCompared,
    NotComparedReason,
    PartitionProof,
    Side,
)
from twinlog.comparison.runs import merged
from twinlog.errors import TransientKafkaError
from twinlog.kafka.raw.fetch.reader import FetchedBatches
from twinlog.model import Flow, TopicPartition
from twinlog.verify.page import page
from twinlog.verify.report import (
    MOST_CHARACTERS,
    FlowFailure,
    FlowReport,
    RulesUsed,
    document,
    name_moved_records,
    shown_bytes,
    shown_record,
)
from twinlog_source.verify.engine import named_writers, shown_records


def proof(number: int = 0, **changes: object) -> PartitionProof:
    made = PartitionProof(
        source=TopicPartition("orders", number),
        target=TopicPartition("A.orders", number),
        source_from=0,
        source_to=100,
        target_from=0,
        target_to=99,
        records=99,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def report(*proofs: PartitionProof, failures: tuple[FlowFailure, ...] = ()) -> FlowReport:
    return FlowReport(
        flow=Flow("A", "B"), began_at_ms=1_000, ended_at_ms=2_000, proofs=proofs, failures=failures
    )


MISSING = Difference(kind=DifferenceKind.MISSING, source_offset=7, target_offset=6)
LAG = NotCompared(side=Side.SOURCE, from_offset=90, to_offset=100, reason=NotComparedReason.NOT_COPIED_YET)
RETENTION = NotCompared(
    side=Side.SOURCE, from_offset=0, to_offset=9, reason=NotComparedReason.TARGET_RETENTION, is_harmless=True
)


def test_the_document_has_the_fields_that_docs_verify_promises() -> None:
    told = document(report(proof(differences=[MISSING], not_compared=[LAG])))
    assert (told["flow"], told["verdict"]) == ("A->B", "DIFFERENT")
    assert told["differences"] == [
        {
            "topic": "orders",
            "partition": 0,
            "kind": "MISSING",
            "source_offset": 7,
            "target_offset": 6,
            "count": 1,
        }
    ]
    assert told["differences_by_kind"] == {"MISSING": 1}
    assert told["not_compared"] == [
        {
            "topic": "orders",
            "partition": 0,
            "side": "source",
            "from_offset": 90,
            "to_offset": 100,
            "reason": "NOT_COPIED_YET",
            "detail": "",
            "harmless": False,
        }
    ]
    assert told["partitions"][0]["target_topic"] == "A.orders"


def test_a_record_that_moved_to_another_partition_is_found_there() -> None:
    content = (5, b"k", b"v", b"")
    left = proof(0, differences=[MISSING], unmatched={(Side.SOURCE, 7): content})
    foreign = Difference(kind=DifferenceKind.FOREIGN, source_offset=None, target_offset=41)
    right = proof(1, differences=[foreign], unmatched={(Side.TARGET, 41): content})
    name_moved_records([left, right])
    assert left.differences[0].found_in == "A.orders-1@41"
    assert right.differences[0].found_in == "orders-0@7"


@pytest.mark.parametrize(
    ("second", "named"), [((1, 42), True), ((1, 44), True), ((2, 42), False), (None, False)]
)
def test_records_in_a_row_are_found_in_a_partition_only_if_all_are(
    second: tuple[int, int] | None, named: bool
) -> None:
    """`None`: nobody has the second one."""
    first = proof(0, differences=[replace(MISSING, count=2)])
    first.unmatched = {(Side.SOURCE, 7): "one", (Side.SOURCE, 8): "two"}
    others = {number: proof(number) for number in (1, 2)}
    others[1].unmatched[Side.TARGET, 41] = "one"
    if second is not None:
        others[second[0]].unmatched[Side.TARGET, second[1]] = "two"
    name_moved_records([first, *others.values()])
    assert first.differences[0].found_in == ("A.orders-1@41" if named else "")


def test_differences_in_a_row_are_one_with_their_count() -> None:
    def duplicate(source: int, target: int) -> Difference:
        return Difference(kind=DifferenceKind.DUPLICATE, source_offset=source, target_offset=target)

    runs = merged([duplicate(5, 9), duplicate(3, 7), duplicate(4, 8), duplicate(6, 11)])
    assert [(run.source_offset, run.target_offset, run.count) for run in runs] == [(3, 7, 3), (6, 11, 1)]


def test_the_page_needs_nothing_else_and_escapes_what_comes_from_elsewhere() -> None:
    failure = FlowFailure(reason="KAFKA_TIMEOUT", detail="<script>alert(1)</script>")
    text = page(
        document(report(proof(differences=[MISSING], not_compared=[LAG, RETENTION]), failures=(failure,)))
    )
    ruled = replace(report(), rules=RulesUsed(version=3, told=("topics: a rule of <b>",)))
    assert "By version 3 of the rules: topics: a rule of &lt;b&gt;" in page(document(ruled))
    assert "<script>" not in text
    assert "http" not in text
    assert text.count("<rect") == 5, "the whole range, what is equal, one difference, and two not compared"
    assert "TARGET_RETENTION" in text


def test_records_are_shown_as_text_where_they_are_text() -> None:
    assert shown_bytes(None) is None
    assert shown_bytes(b"") == ""
    assert shown_bytes("grün".encode()) == "grün"
    assert shown_bytes(b"\xff\x00") == "hex:ff00"
    assert shown_bytes(b"\x1b[2J") == "hex:1b5b324a"
    assert len(shown_bytes(b"x" * 10_000) or "") < MOST_CHARACTERS + 30
    record = DecodedRecord(3, 9, None, b"v", ((b"h", None),))
    assert shown_record(record) == {
        "offset": 3,
        "timestamp_ms": 9,
        "key": None,
        "value": "v",
        "headers": [["h", None]],
    }


@dataclass(slots=True)
class AwayReader:
    """Reads a cluster that went away."""

    asked: int = 0

    async def fetch(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> FetchedBatches:
        self.asked += 1
        raise TransientKafkaError("no answer", reason="KAFKA_TIMEOUT")


@dataclass(slots=True)
class AwaySides:
    source_reader: AwayReader = field(default_factory=AwayReader)
    target_reader: AwayReader = field(default_factory=AwayReader)


async def test_a_cluster_that_does_not_answer_is_asked_for_one_record_and_no_more() -> None:
    """Each time-out is half a minute, and a report has a hundred records."""
    changes = [
        Difference(kind=DifferenceKind.CHANGED, source_offset=number, target_offset=number, changed=("key",))
        for number in range(50)
    ]
    found = report(proof(differences=changes))
    sides = AwaySides()
    assert await shown_records(sides, found) == {}
    assert (sides.source_reader.asked, sides.target_reader.asked) == (1, 1)
    assert await named_writers(sides, found) == {}
    assert sides.target_reader.asked == 2


def test_losses_of_the_ledger_change_no_verdict_and_are_no_part_of_the_logs() -> None:
    lost = NotCompared(
        side=Side.SOURCE, from_offset=5_000, to_offset=9_000, reason=NotComparedReason.LOST, is_harmless=True
    )
    told = document(report(proof(not_compared=[lost])))
    assert (told["verdict"], told["not_compared"][0]["reason"]) == ("EQUAL", "LOST")
    assert page(told).count("<rect") == page(document(report(proof()))).count("<rect")
