"""The coordinators of transactions: who has a transactional id, and how far its transaction is.

After TransactionCoordinator.scala and TransactionMetadata.java; KIP-98, KIP-360, KIP-447, KIP-890.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from twinlog.batches import EndMarker
from twinlog.clock import Clock

TopicIndex = tuple[str, int]
_LAST_EPOCH = (1 << 15) - 2
"""An id whose epochs reached this is followed by another one."""
_LONGEST_TIMEOUT_MS = 15 * 60_000
"""transaction.max.timeout.ms."""
_FIRST_PRODUCER_ID = 1000


class State(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)


class Markers(Protocol):
    """Where a transaction ends."""

    def write_marker(
        self, partition: TopicIndex, marker: EndMarker, identity: Identity, coordinator_epoch: int
    ) -> bool:
        """Returns False while the partition has no leader."""
        ...

    @property
    def clock(self) -> Clock: ...


@dataclass(slots=True, eq=False)
class Transaction:
    """What the coordinator knows of a transactional id."""

    transactional_id: str
    identity: Identity
    timeout_ms: int
    state: State = State.EMPTY
    partitions: dict[TopicIndex, None] = field(default_factory=dict)
    started_ms: int = -1
    marked_as: Identity = NOBODY
    """The identity in the markers of the transaction that ends."""
    next_identity: Identity = NOBODY
    """Who has the id when the transaction has ended."""
    previous: Identity = NOBODY
    """Who had the id before the last end of a transaction of version 2, for a repeated EndTxn."""
    number: int = 0
    """Counts its transactions, so that a timer knows its own."""
    unmarked: dict[TopicIndex, None] = field(default_factory=dict)


class TransactionCoordinators:
    """All of a cluster; which broker is asked does not matter here."""

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self.by_id: dict[str, Transaction] = {}
        self.next_producer_id = _FIRST_PRODUCER_ID
        self.coordinator_epoch = 0
        self.holds_markers = False
        """A fault: transactions end, but no marker is written."""

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def init(
        self, transactional_id: str | None, timeout_ms: int, expected: Identity = NOBODY
    ) -> tuple[Identity, ErrorCode]:
        """InitProducerId. `expected`: who a producer that recovers takes itself for (KIP-360)."""
        if transactional_id is None:
            return Identity(self.new_producer_id(), 0), ErrorCode.none
        if not transactional_id:
            return NOBODY, ErrorCode.invalid_request
        if not 0 < timeout_ms <= _LONGEST_TIMEOUT_MS:
            return NOBODY, ErrorCode.invalid_transaction_timeout
        found = self.by_id.get(transactional_id)
        if found is None:
            identity = Identity(self.new_producer_id(), 0)
            self.by_id[transactional_id] = Transaction(transactional_id, identity, timeout_ms)
            return identity, ErrorCode.none
        if expected != NOBODY and expected not in (found.identity, found.previous):
            return NOBODY, ErrorCode.producer_fenced
        if found.state in _ENDING:
            return NOBODY, ErrorCode.concurrent_transactions
        if found.state is State.ONGOING:
            self._fence_and_abort(found)
            return NOBODY, ErrorCode.concurrent_transactions
        found.timeout_ms = timeout_ms
        found.state = State.EMPTY
        found.started_ms = -1
        found.previous = NOBODY
        if expected != NOBODY:
            found.previous = found.identity
        found.identity = self._next(found.identity)
        return found.identity, ErrorCode.none

    def add(self, transactional_id: str, identity: Identity, partitions: Iterable[TopicIndex]) -> ErrorCode:
        """Begin the transaction if need be, and have these in it."""
        found, error = self._checked(transactional_id, identity)
        if found is None or error:
            return error
        if found.state in _ENDING:
            return ErrorCode.concurrent_transactions
        if found.state is not State.ONGOING:
            found.state = State.ONGOING
            found.started_ms = self._markers.clock.now_ms()
            found.number += 1
            self._expire_later(found)
        found.partitions.update(dict.fromkeys(partitions))
        return ErrorCode.none

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicIndex, *, adds: bool
    ) -> ErrorCode:
        """A leader asks before a transaction's first batch (KIP-890). `adds`: transactions of version 2."""
        identity = Identity(producer_id, epoch)
        if adds:
            error = self.add(transactional_id, identity, [partition])
        else:
            found, error = self._checked(transactional_id, identity)
            if found is not None and not error:
                if found.state in _ENDING:
                    error = ErrorCode.concurrent_transactions
                elif partition not in found.partitions:
                    error = ErrorCode.transaction_abortable
        if error is ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        if error is ErrorCode.concurrent_transactions and not adds:
            return ErrorCode.not_enough_replicas
        return error

    def end(
        self, transactional_id: str, identity: Identity, *, commit: bool, version_2: bool
    ) -> tuple[Identity, ErrorCode]:
        """EndTxn. In version 2 the end has the identity of the next transaction."""
        found = self.by_id.get(transactional_id)
        if found is None or not transactional_id:
            error = ErrorCode.invalid_producer_id_mapping if transactional_id else ErrorCode.invalid_request
            return NOBODY, error
        complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        preparing = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        if version_2 and identity == found.previous:
            if found.state is complete:
                return found.identity, ErrorCode.none
            if found.state is preparing:
                return NOBODY, ErrorCode.concurrent_transactions
        _, error = self._checked(transactional_id, identity)
        if error:
            return NOBODY, error
        if found.state is preparing:
            return NOBODY, ErrorCode.concurrent_transactions
        if found.state is complete and not version_2:
            return NOBODY, ErrorCode.none
        if found.state is not State.ONGOING and (commit or not version_2 or found.state in _ENDING):
            return NOBODY, ErrorCode.invalid_txn_state
        self._prepare(found, commit=commit, bumps=version_2)
        return (found.next_identity if version_2 else NOBODY), ErrorCode.none

    def _prepare(self, found: Transaction, *, commit: bool, bumps: bool) -> None:
        """Decide the transaction, then write the markers."""
        found.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        found.marked_as = found.identity
        found.next_identity = found.identity
        if bumps:
            found.previous = found.identity
            found.marked_as = Identity(found.identity.producer_id, found.identity.epoch + 1)
            found.next_identity = self._next(found.identity)
        found.unmarked = dict(found.partitions)
        self._complete(found)

    def _complete(self, found: Transaction) -> None:
        if self.holds_markers:
            return
        commit = found.state is State.PREPARE_COMMIT
        marker = EndMarker.COMMIT if commit else EndMarker.ABORT
        for partition in list(found.unmarked):
            if self._markers.write_marker(partition, marker, found.marked_as, self.coordinator_epoch):
                del found.unmarked[partition]
        if found.unmarked:
            return
        found.state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        found.identity = found.next_identity
        found.partitions.clear()

    def write_pending_markers(self) -> None:
        """Try again: a partition has a leader again, or markers are held no more."""
        for found in self.by_id.values():
            if found.state in _ENDING:
                self._complete(found)

    def _fence_and_abort(self, found: Transaction) -> None:
        """Nobody who has the id now writes any more."""
        found.identity = Identity(found.identity.producer_id, found.identity.epoch + 1)
        found.previous = NOBODY
        self._prepare(found, commit=False, bumps=False)

    def _next(self, identity: Identity) -> Identity:
        if identity.epoch >= _LAST_EPOCH:
            return Identity(self.new_producer_id(), 0)
        return Identity(identity.producer_id, identity.epoch + 1)

    def _checked(self, transactional_id: str, identity: Identity) -> tuple[Transaction | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.invalid_request
        found = self.by_id.get(transactional_id)
        if found and found.state in _ENDING and found.identity != identity == found.next_identity:
            return found, ErrorCode.concurrent_transactions  # Its epoch is in force, its turn has not come.
        if found is None or found.identity.producer_id != identity.producer_id:
            return None, ErrorCode.invalid_producer_id_mapping
        if found.identity.epoch != identity.epoch:
            return found, ErrorCode.producer_fenced
        return found, ErrorCode.none

    def _expire_later(self, found: Transaction) -> None:
        """A producer that is away does not keep its transaction open for ever (transaction.timeout.ms)."""
        number = found.number

        def expire() -> None:
            if found.state is State.ONGOING and found.number == number:
                self._fence_and_abort(found)

        _call_later(found.timeout_ms / 1000, expire)


def _call_later(seconds: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, callback)
