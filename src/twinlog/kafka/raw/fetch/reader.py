"""One fetch at a time, as batches, for readers that read single places of a log and decode little.

One fetch of one partition from its leader, for readers that read single places of a log.

It finds moved leaders again, for all these readers.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinlog.batches.header import Batch, iter_following
from twinlog.batches.visibility import AbortedTransaction
from twinlog.errors import KafkaError, WireFormatError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, extend, pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.protocol.reach import LONGEST_THROTTLE_SECONDS
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.fetch.results import FetchFailure
from twinlog.kafka.raw.fetch.wire import FETCH, FetchedPartition, FetchPart, FetchResponse, fetch_request
from twinlog.kafka.raw.leaders import about, damaged, leader_of, partition_error
from twinlog.model import TopicPartition


async def fetch_from_leader(
    session: DataClientPool,
    partition: TopicPartition,
    offset: int,
    *,
    max_wait_seconds: float,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
    doing: str,
    limits: Collection[asyncio.Timeout],
) -> FetchedPartition:
    """Return the leader's answer; a refusal is raised as KafkaError.

    If the leader moved or is being elected, retry for half of the session's time-out. While the leader
    throttles its client (KIP-219) it is not asked: `limits` move by that time, and after a minute of
    throttles QUOTA_EXCEEDED is raised.
    """
    loop = asyncio.get_running_loop()
    retry_until = loop.time() + session.timeout_seconds / 2
    request = fetch_request(
        [FetchPart(partition, offset)],
        max_wait_ms=math.ceil(max_wait_seconds * 1000),  # Never 0 for a rest: it would be asked again.
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_partition_bytes=max_bytes,
        read_committed=read_committed,
        rack="",
    )
    while True:
        answer = await _fetch(session, partition, request, doing, limits)
        code = answer.error_code
        if code == 0:
            return answer
        error = about(partition, from_code(code, doing, alias=session.alias))
        if not (code in LEADER_MOVED or error.retriable) or loop.time() >= retry_until:
            raise error
        await session.forget_leader(doing)


async def _fetch(
    session: DataClientPool,
    partition: TopicPartition,
    request: HandWrittenRequest[FetchResponse],
    doing: str,
    limits: Collection[asyncio.Timeout],
) -> FetchedPartition:
    """The answer may be a refusal of the partition."""
    throttled_seconds = 0.0
    while True:
        leader = await session.leader(partition, doing)
        left_seconds = session.throttled_seconds(leader, FETCH)
        if left_seconds > 0:
            if throttled_seconds >= LONGEST_THROTTLE_SECONDS:
                raise from_code(ErrorCode.throttling_quota_exceeded, doing, alias=session.alias)
            throttled_seconds += left_seconds
            for limit in limits:
                extend(limit, left_seconds)
            await pause(left_seconds)
        response: FetchResponse = await session.send(leader, request, doing)
        if response.error_code:
            raise partition_error(response.error_code, partition, doing, alias=session.alias)
        if response.answers:
            return response.answers[0]
        if not response.throttle_ms:
            raise from_code(ErrorCode.leader_not_available, doing, alias=session.alias, detail="no answer")


_BROKER_WAIT_SECONDS = 0.1
_END_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """The result of one fetch; the requested offset may be inside the first batch."""

    batches: tuple[Batch, ...]
    aborted: tuple[AbortedTransaction, ...]
    log_start_offset: int
    end_offset: int
    """The end for this reader: the last stable offset, or the high watermark."""
    size_bytes: int

    def next_offset(self, asked: int) -> int:
        """Where reading continues."""
        return max(asked, self.batches[-1].header.next_offset) if self.batches else asked


class BatchReader:
    """Fetches from the leaders with a session. Several tasks of one event loop may share it."""

    def __init__(self, session: DataClientPool, *, read_committed: bool) -> None:
        self.read_committed = read_committed
        self._session = session

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """Find the leaders of partitions that will be fetched, with one request for all unknown ones;
        otherwise each new topic would read the metadata of all again. Raises KafkaError."""
        doing = "find the leaders of what is to be read"
        async with deadline(self._session.timeout_seconds, doing, alias=self._session.alias):
            client = await self._session.client(doing)
            await client.leaders(partitions, doing, alias=self._session.alias)

    async def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        known_end: int | None = None,
        limit: asyncio.Timeout | None = None,
    ) -> FetchedBatches:
        """The batches from the one with `offset` on, at least one if there is any; never waits for more.

        `known_end`: the log was seen to reach this offset. A new leader learns only after a while how much of
        its log all replicas have, and shows nothing above that (KIP-207 is about the same in ListOffsets): it
        is asked again until it shows a batch, or knows that end. Raises FatalKafkaError (OFFSET_OUT_OF_RANGE,
        TOPIC_UNKNOWN, TOPIC_UNAUTHORIZED, and the reason of an impossible header, because brokers do not
        check what they send) or TransientKafkaError (KAFKA_TIMEOUT if the known end is not reached) within
        the session's time-out; a broker that throttles its client gets up to a minute more. `limit` is a
        deadline of the caller, which moves by that time as well.
        """
        doing = f"read {partition} at {offset}"
        async with deadline(self._session.timeout_seconds, doing, alias=self._session.alias) as own_limit:
            while True:
                answer = await fetch_from_leader(
                    self._session,
                    partition,
                    offset,
                    max_wait_seconds=_BROKER_WAIT_SECONDS,
                    min_bytes=0,
                    max_bytes=max_bytes,
                    read_committed=self.read_committed,
                    doing=doing,
                    limits=(own_limit,) if limit is None else (own_limit, limit),
                )
                fetched = self._opened(answer, offset, doing)
                if fetched.batches or known_end is None or fetched.end_offset >= known_end:
                    return fetched
                await pause(_END_PAUSE_SECONDS)

    def _opened(self, answer: FetchedPartition, offset: int, doing: str) -> FetchedBatches:
        end = answer.last_stable_offset if self.read_committed else answer.high_watermark
        try:
            batches = tuple(iter_following(answer.records, offset, answer.high_watermark))
        except WireFormatError as error:
            raise damaged(error, doing, alias=self._session.alias) from error
        return FetchedBatches(
            batches=batches,
            aborted=answer.aborted,
            log_start_offset=answer.log_start_offset,
            end_offset=end,
            size_bytes=len(answer.records),
        )


# The answers of partitions until they are taken, and what is remembered between fetches.
#
# An answer only counts for the position that was requested last. Positions belong to the caller.

_PREFERRED_REPLICA_SECONDS = 300.0
"""Java asks the leader again after metadata.max.age.ms."""
_LEADER_ONLY_SECONDS = 30.0
"""A leader that may name a replica does so at once and without records, again and again: while that replica
is not known or does not answer, nothing would be read."""
NO_REPLICA = -1


@dataclass(slots=True)
class Standing:
    """What is remembered of a partition between fetches. Losing it costs time, never correctness."""

    preferred_replica: int = NO_REPLICA
    preferred_until: float = 0.0
    leader_only_until: float = 0.0
    """Until then the leader must not name a replica."""
    served_at: int = 0
    is_busy: bool = False
    """Its last answer had records."""
    has_answered: bool = False
    group: int = 0
    """Partitions with another number than 0 are requested only together with those of the same number: one of
    their answers was too large to be read, and the cause is being searched."""


class FetchAnswers:
    """Use it on the loop on which it was created."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._standings: dict[TopicPartition, Standing] = {}
        self._asked: dict[TopicPartition, int] = {}
        self.ready: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
        self._served = 0
        self._groups = 0
        self._loop = asyncio.get_running_loop()

    def is_asked(self, partition: TopicPartition) -> bool:
        """Its fetch is in flight, or was answered since the last poll: leaving it out of the next one would
        discard the answer."""
        return partition in self._asked or partition in self.ready

    def missing(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those with nothing in flight or answered for their position."""
        asked, ready = self._asked, self.ready
        return [
            partition
            for partition, offset in positions.items()
            if asked.get(partition) != offset
            and ((answer := ready.get(partition)) is None or answer.fetch_offset != offset)
        ]

    def ask(self, parts: Iterable[FetchPart]) -> None:
        """These are in flight now."""
        self._asked.update((part.partition, part.offset) for part in parts)

    def no_longer_asked(self, parts: Iterable[FetchPart]) -> None:
        """Their request has ended."""
        for partition, offset, _ in parts:
            if self._asked.get(partition) == offset:
                del self._asked[partition]

    def take(self, answer: FetchedPartition, offset: int, node: int) -> None:
        """What a broker said of a partition whose request asked for this offset."""
        partition = answer.partition
        standing = self.standing(partition)
        if answer.preferred_replica != NO_REPLICA and answer.preferred_replica != node:
            standing.preferred_replica = answer.preferred_replica
            standing.preferred_until = self._loop.time() + _PREFERRED_REPLICA_SECONDS
            return
        if answer.error_code:
            if self.avoid_replica(partition, node) and answer.error_code == ErrorCode.offset_out_of_range:
                return  # The replica may only be behind; ask the leader.
            error = partition_error(
                answer.error_code, partition, f"fetch from offset {offset}", alias=self._alias
            )
            self.fail(partition, offset, error)
            return
        if self._asked.get(partition) != offset:
            return  # Another position was requested since.
        standing.has_answered = True
        standing.group = 0
        standing.is_busy = len(answer.records) > 0
        if standing.is_busy:
            self._served += 1
            standing.served_at = self._served
        self.ready[partition] = answer._replace(fetch_offset=offset)

    def fail(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        """Its fetch from this offset failed."""
        if self._asked.get(partition) != offset:
            return
        self.ready[partition] = FetchFailure(partition=partition, fetch_offset=offset, error=error)

    def collect(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FetchedPartition | FetchFailure]:
        """Return the answers for these positions, and discard all others."""
        ready, self.ready = self.ready, {}
        return {
            partition: answer
            for partition, answer in ready.items()
            if positions.get(partition) == answer.fetch_offset
        }

    def discard(self) -> None:
        """Discard all answers."""
        self.ready.clear()

    def ask_apart(self, partitions: list[TopicPartition]) -> None:
        """Request these in two groups from now on: the records of one of them cannot be read."""
        half = len(partitions) // 2
        for some in (partitions[:half], partitions[half:]):
            self._groups += 1
            for partition in some:
                self.standing(partition).group = self._groups

    def place_for(self, client: DataClient, partition: TopicPartition) -> tuple[int, bool] | None:
        """The broker to ask, and whether it may name another one: the replica that the leader named, else the
        leader; None when there is none."""
        standing, now = self.standing(partition), self._loop.time()
        preferred = standing.preferred_replica
        if preferred != NO_REPLICA and now < standing.preferred_until:
            if client.cluster.broker_metadata(preferred) is not None:
                return preferred, True
            self.avoid_replica(partition, preferred)
            client.force_metadata_update()
        leader = leader_of(client, partition)
        return None if leader is None else (leader, now >= standing.leader_only_until)

    def avoid_replica(self, partition: TopicPartition, node: int) -> bool:
        """A broker does not serve the partition: False if it is not the replica that the leader named;
        otherwise the leader alone is asked for a while."""
        standing = self.standing(partition)
        if standing.preferred_replica != node:
            return False
        standing.preferred_replica = NO_REPLICA
        standing.leader_only_until = self._loop.time() + _LEADER_ONLY_SECONDS
        return True

    def standing(self, partition: TopicPartition) -> Standing:
        standing = self._standings.get(partition)
        if standing is None:
            standing = self._standings[partition] = Standing()
        return standing
