"""A start reads what a flow has stored in the last minutes, however long it has run."""

import pytest

from twinlog.batches import NewRecord, build_batch
from twinlog.kafka.admin.compacted_topic import compact_soon, ensure_compacted_topic
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import FetchedRecords
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw import RawProducer, list_offsets
from twinlog.kafka.reader import KafkaLogReader
from twinlog.model import TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.compaction import compact
from twinlog.testing.raw_copying import QUICK, open_session
from twinlog.testing.virtual_time import run_in_virtual_time
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.positions import PositionsLog

TOPIC = "mm2-offsets.A.internal"
COPIED = 20
STORED_EVERY_MINUTES = 5
ROUNDS = 7 * 24 * 60 // STORED_EVERY_MINUTES - 1
BEGAN_MS = 1_760_000_000_000
SEGMENT_MINUTES = 10
"""`segment.ms` of COMPACTED_SOON."""


class Counting(KafkaLogReader):
    def __init__(self, session: DataClientPool) -> None:
        super().__init__(session, fetch_options({}, alias="B"), read_committed=True, timeout_seconds=30)
        self.records = 0

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_seconds: float, max_bytes: int = 1 << 20
    ) -> FetchedRecords:
        fetched = await super().fetch(
            partition, offset, max_wait_seconds=max_wait_seconds, max_bytes=max_bytes
        )
        self.records += len(fetched.records)
        return fetched


@pytest.mark.parametrize("made", ["as Twinlog", "as MirrorMaker 2", "as MirrorMaker 2, then taken over"])
def test_after_a_week_a_start_reads_records_by_partitions_and_not_by_time(made: str) -> None:
    keys = [source_offset_key("A", TopicPartition("orders", number)) for number in range(COPIED)]

    async def week() -> None:
        async with FakeKafka(name="b") as kafka:
            servers = {"bootstrap.servers": kafka.bootstrap}
            async with (
                open_cluster("B", servers) as target,
                open_session("B", servers) as session,
                RawProducer(session, QUICK) as producer,
            ):
                await ensure_compacted_topic(
                    target, TOPIC, replication_factor=1, is_read_whole=made == "as Twinlog"
                )
                (partition,) = kafka.cluster.topics[TOPIC].partitions
                cleaned = 0

                async def store(number: int) -> None:
                    nonlocal cleaned
                    at_ms = BEGAN_MS + number * STORED_EVERY_MINUTES * 60_000
                    records = [NewRecord(key, encode_source_offset(number), at_ms) for key in keys]
                    producer.send(TopicPartition(TOPIC, 0), build_batch(records))
                    await producer.flush()
                    if partition.log.segments.starts[-1] != cleaned:
                        compact(partition, closed_only=True)
                        cleaned = partition.log.segments.starts[-1]

                for number in range(1, ROUNDS):
                    await store(number)
                if made == "as MirrorMaker 2, then taken over":
                    await compact_soon(target, TOPIC)
                await store(ROUNDS)
                reader = Counting(session)
                log = PositionsLog(
                    list_offsets=lambda spec, places: list_offsets(session, spec, places),
                    reader=reader,
                    topic=TOPIC,
                    partition_count=1,
                    source_alias="A",
                )
                assert set((await log.refresh()).values()) == {ROUNDS}
                if made == "as MirrorMaker 2":
                    assert reader.records == COPIED * ROUNDS, "why the settings are needed"
                else:
                    lately = SEGMENT_MINUTES // STORED_EVERY_MINUTES + 1
                    assert reader.records <= COPIED * (1 + lately)

    run_in_virtual_time(week())
