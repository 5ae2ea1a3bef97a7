"""What becomes of what the source answers for a partition.

    FetchedPartition ──▶ whose records, and under which leader ──▶ how far it may be copied (Horizon)
                                                                                │
    PreparedChunk ◀── prepared ◀── what Spark made of the records ◀── they do not go round (Returns)

Questions are asked in the background: an answer may take as long as a broker hangs, and other partitions are
read meanwhile. This module never resets a position: an offset that the source does not have is reported
(`on_out_of_range`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import structlog

from twinlog.batches import CopyPolicy, LaneReason, OutgoingBatch, Prepared
from twinlog.batches.bodies import OpenRecord
from twinlog.batches.header import CURRENT_MAGIC, producer_ids, whole_batches_bytes
from twinlog.batches.prepared import NOT_YET
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TwinlogError, WireFormatError
from twinlog.kafka.raw import FetchedPartition, FetchFailure
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog.transforms.expressions import OnError
from twinlog_source.partitions.orders import Route
from twinlog_source.reasons import PartitionReason
from twinlog_source.records.changing import TRIES, Changed
from twinlog_source.records.dead_letters import DeadLetters
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.bounds import FOR_EVER, Cut, Horizon
from twinlog_source.task.reading.fetch_schedule import BACKLOG_BYTES, Throttle
from twinlog_source.task.reading.preparing import (
    CORRUPT_BATCH,
    RECORD_TOO_LARGE,
    end_of_first_batch,
    prepare_answer,
)

log = structlog.get_logger(__name__)

ROUTE_SECONDS = 2.0
"""The wait before the topic of a route is asked for again."""
EPOCH_AT, EPOCH_END = 12, 16
"""The bytes of the leader epoch in a batch; the magic byte follows."""


class Routed(NamedTuple):
    """Records of one partition that go to another topic than its copy."""

    route: TopicPartition
    """By the name that offset syncs have for it."""
    target: TopicPartition
    batch: OutgoingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChunk:
    """What one fetch of one partition brought, ready to be sent."""

    copy: PartitionCopy
    generation: int
    prepared: Prepared
    held_bytes: int
    """What was fetched, or what was made of it if that is more."""
    left_out: Mapping[LaneReason, int] = field(default_factory=dict)
    """How many records transforms have left out."""
    dead_letters: Sequence[OutgoingBatch] = ()
    """Those of them that go to another topic."""
    routed: Sequence[Routed] = ()
    """Records that take routes."""

    @property
    def is_current(self) -> bool:
        return self.generation == self.copy.generation


OutOfRange = Callable[[Sequence[PartitionCopy]], Awaitable[object]]
"""The source does not have these positions: find out why, and correct them or set the partitions aside."""
OtherLeaders = Callable[[Sequence[PartitionCopy]], Awaitable[Collection[TopicPartition]]]
"""The next records were written under other leaders: return the partitions whose log does not continue where
the copy stands."""
Echoes = Mapping[TopicPartition, Mapping[int, tuple[int, int]]]
"""By source partition and producer id, as in `CopyPolicy.echoes`."""
WhoWrote = Callable[[Mapping[TopicPartition, Collection[int]]], Awaitable[Echoes]]
"""Which batches of these producers of the source are copies of what the target has already. Leaves out
partitions of which that is not known; raises KafkaError while it is known of none."""


async def nobody_knows(_: Mapping[TopicPartition, Collection[int]]) -> Echoes:
    """For copies whose source has no copies."""
    return {}


def _left_out(prepared: Prepared, changed: Changed | None) -> Mapping[LaneReason, int]:
    failed = {} if changed is None else changed.left_out(prepared.next_offset)
    filtered = prepared.dropped_records - sum(failed.values())
    return {LaneReason.FILTERED: filtered, **failed} if filtered > 0 else failed


AskRoutes = Callable[[TopicPartition, Collection[str]], Awaitable[Collection[Route]]]
"""Where records of a partition go that take these routes. Raises KafkaError (ROUTE_REFUSED)."""


async def no_routes(_: TopicPartition, names: Collection[str]) -> Collection[Route]:
    """For copies none of whose records is routed."""
    raise AssertionError(f"nobody knows the routes {names}")


LeaveOut = Callable[[PartitionCopy, int], None]
"""Go on at this offset, and record the gap: the batch before it cannot be read."""


def nobody_leaves_out(copy: PartitionCopy, _until: int) -> None:
    """Before there is somebody who records gaps."""
    raise AssertionError(f"nobody records the gap of {copy.partition}")


async def nobody_judges(_: Sequence[PartitionCopy]) -> Collection[TopicPartition]:
    """Before there is somebody who decides about losses."""
    return ()


Ask = Callable[[Coroutine[None, None, None], str], None]
"""Runs something in the background."""
Change = Callable[[TopicPartition, Sequence[OpenRecord]], Awaitable[Changed]]
"""Raises TwinlogError while records cannot be changed."""


@dataclass(slots=True, kw_only=True)
class AnswerTaker(ABC):
    """Whoever reads has a buffer and a loop, and is told by `queued` and `wake`."""

    copies: Mapping[TopicPartition, PartitionCopy]
    throttle: Throttle
    read_committed: bool
    clock: Clock
    on_out_of_range: OutOfRange = nobody_judges
    on_other_leaders: OtherLeaders = nobody_judges
    on_corrupt: LeaveOut = nobody_leaves_out
    on_rest: OtherLeaders = nobody_judges
    """The log ends where these copies stand, and may be another one than before."""
    who_wrote: WhoWrote = nobody_knows
    ask_routes: AskRoutes = no_routes
    routes: dict[str, Route] = field(default_factory=dict)
    """Those whose topics exist, by name."""
    horizon: Horizon = field(default_factory=Horizon)
    """How far partitions may be copied for now."""
    change: Change | None = None
    """What Spark does to records; None = nothing."""
    dead_letters: DeadLetters | None = None
    """What becomes of records that cannot be changed, if that is wanted."""
    changed_topics: Callable[[str], bool] = lambda _topic: False
    in_question: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leaders are being asked about their logs, or whose records are being changed: they are
    neither fetched nor taken meanwhile."""
    little_at_spark: dict[TopicPartition, float] = field(default_factory=dict)
    """Those of which an answer without a backlog is being changed, since when."""
    ask: Ask = lambda _question, _name: None

    @abstractmethod
    def room_bytes(self, copy: PartitionCopy) -> int:
        """How much may be made of an answer, if that is more than was fetched."""

    @abstractmethod
    def leaves_out(self, copy: PartitionCopy, answer: FetchedPartition) -> bool:
        """Whether the partition has to be fetched again: what was made of earlier answers of the same poll is
        so much more than was fetched."""

    @abstractmethod
    def queued(self, chunk: PreparedChunk, size_bytes: int) -> None:
        """So much was fetched for it."""

    @abstractmethod
    def wake(self) -> None:
        """The set of readable partitions has changed."""

    def take(self, answers: Iterable[FetchedPartition | FetchFailure]) -> None:
        """Take what one poll brought, or ask about it before."""
        in_doubt: list[FetchedPartition] = []
        at_rest: list[FetchedPartition] = []
        out_of_range: list[PartitionCopy] = []
        for answer in answers:
            if isinstance(answer, FetchFailure):
                if self._failed(answer):
                    out_of_range.append(self.copies[answer.partition])
            elif self._is_under_another_leader(answer) or self._unknown_writers(answer):
                in_doubt.append(answer)
            else:
                if self._is_doubted(answer):
                    at_rest.append(answer)
                self._take(answer)
        if at_rest:
            self.in_question |= {answer.partition for answer in at_rest}
            self.ask(self._look_at_rest(at_rest), "look at logs that may have lost their tails")
        if in_doubt:
            self.in_question |= {answer.partition for answer in in_doubt}
            self.ask(self._look_at(in_doubt), "look at leaders and writers")
        if out_of_range:
            self.in_question |= {copy.partition for copy in out_of_range}
            self.ask(self._look_for_positions(out_of_range), "look for positions")

    async def _look_at(self, answers: Sequence[FetchedPartition]) -> None:
        """Take the answers of partitions whose log continues where the copy stands, once it is known who
        wrote their batches."""
        copies = [self.copies[answer.partition] for answer in answers]
        generations = [copy.generation for copy in copies]
        try:
            under_others = [
                copy
                for answer, copy in zip(answers, copies, strict=True)
                if self._is_under_another_leader(answer)
            ]
            refused = await self.on_other_leaders(under_others) if under_others else ()
            await self._learn([answer for answer in answers if answer.partition not in refused])
        finally:
            self.in_question -= {answer.partition for answer in answers}
        for answer, copy, generation in zip(answers, copies, generations, strict=True):
            # A partition that was moved meanwhile may have the same position again, in another log.
            if answer.partition not in refused and copy.generation == generation:
                self._take(answer)
        self.wake()

    async def _look_at_rest(self, answers: Sequence[FetchedPartition]) -> None:
        copies = {answer.partition: self.copies[answer.partition] for answer in answers}
        generations = {partition: copy.generation for partition, copy in copies.items()}
        try:
            refused = await self.on_rest(list(copies.values()))
        finally:
            self.in_question -= copies.keys()
        for partition, copy in copies.items():
            if copy.generation == generations[partition] and partition not in refused:
                copy.is_log_doubted = False
        self.wake()

    async def _look_for_positions(self, copies: Sequence[PartitionCopy]) -> None:
        try:
            await self.on_out_of_range(copies)
        finally:
            self.in_question -= {copy.partition for copy in copies}
        self.wake()

    async def _learn(self, answers: Sequence[FetchedPartition]) -> None:
        """Find out whose the batches are; set partitions aside where that is not known."""
        asked = {answer.partition: ids for answer in answers if (ids := self._unknown_writers(answer))}
        if not asked:
            return
        try:
            # What is not known holds up no other partition: the answer leaves it out, and asking about it
            # alone says why.
            while asked:
                told = await self.who_wrote(asked)
                for partition, echoes in told.items():
                    copy = self.copies[partition]
                    if copy.origins is not None:
                        copy.origins.update(echoes)
                        # A flow of another file copies back, which was not known when the task began.
                        copy.shared |= any(begin < end for begin, end in echoes.values())
                asked = {each: ids for each, ids in asked.items() if told and each not in told}
        except KafkaError as error:
            for partition in asked:
                words = f"which records are copies is not known: {error}"
                self._set_aside(self.copies[partition], error.reason, words)

    def _unknown_writers(self, answer: FetchedPartition) -> set[int]:
        """The producers of its batches that are not known yet, or not for good."""
        copy = self.copies.get(answer.partition)
        if copy is None or copy.origins is None or copy.fetched != answer.fetch_offset:
            return set()
        origins = copy.origins
        return {each for each in producer_ids(answer.records) if origins.get(each, NOT_YET) == NOT_YET}

    def _policy(self, copy: PartitionCopy, records: bytes | memoryview) -> CopyPolicy:
        if copy.origins is None:
            return copy.policy
        echoes = {
            producer_id: where
            for producer_id in producer_ids(records)
            if (where := copy.origins[producer_id])[0] < where[1]
        }
        return replace(copy.policy, echoes=echoes) if echoes else copy.policy

    def _is_under_another_leader(self, answer: FetchedPartition) -> bool:
        """Whether the fetched records begin with another leader epoch than the last copied one."""
        copy, records = self.copies.get(answer.partition), answer.records
        if copy is None or copy.fetched != answer.fetch_offset or copy.fetched_epoch is None:
            return False
        if len(records) <= EPOCH_END or records[EPOCH_END] != CURRENT_MAGIC:
            return False
        return int.from_bytes(records[EPOCH_AT:EPOCH_END], signed=True) != copy.fetched_epoch

    def _is_doubted(self, answer: FetchedPartition) -> bool:
        copy = self.copies.get(answer.partition)
        if copy is None or answer.records or copy.fetched != answer.fetch_offset:
            return False
        return copy.is_log_doubted and copy.is_idle and copy.fetched_epoch is not None

    async def _learn_routes(
        self, copy: PartitionCopy, answer: FetchedPartition, names: Collection[str]
    ) -> None:
        """Take an answer once there is a topic for each of its routes."""
        generation = copy.generation
        try:
            told = {route.name: route for route in await self.ask_routes(copy.partition, names)}
        except KafkaError as error:
            if copy.generation == generation:
                is_refused = error.reason == PartitionReason.ROUTE_REFUSED
                self._set_aside(copy, error.reason, str(error), retriable=not is_refused)
            return
        finally:
            self.in_question.discard(copy.partition)
        self.routes |= {name: route for name, route in told.items() if route.partition_count}
        missing = [route for route in told.values() if route.partition_count <= copy.partition.partition]
        if copy.generation == generation and missing:
            self._set_aside(
                copy,
                PartitionReason.ROUTE_NOT_THERE,
                f"records go to {missing[0].topic}: configsync creates it, or adds partitions, in seconds;"
                " `twinlog plan` says what is in its way",
                wait_seconds=ROUTE_SECONDS,
            )
        elif copy.generation == generation:
            self._take(answer)
        self.wake()

    def _take(self, answer: FetchedPartition) -> None:
        copy = self.copies.get(answer.partition)
        if copy is None or copy.fetched != answer.fetch_offset:
            return
        had_more = copy.has_more
        copy.end_offset = answer.last_stable_offset if self.read_committed else answer.high_watermark
        if not copy.takes_answers:
            return
        if self.leaves_out(copy, answer):
            return
        if not answer.records:
            copy.found_nothing()
            return
        cut = Cut(answer.records) if self.horizon.is_open else self._within_horizon(copy, answer)
        records = cut.records
        if not records and cut.ends_at is None:
            self._wait(copy, cut)
            return
        size_bytes = len(records)
        if not self.throttle.is_open:
            # The bytes up to the limit end in the middle of a batch; that batch is fetched again.
            spent_bytes = whole_batches_bytes(records) or size_bytes
            self.throttle.spend(answer.partition.topic, spent_bytes, self.clock.monotonic())
        policy = self._policy(copy, records)
        hold_seconds = 0.0
        if copy.origins is not None:
            hold_seconds = copy.returns.look(
                records,
                echoes=policy.echoes,
                sent=copy.sent,
                end=copy.end_offset or answer.high_watermark,
                now=self.clock.monotonic(),
            )
        if 0 < hold_seconds < math.inf:
            copy.wait_until(self.clock.monotonic() + hold_seconds, PartitionReason.LOOP)
        elif hold_seconds:
            self._set_aside(
                copy,
                PartitionReason.LOOP,
                "another program copies the copies back, and the same records come again and again: stop it,"
                " then set the position",
                retriable=False,
                wait_seconds=math.inf,
            )
        elif self.changed_topics(answer.partition.topic):
            self.in_question.add(answer.partition)
            if len(cut.records) < BACKLOG_BYTES and not had_more:
                self.little_at_spark[answer.partition] = self.clock.monotonic()
            self.ask(self._change(copy, answer, cut, policy), "change records")
        else:
            self._queue(copy, answer, cut, policy)

    async def _change(
        self, copy: PartitionCopy, answer: FetchedPartition, cut: Cut, policy: CopyPolicy
    ) -> None:
        """Take an answer after Spark has changed its records."""
        assert self.change is not None
        generation, opened = copy.generation, list[OpenRecord]()
        before, fetched, routes = policy.transform, dict[int, OpenRecord](), dict[int, str]()

        def open_only(records: Sequence[OpenRecord]) -> list[OpenRecord]:
            if policy.routes is None:
                opened.extend(records if before is None else before(records))
            else:
                for route, record in policy.routes(records):
                    opened.append(record)
                    routes[record[0]] = route
            fetched.update((record[0], record) for record in records)
            return []

        alone = replace(policy, opened={}, transform=open_only, routes=None)
        fault = prepare_answer(answer, cut, alone).fault

        def take(records: Sequence[OpenRecord]) -> list[OpenRecord]:
            if not all(record[0] in fetched for record in records):
                # Spark did not have them, so nothing may be concluded from their absence.
                raise WireFormatError(
                    "the batch could not be opened for Spark" if fault is None else fault.message,
                    reason=CORRUPT_BATCH if fault is None else fault.reason,
                )
            return changed.take(records)

        def take_routes(records: Sequence[OpenRecord]) -> Iterable[tuple[str, OpenRecord]]:
            return ((routes.get(record[0], ""), record) for record in take(records))

        try:
            changed = await self.change(answer.partition, opened)
        except TwinlogError as error:
            if copy.generation == generation:
                self._set_aside(copy, error.reason, str(error), retriable=False)
            return
        finally:
            self.in_question.discard(answer.partition)
            self.little_at_spark.pop(answer.partition, None)
        # A partition that was moved meanwhile may have the same position again, in another log.
        if copy.generation == generation and copy.takes_answers:
            routes |= changed.routes
            way = take_routes if any(routes.values()) else None
            self._queue(copy, answer, cut, replace(alone, transform=take, routes=way), changed, fetched)
        self.wake()

    def _queue(
        self,
        copy: PartitionCopy,
        answer: FetchedPartition,
        cut: Cut,
        policy: CopyPolicy,
        changed: Changed | None = None,
        fetched: Mapping[int, OpenRecord] = MappingProxyType({}),
    ) -> None:
        """`changed`: what Spark made of the records, which were `fetched` like this."""
        size_bytes = len(cut.records)
        prepared = prepare_answer(answer, cut, policy, self.room_bytes(copy))
        while (
            changed is not None
            and (fault := prepared.fault) is not None
            and fault.reason == RECORD_TOO_LARGE
            and changed.leave_out(copy.partition, fault.offset, fault.message)
        ):
            prepared = prepare_answer(answer, cut, policy, self.room_bytes(copy))
        if changed is not None and self._leaves_out_corrupt(copy, answer, prepared, changed):
            return
        number = copy.partition.partition
        ways = {name: self.routes.get(name) for name, _ in prepared.routed}
        unknown = [name for name, way in ways.items() if way is None or way.partition_count <= number]
        if copy.keeps_offsets and ways:
            raise AssertionError(f"{copy.partition}: a copy that keeps offsets has routes")
        if unknown:
            self.in_question.add(copy.partition)
            self.ask(self._learn_routes(copy, answer, unknown), "learn routes")
            return
        is_reached = self.horizon.is_reached(copy.partition, prepared.next_offset)
        if not prepared.is_cut and (is_reached or cut.wait_seconds != FOR_EVER):
            # Otherwise not all of it was prepared: the rest is fetched again.
            self._wait(copy, cut)
        if prepared.next_offset == answer.fetch_offset and prepared.fault is None:
            return
        copy.fetch_to(prepared.next_offset, prepared.leader_epochs)
        copy.counters.echoes += prepared.echo_records
        now_ms = self.clock.now_ms()
        for batch in prepared.batches:
            copy.counters.record_age.add_batch(batch.max_timestamp_ms, batch.record_count, now_ms=now_ms)
        chunk = PreparedChunk(
            copy=copy,
            generation=copy.generation,
            prepared=prepared,
            held_bytes=max(size_bytes, prepared.size_bytes),
            left_out=_left_out(prepared, changed),
            dead_letters=self._dead_letters(copy, changed, fetched, prepared.next_offset),
            routed=[
                Routed(TopicPartition(name, number), TopicPartition(way.topic, number), batch)
                for name, batch in prepared.routed
                if (way := ways[name]) is not None
            ],
        )
        if prepared.fault is not None:
            copy.hold()
        self.queued(chunk, size_bytes)

    def _leaves_out_corrupt(
        self, copy: PartitionCopy, answer: FetchedPartition, prepared: Prepared, changed: Changed
    ) -> bool:
        """Go on behind a batch that could not be read for some time, where the flow does not want to stop:
        another replica, or another try, might still give it."""
        fault = prepared.fault
        if (
            fault is None
            or fault.reason != CORRUPT_BATCH
            or prepared.next_offset != answer.fetch_offset
            or changed.on_error is OnError.STOP
            or copy.reason_before != CORRUPT_BATCH
            or copy.failures < TRIES
            or not copy.is_idle
            or (until := end_of_first_batch(answer)) is None
        ):
            return False
        log.warning("batch_left_out", partition=str(copy.partition), offset=fault.offset, until=until)
        self.on_corrupt(copy, until)
        return True

    def _dead_letters(
        self, copy: PartitionCopy, changed: Changed | None, fetched: Mapping[int, OpenRecord], below: int
    ) -> Sequence[OutgoingBatch]:
        if changed is None or self.dead_letters is None or changed.on_error is not OnError.DEAD_LETTER:
            return ()
        return self.dead_letters.batches(copy.partition, changed.failed_below(below), fetched)

    def _within_horizon(self, copy: PartitionCopy, answer: FetchedPartition) -> Cut:
        """What may be copied of an answer now; sets the partition aside where its end cannot be found. Other
        damaged bytes are left to the preparation."""
        try:
            cut = self.horizon.cut(
                copy.partition,
                answer.records,
                offset=answer.fetch_offset,
                now_ms=self.clock.now_ms(),
                log_end_offset=answer.high_watermark,
            )
        except WireFormatError:
            cut = Cut(answer.records)
        if cut.fault is not None:
            words = f"the copy ends within this batch, and it cannot be opened: {cut.fault}"
            self._set_aside(copy, cut.fault.reason, words, retriable=False)
        return cut

    def _wait(self, copy: PartitionCopy, cut: Cut) -> None:
        if cut.reason:
            copy.wait_until(self.clock.monotonic() + cut.wait_seconds, cut.reason)

    def _failed(self, failure: FetchFailure) -> bool:
        """Set the partition aside; return True instead when the source does not have the position."""
        copy = self.copies.get(failure.partition)
        if copy is None or copy.fetched != failure.fetch_offset:
            return False
        error = failure.error
        if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
            return True
        copy.is_log_doubted = True
        self._set_aside(copy, error.reason, f"source: {error}", retriable=error.retriable)
        return False

    def _set_aside(
        self,
        copy: PartitionCopy,
        reason: str,
        message: str,
        *,
        retriable: bool = True,
        wait_seconds: float | None = None,
    ) -> None:
        """Only reading failed: what was read before may still be committed."""
        copy.fail(
            reason=reason,
            message=message,
            retriable=retriable,
            now=self.clock.monotonic(),
            keep_in_flight=True,
            wait_seconds=wait_seconds,
        )
