"""One fetch of one partition from its leader, for readers that read single places of a log.

It finds moved leaders again, for all these readers.
"""

import asyncio
import math
from collections.abc import Collection

from twinlog.kafka.codes import LEADER_MOVED, ErrorCode
from twinlog.kafka.deadline import extend, pause
from twinlog.kafka.errors import from_code
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.patience import LONGEST_THROTTLE_SECONDS
from twinlog.kafka.raw.errors import about, partition_error
from twinlog.kafka.raw.fetch.wire import FETCH, FetchAnswer, FetchPart, FetchResponse, fetch_request
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
) -> FetchAnswer:
    """Return the leader's answer; a refusal is raised as KafkaError.

    If the leader moved or is being elected, retry for half of the session's time-out. While the leader
    throttles its client (KIP-219) it is not asked: `limits` move by that time, and after a minute of
    throttles QUOTA_EXCEEDED is raised.
    """
    loop = asyncio.get_running_loop()
    retry_until = loop.time() + session.timeout_seconds / 2
    while True:
        answer = await _fetch(
            session,
            partition,
            offset,
            max_wait_seconds=max_wait_seconds,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            read_committed=read_committed,
            doing=doing,
            limits=limits,
        )
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
    offset: int,
    *,
    max_wait_seconds: float,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
    doing: str,
    limits: Collection[asyncio.Timeout],
) -> FetchAnswer:
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
        request = fetch_request(
            [FetchPart(partition, offset)],
            max_wait_ms=math.ceil(max_wait_seconds * 1000),  # Never 0 for a rest: it would be asked again.
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_partition_bytes=max_bytes,
            read_committed=read_committed,
            rack="",
        )
        response: FetchResponse = await session.send(leader, request, doing)
        if response.error_code:
            raise partition_error(response.error_code, partition, doing, alias=session.alias)
        if response.answers:
            return response.answers[0]
        if not response.throttle_ms:
            raise from_code(ErrorCode.LEADER_NOT_AVAILABLE, doing, alias=session.alias, detail="no answer")
