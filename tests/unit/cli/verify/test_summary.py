"""The last line of a verification's tables."""

import pytest

from twinlog.cli.verify.tables import print_report
from twinlog.comparison.model import NotCompared, PartitionProof, Reason, Side
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
        NotCompared(side=Side.SOURCE, from_offset=begin, to_offset=end, reason=Reason.LOST, is_harmless=True)
        for begin, end in ((100, 200), (300, 325))
    ]
    told = document(FlowReport(flow=Flow("A", "B"), began_at_ms=0, ended_at_ms=1_000, proofs=[proof]))
    print_report(told)
    summary = capsys.readouterr().out.splitlines()[-1]
    assert summary.startswith("EQUAL: ")
    assert "up to 125 source offsets are LOST: `twinlog gaps 'A->B' --all`" in summary
