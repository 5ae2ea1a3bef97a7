"""The verdict of a verification, and its rows."""

import pytest

from twinlog.cli.verify.tables import print_report
from twinlog.comparison.model import NotCompared, NotComparedReason, PartitionProof, Side
from twinlog.model import Flow, TopicPartition
from twinlog.verify.report import FlowReport, document


def test_a_copy_is_not_called_equal_without_a_word_of_what_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = TopicPartition("orders", 0)
    proof = PartitionProof(
        source=partition, target=partition, source_from=500, source_to=600, target_from=0, target_to=100
    )
    proof.not_compared = [
        NotCompared(
            side=Side.SOURCE,
            from_offset=begin,
            to_offset=end,
            reason=NotComparedReason.LOST,
            is_harmless=True,
        )
        for begin, end in ((100, 200), (300, 325))
    ]
    told = document(FlowReport(flow=Flow("A", "B"), began_at_ms=0, ended_at_ms=1_000, proofs=[proof]))
    print_report(told)
    summary = capsys.readouterr().out.splitlines()[-1]
    assert summary.startswith("EQUAL: ")
    assert "up to 125 source offsets are LOST: `twinlog gaps 'A->B' --all`" in summary


def test_the_verdict_comes_first_and_last_and_each_topic_has_one_row_the_worst_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    proofs = []
    for topic in ("audit", "orders"):
        for number in range(40):
            at = TopicPartition(topic, number)
            each = PartitionProof(
                source=at, target=at, source_from=0, source_to=10, target_from=0, target_to=10
            )
            each.records = 10
            proofs.append(each)
    proofs[-1].not_compared = [
        NotCompared(side=Side.SOURCE, from_offset=0, to_offset=1, reason=NotComparedReason.NOT_COPIED_YET)
    ]
    told = document(FlowReport(flow=Flow("A", "B"), began_at_ms=0, ended_at_ms=1_000, proofs=proofs))
    print_report(told)
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "flow A->B: INCOMPLETE"
    assert rows[0].split()[:4] == ["orders", "40", "INCOMPLETE", "400"]
    assert rows[1].split()[:4] == ["audit", "40", "EQUAL", "400"]
    assert rows[-1].startswith("INCOMPLETE: 800 records equal in 80 partitions")
