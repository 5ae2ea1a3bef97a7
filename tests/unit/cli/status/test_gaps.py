"""What status says of the gap ledger."""

import pytest

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.common.call import Call
from twinlog.cli.common.output import Output
from twinlog.cli.source.gaps import _tell
from twinlog.cli.status.source import _gaps_in_force
from twinlog.errors import TwinlogError


def test_a_gap_in_force_is_a_loss_on_record_and_does_not_claim_that_it_is_still_missing() -> None:
    """The ledger says what happened: a move back may have copied it again since."""
    gap = source.LedgerGap(reason="TARGET_RECREATED", lost_offsets=50)
    gap.partition.topic = "small"
    shown = _gaps_in_force("A->B", [gap])
    assert shown.kind == "GAPS"
    assert shown.message.startswith("1 gap not acknowledged: 50 source offsets are recorded as lost")
    assert shown.command == "twinlog gaps 'A->B'"
    assert "not on the target" not in shown.message


def test_gaps_that_nobody_knows_are_no_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = source.UnknownLedger(reason="KAFKA_TIMEOUT", message="B does not answer")
    ledger.flow.source, ledger.flow.target = "A", "B"
    call = Call(config=None, endpoint=None, output=Output.JSON)
    with pytest.raises(TwinlogError) as unknown:
        _tell(call, [], [ledger], 0)
    assert capsys.readouterr().out == ""
    error = unknown.value
    assert (error.reason, error.metadata) == ("KAFKA_TIMEOUT", {"flow": "A->B"})
    assert str(error) == "the gaps of A->B cannot be read: B does not answer"
    _tell(call, [], [], 0)
    assert capsys.readouterr().out == "[]\n"
