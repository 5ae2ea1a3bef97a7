"""Reads the end of preserved copies: where the log ends once every replica has it, and which batches are
there.

Three requests, each to all leaders at once: the high watermark and the leader epoch (ListOffsets), the end of
the leader's log (OffsetForLeaderEpoch), the writer's last sequence number (DescribeProducers). While the
first two differ, records are still being replicated, and the end is not known yet; but where others write
all the time, they never agree, and what is said then is that the copy is not ours alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace

from twinlog.batches.header import BatchHeader
from twinlog.errors import KafkaError, TransientKafkaError, required
from twinlog.kafka.ports import LogEnd, OffsetSpec
from twinlog.kafka.raw import BatchReader, DataClientPool, epoch_ends
from twinlog.kafka.raw.leaders import answered, leader_topic_ids
from twinlog.kafka.raw.lookups import ProducerStates, list_offset, log_ends, producer_states
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.preserved.append_steps import SEQUENCE_MASK, Hole, PreservedReason, ReadEnd, Tail
from twinlog_source.preserved.own_batches import (
    FilledRanges,
    FirstForeign,
    ForeignLook,
    OwnBatches,
    begins,
    is_filler,
    sequence_behind,
)
from twinlog_source.preserved.target_probe import LOOKS_BACK, batch_at, record_batch_at

LOOK_BYTES = 4 << 20
"""The size of one answer when batches are read."""
LOOKS_AT_ONCE = 4
"""How many copies have their batches read at the same time."""

TailRead = Callable[[TopicPartition, Tail | KafkaError], None]
"""Called for each copy when its tail is known, or with the error."""


@dataclass(frozen=True, slots=True)
class _Before:
    """The writer's last batch in the log before an offset."""

    batch: BatchHeader | None
    is_beginning: bool = False
    """There is none, and the log has lost none: its first batch is at offset 0."""


class CopyTails:
    """Asks the leaders of the target."""

    def __init__(self, session: DataClientPool, *, writer_id: int, timeout_seconds: float) -> None:
        """`writer_id` is the producer id of the flow's copies."""
        self._session = session
        self._writer_id = writer_id
        self._timeout_seconds = timeout_seconds
        self._reader = BatchReader(session, read_committed=False)

    async def read(self, asked: Mapping[TopicPartition, ReadEnd], found: TailRead) -> None:
        """Read the tail of each copy. Everything behind `checked_from` is checked, however much that is; a
        copy that takes long does not delay the result of others."""
        told: set[TopicPartition] = set()

        def tell(partition: TopicPartition, tail: Tail | KafkaError) -> None:
            told.add(partition)
            found(partition, tail)

        try:
            await self._read(asked, tell)
        except KafkaError as error:
            # No broker can be reached.
            for partition in asked.keys() - told:
                found(partition, error)

    async def _read(self, asked: Mapping[TopicPartition, ReadEnd], found: TailRead) -> None:
        ends = answered(await log_ends(self._session, asked, timeout_seconds=self._timeout_seconds), found)
        ends = await self._without_recreated(asked, ends, found)
        states = answered(
            await producer_states(self._session, ends, timeout_seconds=self._timeout_seconds), found
        )
        leader_ends = answered(
            await epoch_ends(
                self._session,
                {partition: ends[partition].leader_epoch for partition in states},
                timeout_seconds=self._timeout_seconds,
            ),
            found,
        )
        at_once, client = asyncio.Semaphore(LOOKS_AT_ONCE), await self._session.client("look at copies")

        async def look(partition: TopicPartition, behind: int) -> None:
            async with at_once:
                try:
                    tail = await self._tail(partition, ends[partition], states[partition], asked[partition])
                    if behind and not await self._is_others(partition, tail):
                        brokers = client.in_sync(partition)
                        words = f"{partition}: of the replicas in sync (brokers {brokers}) not all have the"
                        words = f"{words} last {behind} of its offsets yet"
                        raise TransientKafkaError(words, reason=PreservedReason.HIGH_WATERMARK_BEHIND)
                except KafkaError as error:
                    found(partition, error)
                else:
                    found(partition, tail)

        async with asyncio.TaskGroup() as group:
            for partition, end in leader_ends.items():
                behind = end.end_offset - ends[partition].offset
                group.create_task(look(partition, behind), name=f"look at {partition}")

    async def _is_others(self, partition: TopicPartition, tail: Tail) -> bool:
        """Whether others write to the copy, and all batches of its own lie before the tail's end: the leader
        knows of none that comes after the last one there."""
        if tail.foreign_from is None:
            return False
        if not tail.knows_writer:
            return True
        own = await self._own_before(partition, tail.foreign_from)
        async for header in self._headers(partition, tail.foreign_from, tail.end, own):
            own.owns(header)
        return own.next_sequence == tail.next_sequence

    async def _without_recreated(
        self, asked: Mapping[TopicPartition, ReadEnd], ends: dict[TopicPartition, LogEnd], found: TailRead
    ) -> dict[TopicPartition, LogEnd]:
        """Leave out copies whose topic was recreated: nothing is written to them before the driver has
        decided about the new topic. A log that is not shorter than before may be another topic's, too; it has
        foreign records then, and `foreign_write` asks."""
        shorter = [partition for partition, end in ends.items() if end.offset < asked[partition].checked_from]
        recreated = await self._recreated({partition: asked[partition].topic_id for partition in shorter})
        for partition, error in recreated.items():
            found(partition, error)
            del ends[partition]
        return ends

    async def _recreated(self, known: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, KafkaError]:
        """Which of these topics have another id than the known one; also those that are not known to have the
        same. "" = brokers without topic ids."""
        asked = [partition for partition, topic_id in known.items() if topic_id]
        if not asked:
            return {}
        answers = await leader_topic_ids(self._session, asked, timeout_seconds=self._timeout_seconds)
        wrong: dict[TopicPartition, KafkaError] = {}
        for partition, answer in answers.items():
            if isinstance(answer, KafkaError):
                wrong[partition] = answer
            elif answer not in ("", known[partition]):
                words = f"{partition}: the target topic was recreated; its copy begins soon"
                wrong[partition] = TransientKafkaError(words, reason=PreservedReason.TARGET_RECREATED)
        return wrong

    async def _tail(
        self, partition: TopicPartition, end: LogEnd, states: ProducerStates, asked: ReadEnd
    ) -> Tail:
        epoch = end.leader_epoch
        foreign, filled = await self._look(partition, asked, end)
        state = states.get(self._writer_id)
        if state is not None and state.last_sequence >= 0:
            return Tail(end.offset, (state.last_sequence + 1) & SEQUENCE_MASK, True, foreign, filled, epoch)
        # The leader forgot the writer and accepts any number. Two owners that find the same end choose the
        # same one.
        before = await self._before(partition, end.offset)
        follows = None if before.batch is None else sequence_behind(before.batch)
        return Tail(end.offset, follows, False, foreign, filled, epoch)

    async def foreign_write(
        self, partition: TopicPartition, foreign_at: int, lost_since: int | None = None, topic_id: str = ""
    ) -> FirstForeign:
        """Analyse a copy from its first foreign offset on, while we have nothing in flight. `lost_since`: the
        log has lost records since this leader epoch, and the copy ends where that may have begun. Raises
        KafkaError, with TARGET_RECREATED when the topic has another id than `topic_id`."""
        for error in (await self._recreated({partition: topic_id})).values():
            raise error
        tails: dict[TopicPartition, Tail | KafkaError] = {}
        await self.read({partition: ReadEnd(foreign_at)}, tails.__setitem__)
        end = required(tails[partition])
        if lost_since is not None and end.leader_epoch is not None:
            log_end, asked = LogEnd(end.end, end.leader_epoch), ReadEnd(foreign_at, lost_since)
            lost_from = await self._may_be_lost_from(partition, asked, log_end)
            if lost_from < foreign_at:
                return FirstForeign(-1, lost_from, 0)
        own = await self._own_before(partition, foreign_at)
        look = ForeignLook(foreign_at, own)
        async for header in self._headers(partition, foreign_at, end.end, own):
            look.see(header)
        return look.found

    async def _look(
        self, partition: TopicPartition, asked: ReadEnd, log_end: LogEnd
    ) -> tuple[int | None, tuple[Hole, ...]]:
        """The first foreign offset, and the filled ranges from `checked_from` on before it; or from where the
        log may have lost records since. Everything below `common_until` was compared with the source.

        A log that ends before `checked_from` has lost its tail, or was recreated, or another replicator
        (MirrorMaker 2) has copied for a while, so that the position moved past the end of the log. Therefore
        its end and its beginning are checked, and everything written since it may have lost its tail.
        """
        asked = replace(asked, checked_from=max(asked.checked_from, asked.common_until))
        end, checked_from = log_end.offset, asked.checked_from
        if end < checked_from:
            begin = await self._stay_of_others(partition, end, asked.common_until)
            if begin is None and not asked.common_until:
                begin = await self._foreign_beginning(partition, end)
            if begin is not None:
                return begin, await self._filled_before(partition, begin)
            checked_from = await self._filled_from(partition, end)
        checked_from = min(checked_from, await self._may_be_lost_from(partition, asked, log_end))
        if end == checked_from:
            return None, ()
        own = await self._own_before(partition, checked_from)
        filled = FilledRanges(checked_from)
        async for header in self._headers(partition, checked_from, end, own):
            if not own.owns(header):
                found = max(header.base_offset, checked_from)
                begin = await self._stay_of_others(partition, found, asked.common_until)
                if begin is None:
                    return found, filled.found
                return begin, await self._filled_before(partition, begin)
            if header.producer_id != self._writer_id:
                filled.add(header)
        return None, filled.found

    async def _filled_before(self, partition: TopicPartition, end: int) -> tuple[Hole, ...]:
        """What is filled right before an offset, which may be where records were that the log has lost."""
        begin = await self._filled_from(partition, end)
        return (Hole(begin, end - begin),) if begin < end else ()

    async def _filled_from(self, partition: TopicPartition, end: int) -> int:
        """The start of the filled range right before an offset."""
        at = end
        for _ in range(LOOKS_BACK):
            header = await batch_at(self._reader, partition, at - 1)
            if header is None or not is_filler(header):
                break
            at = header.base_offset
        return at

    async def _may_be_lost_from(self, partition: TopicPartition, asked: ReadEnd, end: LogEnd) -> int:
        """Where a log may have continued after it lost checked records. It loses records only when its leader
        changes, so everything that the leader of that time wrote, and that is still there, was checked."""
        known = asked.leader_epoch
        if known is None and end.offset < asked.checked_from:
            # At least what the present leader wrote.
            known = end.leader_epoch - 1
        if known is None or known >= end.leader_epoch:
            return end.offset
        asked_epoch = {partition: known}
        ends = await epoch_ends(self._session, asked_epoch, timeout_seconds=self._timeout_seconds)
        ended = required(ends[partition])
        return min(ended.end_offset, end.offset) if ended.end_offset >= 0 else end.offset

    async def _foreign_beginning(self, partition: TopicPartition, end: int) -> int | None:
        """Where the log begins with foreign records."""
        own = OwnBatches(self._writer_id, is_first=True)
        async for header in self._headers(partition, 0, end, own):
            if not own.owns(header):
                return header.base_offset
            if header.producer_id == self._writer_id:
                return None
        return None

    async def _stay_of_others(self, partition: TopicPartition, end: int, common_until: int) -> int | None:
        """The start of the foreign records right below an offset.

        None = they are ours, or below `common_until`. Everything before the start is ours, so a binary search
        finds it.
        """

        def is_foreign(header: BatchHeader | None) -> bool:
            # A filled range may follow `common_until`; the records before it are below that offset.
            return (
                header is not None
                and header.producer_id != self._writer_id
                and header.base_offset >= common_until
            )

        last = await record_batch_at(self._reader, partition, end - 1)
        if last is None or not is_foreign(last):
            return None
        low, high = common_until, last.base_offset
        while low < high:
            middle = (low + high) // 2
            header = await record_batch_at(self._reader, partition, middle)
            if header is not None and is_foreign(header):
                high = header.base_offset
            else:
                low = middle + 1
        return high

    async def _own_before(self, partition: TopicPartition, offset: int) -> OwnBatches:
        """What the copy's next batches have to follow, before the batch that contains an offset."""
        try:
            fetched = await self._reader.fetch(partition, offset, max_bytes=1)
        except KafkaError as error:
            if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                return OwnBatches(self._writer_id)  # It was deleted, with everything before it.
            raise
        at = min((batch.header.base_offset for batch in fetched.batches), default=offset)
        first = fetched.batches[0].header if fetched.batches else None
        if first is not None and first.producer_id == self._writer_id and begins(first):
            return OwnBatches(self._writer_id)  # It is correct whatever comes before it.
        before = await self._before(partition, at)
        follows = None if before.batch is None else sequence_behind(before.batch)
        return OwnBatches(self._writer_id, follows, before.is_beginning)

    async def _headers(
        self, partition: TopicPartition, begin: int, end: int, own: OwnBatches
    ) -> AsyncIterator[BatchHeader]:
        """The headers of the batches between two offsets that the log still has."""
        at = begin
        while at < end:
            try:
                fetched = await self._reader.fetch(partition, at, max_bytes=LOOK_BYTES, known_end=end)
            except KafkaError as error:
                if error.reason != KafkaReason.OFFSET_OUT_OF_RANGE:
                    raise
                start = await list_offset(self._session, OffsetSpec.EARLIEST, partition)
                if start <= at:
                    raise
                at = start
                own.lose_track()
                continue
            if not fetched.batches:
                return
            for batch in fetched.batches:
                if at < batch.header.next_offset <= end:
                    yield batch.header
            at = fetched.next_offset(at)

    async def _before(self, partition: TopicPartition, offset: int) -> _Before:
        """The writer's last batch before an offset."""
        at = offset - 1
        for _ in range(LOOKS_BACK):
            if at < 0:
                return _Before(None, is_beginning=True)
            header = await batch_at(self._reader, partition, at)
            if header is None or header.producer_id == self._writer_id:
                return _Before(header)
            at = header.base_offset - 1
        return _Before(None)
