"""Clients of a fake broker."""

from contextlib import AbstractAsyncContextManager

from twinlog.batches import NewRecord, OutgoingBatch, build_batch, decode_batch, iter_batches
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.raw import DataClientPool, FetchedPartition, RawFetcher
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.raw_copying import open_session


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> OutgoingBatch:
    return build_batch([NewRecord(b"key", value, timestamp_ms) for value in values])


def pool(kafka: FakeKafka) -> AbstractAsyncContextManager[DataClientPool]:
    return open_session("A", {"bootstrap.servers": kafka.bootstrap})


async def fetched(session: DataClientPool, partition: TopicPartition, offset: int = 0) -> FetchedPartition:
    """One answer for the partition."""
    async with RawFetcher(session, fetch_options({})) as fetcher:
        while True:
            answers = await fetcher.poll({partition: offset}, max_wait_seconds=1)
            if partition in answers:
                answer = answers[partition]
                assert isinstance(answer, FetchedPartition), answer
                return answer


def values(answer: FetchedPartition) -> list[bytes | None]:
    """Of every record that is no control record, also aborted ones."""
    return [
        record.value
        for each in iter_batches(answer.records)
        if not each.header.is_control
        for record in decode_batch(each)
    ]
