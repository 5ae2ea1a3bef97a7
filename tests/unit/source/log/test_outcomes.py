"""How a transaction ended, told by the topic of positions and by the copies."""

from collections.abc import Sequence

import pytest

from twinlog.batches import NewRecord, Seal, build_batch, read_batches, sealed
from twinlog.model import TopicPartition
from twinlog.testing.source_batches import transaction_marker
from twinlog.wire.source_offset import SOURCE_CONNECTOR, encode_source_offset, source_offset_key
from twinlog_source.log.outcomes import (
    CopyOutcome,
    PositionOutcomes,
    TransactionOutcome,
    verdict_of_copy,
    verdict_of_positions,
)

P, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PLACE = TopicPartition("mm2-offsets.A.internal", 3)
OURS, THEIRS = 7, 8
COMMITTED, ABORTED, OPEN = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED, TransactionOutcome.OPEN


def written(*partitions: TopicPartition, epoch: int, producer_id: int = OURS, alias: str = "A") -> bytes:
    """A batch of positions."""
    records = [NewRecord(source_offset_key(alias, each), encode_source_offset(5), 0) for each in partitions]
    return sealed(build_batch(records), Seal(producer_id, epoch, 0, True))


def ended(*, commit: bool, producer_id: int = OURS) -> bytes:
    return transaction_marker(0, producer_id, commit=commit)


def outcomes(*log: bytes) -> PositionOutcomes:
    read = PositionOutcomes(producer_ids=frozenset({OURS}), source_alias="A", connector_name=SOURCE_CONNECTOR)
    for each in log:  # as from several fetches
        read.read(PLACE, read_batches(each))
    return read


def test_a_position_ends_with_the_next_marker_of_its_producer() -> None:
    read = outcomes(
        written(P, epoch=1),
        ended(commit=False, producer_id=THEIRS),
        ended(commit=True),
        written(P, epoch=2),
        ended(commit=False),
        written(P, OTHER, epoch=3),
    )
    assert [read.of(OURS, P, epoch) for epoch in range(5)] == [None, COMMITTED, ABORTED, OPEN, None]
    assert read.open_at(OURS, PLACE) == {P: 3, OTHER: 3}
    assert read.of(THEIRS, P, 1) is None


def test_of_the_transactions_of_one_epoch_the_last_one_counts() -> None:
    first = written(P, epoch=1), ended(commit=True)
    assert outcomes(*first).of(OURS, P, 1) is COMMITTED
    assert outcomes(*first, written(P, epoch=1), ended(commit=False)).of(OURS, P, 1) is ABORTED
    assert outcomes(*first, written(P, epoch=1)).of(OURS, P, 1) is OPEN
    assert outcomes(*first, written(OTHER, epoch=1)).of(OURS, P, 1) is COMMITTED


def test_who_goes_on_from_open_positions_knew_that_they_were_committed() -> None:
    after = written(P, epoch=0, producer_id=THEIRS)
    opened = written(P, OTHER, epoch=1)
    assert outcomes(opened, after).is_surpassed(OURS, PLACE)
    assert outcomes(opened, written(OTHER, epoch=0, producer_id=THEIRS)).is_surpassed(OURS, PLACE)
    assert not outcomes(after, opened).is_surpassed(OURS, PLACE)
    assert not outcomes(opened, written(P, epoch=2)).is_surpassed(OURS, PLACE)
    assert not outcomes(opened, ended(commit=True), after).is_surpassed(OURS, PLACE)
    assert not outcomes(opened, after, ended(commit=True), opened).is_surpassed(OURS, PLACE)
    elsewhere = written(TopicPartition("t", 2), epoch=0, producer_id=THEIRS)
    by_hand = sealed(
        build_batch([NewRecord(source_offset_key("A", P), encode_source_offset(9), 0)]),
        Seal(THEIRS, 0, 0, False),
    )
    assert not outcomes(opened, elsewhere, by_hand).is_surpassed(OURS, PLACE)


def test_records_of_others_in_the_positions_topic_say_nothing() -> None:
    foreign = sealed(
        build_batch([NewRecord(b"k", b"v", 0), NewRecord(None, None, 0)]), Seal(OURS, 1, 0, True)
    )
    read = outcomes(written(P, epoch=1, producer_id=THEIRS), written(P, epoch=1, alias="C"), foreign)
    assert read.of(OURS, P, 1) is None
    assert read.open_at(OURS, PLACE) == {}


def copied(epoch: int, producer_id: int = OURS) -> bytes:
    return sealed(build_batch([NewRecord(None, b"x", 0)]), Seal(producer_id, epoch, 0, True))


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        ([], None),
        ([copied(2)], OPEN),
        ([copied(1), ended(commit=False), copied(2), ended(commit=True)], COMMITTED),
        ([copied(2), ended(commit=True, producer_id=THEIRS), ended(commit=False)], ABORTED),
        ([copied(2), ended(commit=True), ended(commit=False)], COMMITTED),
        ([copied(1), ended(commit=True)], None),
        ([copied(2, THEIRS), ended(commit=True)], None),
    ],
)
def test_a_copy_ends_with_the_first_marker_after_it(
    log: Sequence[bytes], outcome: TransactionOutcome | None
) -> None:
    found = CopyOutcome(producer_id=OURS, epoch=2)
    for each in log:
        found.read(read_batches(each))
    assert found.outcome is outcome


def test_positions_count_if_any_copy_of_theirs_does() -> None:
    assert verdict_of_positions([], is_surpassed=False) is ABORTED
    assert verdict_of_positions([None, OPEN], is_surpassed=False) is ABORTED
    assert verdict_of_positions([OPEN, ABORTED], is_surpassed=False) is ABORTED
    assert verdict_of_positions([OPEN, COMMITTED], is_surpassed=False) is COMMITTED
    assert verdict_of_positions([OPEN], is_surpassed=True) is COMMITTED
    assert verdict_of_positions([COMMITTED, TransactionOutcome.UNKNOWN], is_surpassed=False) is COMMITTED
    assert verdict_of_positions([ABORTED, TransactionOutcome.UNKNOWN], is_surpassed=False) is None


def test_a_copy_ends_as_its_position_did_or_not_at_all() -> None:
    def verdict(
        position: TransactionOutcome | None,
        beside: TransactionOutcome | None = None,
        *,
        is_exact: bool = True,
    ) -> object:
        return verdict_of_copy(position, positions_verdict=beside, is_exact=is_exact)

    assert verdict(None) is ABORTED  # its data came, its position did not
    assert verdict(ABORTED) is ABORTED
    assert verdict(COMMITTED) is COMMITTED
    assert verdict(OPEN, COMMITTED) is COMMITTED
    assert verdict(OPEN, ABORTED) is ABORTED
    assert verdict(OPEN) is None  # the positions' broker is away
    assert verdict(TransactionOutcome.UNKNOWN) is None
    assert verdict(COMMITTED, is_exact=False) is None  # maybe that of an earlier transaction
    assert verdict(ABORTED, is_exact=False) is ABORTED
