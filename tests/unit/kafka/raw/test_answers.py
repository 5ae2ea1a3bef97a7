"""What is told of a batch that a broker has refused."""

import asyncio

import pytest

from twinlog.batches import NewRecord, OffsetRun, build_batch
from twinlog.batches.outgoing import Lane, LaneReason
from twinlog.kafka.raw.produce.answers import may_retry, refusal_of
from twinlog.kafka.raw.produce.partition_queue import PartitionQueue, PendingBatch
from twinlog.kafka.raw.produce.wire import ProduceAnswer
from twinlog.model import TopicPartition

P = TopicPartition("t", 0)
OWN = build_batch([NewRecord(None, b"v", 0)] * 5)
COPIED = OWN._replace(lane=Lane.RAW, reason=LaneReason.UNOPENED, runs=(OffsetRun(100, 2), OffsetRun(110, 3)))


@pytest.mark.parametrize(
    ("code", "record", "words"),
    [
        (87, 1, "the record at the source's offset 101: no key"),
        (87, 3, "the record at the source's offset 111: no key"),
        (87, None, "the batch at the source's offset 100: no key"),
        (87, 9, "the batch at the source's offset 100: no key"),
        (10, None, "the batch at the source's offset 100: no key"),
        (29, None, "no key"),
    ],
)
def test_a_refused_record_is_named_by_its_offset_on_the_source(
    code: int, record: int | None, words: str
) -> None:
    error = refusal_of(ProduceAnswer(P, code, -1, "no key", record), COPIED, alias="B")
    assert error is not None
    assert f"({words})" in str(error) or str(error).endswith(words), str(error)
    assert ("offset" in words) == ("offset" in str(error))


def test_twinlogs_own_records_have_no_offset_on_the_source() -> None:
    error = refusal_of(ProduceAnswer(P, 87, -1, "no key", 0), OWN, alias="B")
    assert error is not None
    assert "offset" not in str(error)


async def test_another_topic_of_the_name_is_soon_given_up() -> None:
    """A leader that learns of a new topic a moment later is asked again; nothing else waits for it."""
    acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    pending = PendingBatch(partition=P, batch=OWN, deadline=0.0, acknowledged=acknowledged)
    for pending.attempts in range(1, 10):
        assert may_retry(pending, PartitionQueue(), code=3)
        assert may_retry(pending, PartitionQueue(), code=100) == (pending.attempts < 5)
