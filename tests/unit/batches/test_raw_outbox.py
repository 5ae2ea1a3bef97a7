"""The order of a partition's batches, whatever the broker answers."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from twinlog.batches import NewRecord, OutgoingBatch, build_batch, read_batches
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
from twinlog.model import TopicPartition

_PARTITION = TopicPartition("t", 0)
_HERE, _THERE = "one connection", "another"


def _batch(count: int) -> OutgoingBatch:
    return build_batch([NewRecord(None, b"v", 0)] * count)


def _put(outbox: PartitionQueue, loop: asyncio.AbstractEventLoop, count: int = 1) -> PendingBatch:
    pending = PendingBatch(
        partition=_PARTITION, batch=_batch(count), deadline=0, acknowledged=loop.create_future()
    )
    outbox.put(pending)
    return pending


def _take(outbox: PartitionQueue, now: float = 0.0) -> PendingBatch | None:
    if outbox.peek(now, _HERE) is None:
        return None
    return outbox.take(7, 1, transactional=True)


async def test_sequences_follow_the_record_counts_and_are_sealed() -> None:
    outbox = PartitionQueue(is_known=True)
    loop = asyncio.get_running_loop()
    for count in (3, 5, 1):
        _put(outbox, loop, count)
    taken = [_take(outbox) for _ in range(3)]
    assert [pending.base_sequence for pending in taken if pending] == [0, 3, 8]
    assert outbox.next_sequence == 9
    for pending in taken:
        assert pending is not None
        (batch,) = read_batches(pending.header + pending.batch.records)
        assert batch.header.base_sequence == pending.base_sequence
        assert (batch.header.producer_id, batch.header.producer_epoch) == (7, 1)


async def test_sequences_wrap_to_zero_as_in_java() -> None:
    outbox = PartitionQueue(next_sequence=0x7FFFFFFF - 1, is_known=True)
    loop = asyncio.get_running_loop()
    first, second = _put(outbox, loop, 3), _put(outbox, loop, 2)
    _take(outbox)
    _take(outbox)
    assert (first.base_sequence, second.base_sequence, outbox.next_sequence) == (0x7FFFFFFE, 1, 3)
    outbox.give_back(second, 0)
    outbox.give_back(first, 0)
    assert _take(outbox) is first
    assert _take(outbox) is second


async def test_sequences_begin_again_with_every_epoch_of_the_producer() -> None:
    outbox = PartitionQueue()
    loop = asyncio.get_running_loop()
    _put(outbox, loop, 3)
    first = _take(outbox)
    assert first is not None
    outbox.acknowledge(first)
    outbox.begin_epoch()
    for count in (4, 2):
        _put(outbox, loop, count)
    taken = [_take(outbox) for _ in range(2)]
    assert [pending.base_sequence for pending in taken if pending] == [0, 4]


async def test_no_more_than_the_limit_is_unanswered() -> None:
    outbox = PartitionQueue(max_in_flight=2, is_known=True)
    pending_batches = [_put(outbox, asyncio.get_running_loop()) for _ in range(3)]
    assert [_take(outbox) for _ in range(3)] == [pending_batches[0], pending_batches[1], None]
    outbox.acknowledge(pending_batches[0])
    assert _take(outbox) is pending_batches[2]


async def test_nothing_new_leaves_while_one_has_to_be_sent_again() -> None:
    outbox = PartitionQueue(is_known=True)
    first, second, third = (_put(outbox, asyncio.get_running_loop()) for _ in range(3))
    _take(outbox)
    _take(outbox)
    outbox.give_back(first, retry_at=10.0)
    assert _take(outbox, now=11.0) is None, "the second is still unanswered"
    assert outbox.has_earlier(second)
    outbox.give_back(second, retry_at=10.0)
    assert _take(outbox, now=9.9) is None, "not before the pause is over"
    assert [_take(outbox, now=10.0) for _ in range(3)] == [first, second, third]
    assert not outbox.has_earlier(first)


async def test_one_at_a_time_until_the_broker_knows_the_producer() -> None:
    outbox = PartitionQueue()
    first, second, third = (_put(outbox, asyncio.get_running_loop()) for _ in range(3))
    assert [_take(outbox), _take(outbox)] == [first, None]
    outbox.acknowledge(first)
    assert [_take(outbox), _take(outbox)] == [second, third]


async def test_another_connection_waits_until_the_first_is_answered() -> None:
    outbox = PartitionQueue(is_known=True)
    first, second = (_put(outbox, asyncio.get_running_loop()) for _ in range(2))
    _take(outbox)
    assert outbox.peek(0, _THERE) is None
    outbox.acknowledge(first)
    assert outbox.peek(0, _THERE) is second


async def test_what_never_left_can_be_forgotten_without_a_gap() -> None:
    outbox = PartitionQueue(is_known=True)
    sent, unsent = (_put(outbox, asyncio.get_running_loop()) for _ in range(2))
    _take(outbox)
    outbox.give_back(sent, retry_at=0)
    outbox.peek(0, _HERE)
    assert outbox.drop_waiting() == [unsent]
    assert _take(outbox) is sent
    assert outbox.next_sequence == 1


@given(
    answers=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(("ok", "again", "lost"))), max_size=60),
    start=st.sampled_from((0, 0x7FFFFFFF - 3)),
)
async def test_a_broker_that_checks_sequences_gets_each_batch_once_and_in_order(
    answers: list[tuple[int, str]], start: int
) -> None:
    """Requests are refused, or written with the answer lost, in any order; the log is what was put."""
    outbox = PartitionQueue(next_sequence=start)
    put = [_put(outbox, asyncio.get_running_loop()) for _ in range(12)]
    log: list[PendingBatch] = []
    now = 0.0
    for index, verdict in [*answers, *((0, "ok") for _ in range(200))]:
        now += 1
        while _take(outbox, now):
            pass
        if not outbox.in_flight:
            break
        pending = outbox.in_flight[index % len(outbox.in_flight)]
        expected = (start + len(log)) & 0x7FFFFFFF if log else pending.base_sequence
        if pending in log:
            outbox.acknowledge(pending)  # the broker knows the duplicate and answers as before
        elif pending.base_sequence != expected:
            assert outbox.has_earlier(pending), "out of order with nothing before it would be fatal"
            outbox.give_back(pending, now)
        elif verdict == "again":
            outbox.give_back(pending, now)
        else:
            log.append(pending)
            if verdict == "ok":
                outbox.acknowledge(pending)
            else:
                outbox.give_back(pending, now)
    assert log == put
    assert outbox.is_empty
