"""Ends hanging transactions of the flow: a coordinator ended them, but did not reach a partition that had no
leader at that moment (KIP-664).

A process that takes over transactional ids does this before it reads positions. Otherwise it would wait for
open positions for ever, and open records would be committed or aborted together with the id's next
transaction on their partition.

A transaction covers a position and the copied records. Where it hangs in one place, the others decide:

    position          records on the copy          verdict
    open              one has a commit marker      commit the position
    open              behind it a later position   commit the position: others continued from it
    open              one cannot be read           not certain
    open              anything else                abort the position; its records are copied again
    committed         open                         commit the records (only with transactions of version 2)
    aborted, or none  open                         abort the records
    open              open                         as the position

Invariant: a transaction is ended here only if its outcome is certain. Otherwise it stays open, and the
producer's guard sends nothing more to that partition.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from twinlog.batches import Batch
from twinlog.errors import KafkaError, TransientKafkaError, required
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.raw import (
    BatchReader,
    DataClientPool,
    OpenTransaction,
    ProducerIdentity,
    TransactionCoordinator,
    fence,
    open_transactions,
)
from twinlog.kafka.raw.lookups import list_offset
from twinlog.model import TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import source_offset_key
from twinlog_source.log.outcomes import (
    CopyOutcome,
    PositionOutcomes,
    TransactionOutcome,
    verdict_of_copy,
    verdict_of_positions,
)

FETCH_MAX_BYTES = 4 << 20
TAIL_OFFSETS = 10_000
"""A copy is searched for a marker this far from its end, and ten times as far each time none is found."""
LONGEST_TAIL_OFFSETS = 10_000_000
CLOSE_SECONDS = 10.0
POLL_SECONDS = 0.05
HANGING = "HANGING_TRANSACTION"
TOPIC_UNKNOWN = "TOPIC_UNKNOWN"

log = structlog.get_logger(__name__)

Hanging = Mapping[TopicPartition, Sequence[OpenTransaction]]


class PositionsPlace(Protocol):
    """Where the positions of the flow are stored, and under which keys."""

    @property
    def topic(self) -> str: ...

    @property
    def partition_count(self) -> int: ...

    @property
    def source_alias(self) -> str: ...

    @property
    def connector_name(self) -> str: ...


@dataclass(slots=True, kw_only=True)
class TakeOver:
    """Takes over transactional ids on the target; for one task at a time."""

    session: DataClientPool
    positions: PositionsPlace
    target_topic: Callable[[str], str | None]
    """Maps a source topic to its copy, if known."""
    timeout_seconds: float
    """The timeout of each call."""
    transaction_timeout_seconds: float
    """`transaction.timeout.ms` of the producers that use these ids."""

    async def take(
        self,
        transactional_ids: Sequence[str],
        copies: Mapping[TopicPartition, TopicPartition],
        *,
        committed: Collection[TopicPartition] = (),
    ) -> None:
        """Fence the ids, then end their hanging transactions on the positions topic and on `copies` (target
        partition -> source partition). On partitions of `committed` the transaction was certainly committed.
        Raises KafkaError."""
        if not transactional_ids:
            return
        holders: dict[int, tuple[str, ProducerIdentity]] = {}
        for transactional_id, answer in (
            await fence(
                self.session,
                transactional_ids,
                timeout_seconds=self.timeout_seconds,
                transaction_timeout_seconds=self.transaction_timeout_seconds,
            )
        ).items():
            holder = required(answer)
            holders[holder.producer_id] = transactional_id, holder
        hanging = await self._hanging(holders.keys(), copies)
        if hanging:
            await self._end(hanging, holders, copies, committed)

    async def _hanging(
        self, producer_ids: Collection[int], copies: Mapping[TopicPartition, TopicPartition]
    ) -> Hanging:
        """Find the open transactions of these producers, which write nothing now. Partitions that do not
        answer are left out: readers wait there, and their writer asks again."""
        places = [TopicPartition(self.positions.topic, n) for n in range(self.positions.partition_count)]
        answers = await open_transactions(
            self.session, [*places, *copies], timeout_seconds=self.timeout_seconds
        )
        hanging: dict[TopicPartition, list[OpenTransaction]] = {}
        for partition, opened in answers.items():
            if isinstance(opened, KafkaError):
                continue
            own = [one for one in opened if one.producer_id in producer_ids]
            if own:
                hanging[partition] = own
        return hanging

    async def _end(
        self,
        hanging: Hanging,
        holders: Mapping[int, tuple[str, ProducerIdentity]],
        copies: Mapping[TopicPartition, TopicPartition],
        committed: Collection[TopicPartition],
    ) -> None:
        outcomes, unread = await self._outcomes(hanging, copies)
        ended: dict[int, set[TopicPartition]] = {}
        for producer_id in {one.producer_id for opened in hanging.values() for one in opened}:
            transactional_id, identity = holders[producer_id]
            coordinator = TransactionCoordinator(
                self.session,
                transactional_id,
                transaction_timeout_seconds=self.transaction_timeout_seconds,
            )
            await coordinator.agree(timeout_seconds=self.timeout_seconds)
            own = {
                partition: one
                for partition, opened in hanging.items()
                for one in opened
                if one.producer_id == producer_id
            }
            verdicts = await self._verdicts(
                own, copies, outcomes, unread, committed=committed, has_own_epochs=coordinator.version_2
            )
            for verdict in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED):
                partitions = {partition for partition in own if verdicts.get(partition) is verdict}
                if not partitions:
                    continue
                await coordinator.add_partitions(
                    identity, partitions, timeout_seconds=self.timeout_seconds, unknown_topic_seconds=0.0
                )
                identity = await coordinator.end(
                    identity,
                    commit=verdict is TransactionOutcome.COMMITTED,
                    timeout_seconds=self.timeout_seconds,
                )
                ended.setdefault(producer_id, set()).update(partitions)
            for partition, one in own.items():
                outcome = verdicts.get(partition)
                log.warning(
                    "hanging_transaction_left" if outcome is None else "hanging_transaction_ended",
                    partition=str(partition),
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=one.producer_epoch,
                    first_offset=one.first_offset,
                    outcome=outcome,
                )
        await self._await_closed(ended)

    async def _outcomes(
        self, hanging: Hanging, copies: Mapping[TopicPartition, TopicPartition]
    ) -> tuple[PositionOutcomes, set[TopicPartition]]:
        """Read the outcomes from the positions topic, and which of its partitions cannot be read."""
        outcomes = PositionOutcomes(
            producer_ids=frozenset(one.producer_id for opened in hanging.values() for one in opened),
            source_alias=self.positions.source_alias,
            connector_name=self.positions.connector_name,
        )
        places = {
            self._place_of(copies[partition]) if partition in copies else partition for partition in hanging
        }
        unread: set[TopicPartition] = set()
        for place in places:
            try:
                await self._scan(place, partial(outcomes.read, place))
            except KafkaError as error:
                log.debug("positions_unread", partition=str(place), error=str(error))
                unread.add(place)
        return outcomes, unread

    async def _verdicts(
        self,
        hanging: Mapping[TopicPartition, OpenTransaction],
        copies: Mapping[TopicPartition, TopicPartition],
        outcomes: PositionOutcomes,
        unread: Collection[TopicPartition],
        *,
        committed: Collection[TopicPartition],
        has_own_epochs: bool,
    ) -> dict[TopicPartition, TransactionOutcome | None]:
        """Decide how to end each open transaction of one producer; None: not certain."""
        verdicts: dict[TopicPartition, TransactionOutcome | None] = {}
        for place, one in hanging.items():
            if place in committed:
                verdicts[place] = TransactionOutcome.COMMITTED
            elif place in unread:
                verdicts[place] = None
            elif place not in copies:
                beside = [
                    await self._outcome_of_copy(source, one.producer_id, epoch)
                    for source, epoch in outcomes.open_at(one.producer_id, place).items()
                ]
                verdicts[place] = verdict_of_positions(
                    beside, is_surpassed=outcomes.is_surpassed(one.producer_id, place)
                )
        for partition, one in hanging.items():
            if partition not in verdicts:
                source = copies[partition]
                place = self._place_of(source)
                position = outcomes.of(one.producer_id, source, one.producer_epoch)
                verdicts[partition] = verdict_of_copy(
                    TransactionOutcome.UNKNOWN if place in unread else position,
                    positions_verdict=verdicts.get(place),
                    is_exact=has_own_epochs,
                )
        return verdicts

    async def _outcome_of_copy(
        self, source: TopicPartition, producer_id: int, epoch: int
    ) -> TransactionOutcome | None:
        """Search the copy from its end: the producer wrote nothing after the transaction."""
        topic = self.target_topic(source.topic)
        if topic is None:
            return None
        copy = TopicPartition(topic, source.partition)
        length = TAIL_OFFSETS
        while True:
            found = CopyOutcome(producer_id=producer_id, epoch=epoch)
            try:
                is_whole = await self._scan(copy, found.read, last_offsets=length)
            except KafkaError as error:
                if error.reason == TOPIC_UNKNOWN:
                    return None
                return TransactionOutcome.UNKNOWN
            if found.outcome is not None or is_whole or length >= LONGEST_TAIL_OFFSETS:
                return found.outcome
            length *= 10

    async def _scan(
        self,
        partition: TopicPartition,
        read: Callable[[Sequence[Batch]], None],
        *,
        last_offsets: int | None = None,
    ) -> bool:
        """Pass the partition, or its last part, to `read`; return whether that was all of it."""
        start = await list_offset(self.session, OffsetSpec.EARLIEST, partition)
        end = await list_offset(self.session, OffsetSpec.LATEST, partition)
        offset = start if last_offsets is None else max(start, end - last_offsets)
        is_whole = offset == start
        reader = BatchReader(self.session, read_committed=False)
        while offset < end:
            fetched = await reader.fetch(partition, offset, max_bytes=FETCH_MAX_BYTES, known_end=end)
            read(fetched.batches)
            after = fetched.next_offset(offset)
            if after == offset:
                break
            offset = after
        return is_whole

    async def _await_closed(self, ended: Mapping[int, Collection[TopicPartition]]) -> None:
        """Wait for the markers, which are written after the end was answered. Raises TransientKafkaError when
        they do not come."""
        partitions = {partition for each in ended.values() for partition in each}
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while partitions:
                    answers = await open_transactions(
                        self.session, partitions, timeout_seconds=self.timeout_seconds
                    )
                    partitions = {
                        partition
                        for partition, opened in answers.items()
                        if isinstance(opened, KafkaError)
                        or any(partition in ended.get(one.producer_id, ()) for one in opened)
                    }
                    await pause(POLL_SECONDS)
        except TimeoutError as error:
            first = min(partitions)
            raise TransientKafkaError(
                f"{first}: a hanging transaction there could not be ended", reason=HANGING
            ) from error

    def _place_of(self, source: TopicPartition) -> TopicPartition:
        """The partition of the positions topic that stores a source partition's position."""
        key = source_offset_key(self.positions.source_alias, source, connector=self.positions.connector_name)
        return TopicPartition(self.positions.topic, partition_for_key(key, self.positions.partition_count))
