"""Records with every awkward content, written to real topics batch by batch with a chosen codec."""

from collections.abc import Sequence

from twinlog.batches import Codec, NewRecord, build_batch
from twinlog.errors import KafkaError
from twinlog.kafka.clients import aiokafka_client_options
from twinlog.kafka.raw import DataClientPool, ProducerSettings, RawProducer, fence
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition

PAST_MS = 1_000_000_000_000
"""September 2001: long before any broker's segment rolled."""


def awkward_records(now_ms: int, *, count: int = 40) -> list[NewRecord]:
    """Null and empty keys and values, tombstones, all sorts of headers, bytes that are no text, old times."""
    records = [
        NewRecord(None, b"no key", now_ms),
        NewRecord(b"", b"empty key", now_ms),
        NewRecord(b"tombstone", None, now_ms),
        NewRecord(b"empty value", b"", now_ms),
        NewRecord(None, None, now_ms),
        NewRecord(b"\xff\x00\xfe", bytes(range(256)), now_ms),
        NewRecord(b"old", b"from 2001", PAST_MS),
        NewRecord(b"headers", b"v", now_ms, ((b"a", b"1"), (b"a", b"2"), (b"null", None), (b"empty", b""))),
        NewRecord(b"header names", b"v", now_ms, ((b"\xc3\x28", b"not utf-8"), (b"", b"no name"))),
        NewRecord(b"many headers", b"v", now_ms, tuple((b"h%d" % i, b"%d" % i) for i in range(1_000))),
        NewRecord(b"large", b"x" * 200_000, now_ms),
    ]
    return [*records, *(NewRecord(b"k%d" % (i % 7), b"value %d" % i, now_ms + i) for i in range(count))]


async def write_batches(
    cluster: BlockingCluster,
    topic: str,
    batches: Sequence[tuple[int, Codec, Sequence[NewRecord]]],
    *,
    transactional_id: str | None = None,
    abort: bool = False,
) -> None:
    """Write (partition, codec, records) in this order; in one transaction when an id is given."""
    session = DataClientPool("test", aiokafka_client_options(cluster.client_properties()), timeout_seconds=30)
    try:
        settings = ProducerSettings(delivery_timeout_seconds=30)
        async with RawProducer(session, settings, transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                producer.begin()
            for partition, codec, records in batches:
                producer.send(TopicPartition(topic, partition), build_batch(records, codec=codec))
            if transactional_id is None or abort:
                await producer.flush()
            else:
                await producer.commit()
        if abort:
            assert transactional_id is not None
            outcomes = await fence(
                session,
                [transactional_id],
                timeout_seconds=30,
                transaction_timeout_seconds=settings.transaction_timeout_seconds,
            )
            assert not isinstance(outcomes[transactional_id], KafkaError)
    finally:
        await session.close()
