"""A start reads what a flow has stored in the last minutes, however long it has run."""

from twinlog.batches import NewRecord, build_batch
from twinlog.clock import SystemClock
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import FetchedRecords
from twinlog.kafka.raw import DataClientPool, RawProducer, list_offsets
from twinlog.kafka.reader import KafkaLogReader
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.positions import PositionsLog

TOPIC = "mm2-offsets.long.internal"
COPIED = 100
ROUNDS = 5_000
"""A week of positions, if each partition stores one every two minutes."""
ROUNDS_OF_A_TRANSACTION = 10
SEGMENT_BYTES = 1 << 20
RECORD_BYTES = 100


class CountingReader:
    def __init__(self, session: DataClientPool) -> None:
        self._reader = KafkaLogReader(
            session, fetch_options({}, alias="B"), read_committed=True, timeout_seconds=30
        )
        self.records = self.fetches = 0

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        fetched = await self._reader.fetch(
            partition, offset, max_wait_seconds=max_wait_seconds, max_bytes=max_bytes
        )
        self.fetches += 1
        self.records += len(fetched.records)
        return fetched


async def started(session: DataClientPool) -> tuple[PositionsLog, CountingReader]:
    """What a process knows that starts now, and what it read for that."""
    reader = CountingReader(session)
    log = PositionsLog(
        list_offsets=lambda spec, partitions: list_offsets(session, spec, partitions),
        reader=reader,
        topic=TOPIC,
        partition_count=1,
        source_alias="A",
    )
    await log.refresh()
    return log, reader


async def test_a_start_parses_records_by_partitions_and_not_by_time(kafka_pair: KafkaPair) -> None:
    properties = kafka_pair.b.client_properties()
    place = TopicPartition(TOPIC, 0)
    keys = {
        TopicPartition("orders", n): source_offset_key("A", TopicPartition("orders", n))
        for n in range(COPIED)
    }
    now_ms = SystemClock().now_ms()
    async with open_cluster("B", properties) as target, open_session("B", properties) as session:
        small = {"segment.bytes": str(SEGMENT_BYTES)}
        await ensure_compacted_topic(target, TOPIC, replication_factor=1, configs=small, is_read_whole=True)
        async with RawProducer(session, QUICK, transactional_id="long") as producer:
            for first in range(0, ROUNDS, ROUNDS_OF_A_TRANSACTION):
                producer.begin()
                producer.send(
                    place,
                    build_batch(
                        [
                            NewRecord(key, encode_source_offset(number + 1), now_ms)
                            for number in range(first, first + ROUNDS_OF_A_TRANSACTION)
                            for key in keys.values()
                        ]
                    ),
                )
                await producer.commit()
        expected = dict.fromkeys(keys, ROUNDS)
        log, read = await started(session)
        assert log.known() == expected
        assert read.records > COPIED
        assert log.parsed <= COPIED * read.fetches

        async def is_compacted() -> bool:
            log, read = await started(session)
            assert log.known() == expected
            return read.records <= COPIED + 2 * SEGMENT_BYTES / RECORD_BYTES

        await eventually(is_compacted)
