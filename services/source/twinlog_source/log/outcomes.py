"""How transactions of the flow ended, according to the positions topic and the copies. Pure.

A position is in the same transaction as its records, so the outcome of one is that of the other. With
transactions of version 2 every transaction has its own producer epoch, so a position of the same epoch
belongs to exactly this transaction. With earlier versions, all transactions of a producer have one epoch
until it fails; then only the last one can have been aborted, so only what was not committed is certain.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.batches import Batch, EndMarker, decode_batch, end_marker
from twinlog.model import TopicPartition
from twinlog.wire.source_offset import decode_source_offset_key


class TransactionOutcome(StrEnum):
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    OPEN = "OPEN"
    UNKNOWN = "UNKNOWN"
    """The partition could not be read."""


_OF_MARKER = {EndMarker.COMMIT: TransactionOutcome.COMMITTED, EndMarker.ABORT: TransactionOutcome.ABORTED}


@dataclass(slots=True, kw_only=True)
class PositionOutcomes:
    """The outcomes of the positions that some producers wrote. `read` each partition of the topic in
    order."""

    producer_ids: frozenset[int]
    source_alias: str
    connector_name: str
    _written: dict[tuple[int, TopicPartition], dict[int, TransactionOutcome]] = field(default_factory=dict)
    """For a producer and a source partition: how its last transaction in each producer epoch ended."""
    _open: dict[tuple[int, TopicPartition], dict[TopicPartition, int]] = field(default_factory=dict)
    """For a producer and a partition of the positions topic: the source partitions whose positions are in an
    open transaction, with the producer epoch."""
    _surpassed: set[tuple[int, TopicPartition]] = field(default_factory=set)

    def read(self, place: TopicPartition, batches: Iterable[Batch]) -> None:
        """Take the next batches of one partition of the positions topic."""
        for batch in batches:
            header = batch.header
            if header.is_control:
                self._end(header.producer_id, place, end_marker(batch))
            elif header.is_transactional:
                positions = self._positions(batch)
                self._surpass(header.producer_id, place, positions)
                if header.producer_id in self.producer_ids:
                    for partition in positions:
                        self._write(header.producer_id, place, partition, header.producer_epoch)

    def of(self, producer_id: int, partition: TopicPartition, epoch: int) -> TransactionOutcome | None:
        """How the producer's last position of this source partition in this epoch ended; None: there is
        none."""
        return self._written.get((producer_id, partition), {}).get(epoch)

    def open_at(self, producer_id: int, place: TopicPartition) -> dict[TopicPartition, int]:
        """The source partitions whose positions are in an open transaction on `place`, with its epoch."""
        return self._open.get((producer_id, place), {})

    def is_surpassed(self, producer_id: int, place: TopicPartition) -> bool:
        """Whether another producer has written a later position. A process copies behind an open position
        only if it knows that the position was committed, so a later position proves that."""
        return (producer_id, place) in self._surpassed

    def _positions(self, batch: Batch) -> list[TopicPartition]:
        keys = [
            decode_source_offset_key(record.key, connector=self.connector_name)
            for record in decode_batch(batch)
        ]
        return [key.partition for key in keys if key is not None and key.cluster == self.source_alias]

    def _write(self, producer_id: int, place: TopicPartition, partition: TopicPartition, epoch: int) -> None:
        self._written.setdefault((producer_id, partition), {})[epoch] = TransactionOutcome.OPEN
        self._open.setdefault((producer_id, place), {})[partition] = epoch

    def _surpass(self, by: int, place: TopicPartition, positions: Collection[TopicPartition]) -> None:
        for (producer_id, open_place), open_positions in self._open.items():
            if open_place == place and producer_id != by and not open_positions.keys().isdisjoint(positions):
                self._surpassed.add((producer_id, place))

    def _end(self, producer_id: int, place: TopicPartition, marker: EndMarker | None) -> None:
        for partition, epoch in self._open.pop((producer_id, place), {}).items():
            if marker is not None:
                self._written[producer_id, partition][epoch] = _OF_MARKER[marker]
        self._surpassed.discard((producer_id, place))


@dataclass(slots=True, kw_only=True)
class CopyOutcome:
    """How the last transaction of a producer epoch that wrote to a copy ended. `read` the copy's log in
    order."""

    producer_id: int
    epoch: int
    outcome: TransactionOutcome | None = None
    """None: it wrote nothing there."""

    def read(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            header = batch.header
            if header.producer_id != self.producer_id:
                continue
            if not header.is_control:
                self.outcome = TransactionOutcome.OPEN if header.producer_epoch == self.epoch else None
            elif self.outcome is TransactionOutcome.OPEN and (marker := end_marker(batch)) is not None:
                self.outcome = _OF_MARKER[marker]


def verdict_of_positions(
    beside: Iterable[TransactionOutcome | None], *, is_surpassed: bool
) -> TransactionOutcome | None:
    """How to end open positions, by how the transaction ended on their copies; None: not certain.

    If no copy got a marker, and no later position exists, nobody has seen any of its records: it can be
    aborted, and is copied again.
    """
    found = set(beside)
    if is_surpassed or TransactionOutcome.COMMITTED in found:
        return TransactionOutcome.COMMITTED
    return None if TransactionOutcome.UNKNOWN in found else TransactionOutcome.ABORTED


def verdict_of_copy(
    position: TransactionOutcome | None, *, positions_verdict: TransactionOutcome | None, is_exact: bool
) -> TransactionOutcome | None:
    """How to end open records of a copy, by how their position ended; None: not certain. `positions_verdict`
    is how an open position will be ended. `is_exact`: the position belongs to exactly this transaction;
    otherwise it may belong to an earlier one that was committed."""
    match position:
        case None | TransactionOutcome.ABORTED:
            return TransactionOutcome.ABORTED
        case TransactionOutcome.OPEN:
            return positions_verdict
        case TransactionOutcome.COMMITTED:
            return TransactionOutcome.COMMITTED if is_exact else None
        case TransactionOutcome.UNKNOWN:
            return None
