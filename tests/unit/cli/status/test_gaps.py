"""What status says of the gap ledger."""

from twinlog.api.source.v1 import source_service_pb2 as source
from twinlog.cli.status.source import _gaps_in_force


def test_a_gap_in_force_is_a_loss_on_record_and_does_not_claim_that_it_is_still_missing() -> None:
    """The ledger says what happened: a move back may have copied it again since."""
    gap = source.LedgerGap(reason="TARGET_RECREATED", lost_offsets=50)
    gap.partition.topic = "small"
    shown = _gaps_in_force("A->B", [gap])
    assert shown.kind == "GAPS"
    assert shown.message.startswith("50 offsets in 1 gap is on record as lost, not acknowledged")
    assert "not on the target" not in shown.message
