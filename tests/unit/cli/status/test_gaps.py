"""What status says of the gap ledger."""

import pytest

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.call import Call
from twinlog.cli.common.fields import Output
from twinlog.cli.source.gaps import _tell
from twinlog.cli.status.details import _hold_gaps
from twinlog.cli.status.rows import FlowRow
from twinlog.errors import TwinlogError


def test_a_gap_in_force_is_a_loss_on_record_and_does_not_claim_that_it_is_still_missing() -> None:
    """The ledger says what happened: a move back may have copied it again since."""
    gap = source.LedgerGap(reason="TARGET_RECREATED", lost_offsets=50)
    gap.partition.topic = "small"
    row = FlowRow(flow="A->B")
    _hold_gaps(row, [gap])
    (shown,) = row.in_force
    assert shown.kind == "GAPS"
    assert shown.message.startswith("1 gap not acknowledged: 50 source offsets recorded as lost")
    assert shown.command == "twinlog gaps 'A->B'"
    assert "not on the target" not in shown.message


def test_gaps_that_nobody_knows_are_no_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = source.UnknownLedger(reason="KAFKA_TIMEOUT", message="B does not answer")
    ledger.flow.source, ledger.flow.target = "A", "B"
    call = Call(config=None, endpoint=None, output=Output.JSON)
    with pytest.raises(TwinlogError) as unknown:
        _tell(call, [], [ledger], 0, "", empty="no gaps")
    assert capsys.readouterr().out == ""
    error = unknown.value
    assert (error.reason, error.metadata) == ("KAFKA_TIMEOUT", {"flow": "A->B"})
    assert str(error) == "the gaps of A->B cannot be read: B does not answer"
    _tell(call, [], [], 0, "", empty="no gaps")
    assert capsys.readouterr().out == "[]\n"


def test_many_gaps_of_a_topic_are_one_row_between_the_verdict_unless_the_topic_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gaps = [
        source.LedgerGap(reason="RETENTION", from_offset=10 * n, to_offset=10 * n + 5) for n in range(300)
    ]
    for number, gap in enumerate(gaps):
        gap.flow.source, gap.flow.target, gap.lost_offsets = "A", "B", 5
        gap.partition.topic, gap.partition.partition = "orders", number
    call = Call(config=None, endpoint=None, output=Output.TABLE)
    _tell(call, gaps, [], 0, "", empty="no gaps")
    first, head, row, todo, last = capsys.readouterr().out.splitlines()
    assert first == last == "300 gaps, 1,500 source offsets: 1,500 RETENTION"
    assert head.split()[:4] == ["flow", "topic", "gaps", "lost"]
    assert row.split()[:5] == ["A->B", "orders", "300", "1,500", "RETENTION"]
    assert "gaps ack" in todo
    _tell(call, gaps, [], 0, "orders", empty="no gaps")
    assert "orders-7    70-74" in " ".join(capsys.readouterr().out.split(" "))
