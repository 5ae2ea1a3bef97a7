"""The order of a partition's batches, whatever the broker answers."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
from twinlog.model import TopicPartition

_PARTITION = TopicPartition("t", 0)
_HERE, _THERE = "one connection", "another"


def _batch(count: int) -> OutgoingBatch:
    return build_batch([NewRecord(None, b"v", 0)] * count)


def _put(queue: PartitionQueue, loop: asyncio.AbstractEventLoop, count: int = 1) -> PendingBatch:
    pending = PendingBatch(
        partition=_PARTITION, batch=_batch(count), deadline=0, acknowledged=loop.create_future()
    )
    queue.put(pending)
    return pending


def _take(queue: PartitionQueue, now: float = 0.0) -> PendingBatch | None:
    if queue.peek(now, _HERE) is None:
        return None
    return queue.take(7, 1, transactional=True)


async def test_sequences_wrap_to_zero_as_in_java() -> None:
    queue = PartitionQueue(next_sequence=0x7FFFFFFF - 1, is_known=True)
    loop = asyncio.get_running_loop()
    first, second = _put(queue, loop, 3), _put(queue, loop, 2)
    _take(queue)
    _take(queue)
    assert (first.base_sequence, second.base_sequence, queue.next_sequence) == (0x7FFFFFFE, 1, 3)
    queue.give_back(second, 0)
    queue.give_back(first, 0)
    assert _take(queue) is first
    assert _take(queue) is second


async def test_sequences_begin_again_with_every_epoch_of_the_producer() -> None:
    queue = PartitionQueue()
    loop = asyncio.get_running_loop()
    _put(queue, loop, 3)
    first = _take(queue)
    assert first is not None
    queue.acknowledge(first)
    queue.begin_epoch()
    for count in (4, 2):
        _put(queue, loop, count)
    taken = [_take(queue) for _ in range(2)]
    assert [pending.base_sequence for pending in taken if pending] == [0, 4]


async def test_no_more_than_the_limit_is_unanswered() -> None:
    queue = PartitionQueue(max_in_flight=2, is_known=True)
    pending_batches = [_put(queue, asyncio.get_running_loop()) for _ in range(3)]
    assert [_take(queue) for _ in range(3)] == [pending_batches[0], pending_batches[1], None]
    queue.acknowledge(pending_batches[0])
    assert _take(queue) is pending_batches[2]


async def test_nothing_new_leaves_while_one_has_to_be_sent_again() -> None:
    queue = PartitionQueue(is_known=True)
    first, second = (_put(queue, asyncio.get_running_loop()) for _ in range(2))
    _take(queue)
    _take(queue)
    _put(queue, asyncio.get_running_loop())
    queue.give_back(first, retry_at=10.0)
    assert _take(queue, now=11.0) is None, "the second is still unanswered"
    assert queue.has_earlier(second)
    queue.give_back(second, retry_at=10.0)
    assert _take(queue, now=9.9) is None, "not before the pause is over"
    assert [_take(queue, now=10.0) for _ in range(2)] == [first, second]
    assert not queue.has_earlier(first)


async def test_nothing_new_leaves_before_what_was_sent_again_is_acknowledged() -> None:
    """The broker has the first batch, and refuses it before it looks. Five more, and it would have forgotten
    it."""
    queue = PartitionQueue(is_known=True)
    loop = asyncio.get_running_loop()
    first, second, third = (_put(queue, loop) for _ in range(3))
    assert [_take(queue), _take(queue)] == [first, second]
    queue.give_back(first, 0)
    queue.give_back(second, 0)
    assert [_take(queue), _take(queue), _take(queue)] == [first, second, None]
    queue.acknowledge(second)
    assert _take(queue) is None
    queue.give_back(first, 0)
    assert [_take(queue), _take(queue)] == [first, None]
    queue.acknowledge(first)
    assert _take(queue) is third


async def test_one_at_a_time_until_the_broker_knows_the_producer() -> None:
    queue = PartitionQueue()
    first, second, third = (_put(queue, asyncio.get_running_loop()) for _ in range(3))
    assert [_take(queue), _take(queue)] == [first, None]
    queue.acknowledge(first)
    assert [_take(queue), _take(queue)] == [second, third]


async def test_another_connection_waits_until_the_first_is_answered() -> None:
    queue = PartitionQueue(is_known=True)
    first, second = (_put(queue, asyncio.get_running_loop()) for _ in range(2))
    _take(queue)
    assert queue.peek(0, _THERE) is None
    queue.acknowledge(first)
    assert queue.peek(0, _THERE) is second


@given(
    answers=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(("ok", "again", "lost"))), max_size=60),
    start=st.sampled_from((0, 0x7FFFFFFF - 3)),
)
async def test_a_broker_that_checks_sequences_gets_each_batch_once_and_in_order(
    answers: list[tuple[int, str]], start: int
) -> None:
    """Requests are refused, or written with the answer lost, in any order; the log is what was put."""
    queue = PartitionQueue(next_sequence=start)
    put = [_put(queue, asyncio.get_running_loop()) for _ in range(12)]
    log: list[PendingBatch] = []
    now = 0.0
    for index, verdict in [*answers, *((0, "ok") for _ in range(200))]:
        now += 1
        while _take(queue, now):
            pass
        if not queue.in_flight:
            break
        pending = queue.in_flight[index % len(queue.in_flight)]
        expected = (start + len(log)) & 0x7FFFFFFF if log else pending.base_sequence
        if pending in log:
            queue.acknowledge(pending)  # the broker knows the duplicate and answers as before
        elif pending.base_sequence != expected:
            assert queue.has_earlier(pending), "out of order with nothing before it would be fatal"
            queue.give_back(pending, now)
        elif verdict == "again":
            queue.give_back(pending, now)
        else:
            log.append(pending)
            if verdict == "ok":
                queue.acknowledge(pending)
            else:
                queue.give_back(pending, now)
    assert log == put
    assert queue.is_empty
