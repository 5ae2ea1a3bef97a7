"""One fetch at a time, as batches, for readers that read single places of a log and decode little.

One fetch of one partition from its leader, for readers that read single places of a log.

It finds moved leaders again, for all these readers.
"""

import asyncio
import math
from collections.abc import Collection
from dataclasses import dataclass

from twinlog.batches.header import Batch, iter_following
from twinlog.batches.visibility import AbortedTransaction
from twinlog.errors import WireFormatError
from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.deadline import deadline, extend, pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.patience import LONGEST_THROTTLE_SECONDS
from twinlog.kafka.protocol.requests import HandWrittenRequest
from twinlog.kafka.raw.errors import about, damaged, partition_error
from twinlog.kafka.raw.fetch.wire import FETCH, FetchedPartition, FetchPart, FetchResponse, fetch_request
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
                raise from_code(ErrorCode.THROTTLING_QUOTA_EXCEEDED, doing, alias=session.alias)
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
            raise from_code(ErrorCode.LEADER_NOT_AVAILABLE, doing, alias=session.alias, detail="no answer")


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
