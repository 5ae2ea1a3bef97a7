"""Batches over the wire: fetched as they lie in the log, produced as they were prepared, transactions around.

    source = DataClientPool("A", aiokafka_client_options(...), timeout_seconds=30)
    target = DataClientPool("B", aiokafka_client_options(...), timeout_seconds=30)

    async with RawFetcher(source, fetch_options(...)) as fetcher:
        answers = await fetcher.poll({partition: position, ...}, max_wait_seconds=0.5)
            # Mapping[TopicPartition, FetchedPartition | FetchFailure]; one entry per partition that answered
        await fetcher.request(next_positions)       # optional: fetch on while the present data is sent

    ends = await list_offsets(source, OffsetSpec.LATEST, partitions)
    await fence(target, ids_of_the_flow, timeout_seconds=30, transaction_timeout_seconds=60)

    async with TransactionRotation(target, ("twinlog-A-B-0-0", "twinlog-A-B-0-1"), ProducerSettings()) as txn:
        txn.begin()
        acks = [txn.send(TopicPartition("A.orders", 0), batch) for batch in prepared.batches]
        txn.send(TopicPartition("mm2-offsets.A.internal", 4), build_batch(position_records))
        await txn.commit()                          # waits for every ack, then for the commit
        base_offset = acks[0].result()              # each is an asyncio.Future[int]

`RawProducer(target, ProducerSettings())` is the idempotent one: `send`, then `flush`. After any failure a
producer or rotation is unusable: `state` is FAILED, `failure` says why, `partition_failures` which target
partitions are to blame. Leave its `async with`, take a new one with the same ids, resume from the committed
position.
"""

from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.raw.fetch.fetcher import RawFetcher
from twinlog.kafka.raw.fetch.reader import BatchReader
from twinlog.kafka.raw.fetch.results import FetchedPartition, FetchFailure, FetchSizes
from twinlog.kafka.raw.leaders import prepare_to_fetch
from twinlog.kafka.raw.offset_lookup import epoch_ends, list_offsets
from twinlog.kafka.raw.produce.producer import ProducerState, RawProducer
from twinlog.kafka.raw.produce.routes import prepare_to_produce
from twinlog.kafka.raw.producer_states import OpenTransaction, open_transactions
from twinlog.kafka.raw.settings import ProducerSettings, Window
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator, fence
from twinlog.kafka.raw.transactions.hanging_guard import COMMITTED, OUTCOME
from twinlog.kafka.raw.transactions.rotation import TransactionRotation
from twinlog.kafka.raw.transactions.wire import ProducerIdentity

__all__ = [
    "COMMITTED",
    "OUTCOME",
    "BatchReader",
    "DataClientPool",
    "FetchFailure",
    "FetchSizes",
    "FetchedPartition",
    "OpenTransaction",
    "ProducerIdentity",
    "ProducerSettings",
    "ProducerState",
    "RawFetcher",
    "RawProducer",
    "TransactionCoordinator",
    "TransactionRotation",
    "Window",
    "epoch_ends",
    "fence",
    "list_offsets",
    "open_transactions",
    "prepare_to_fetch",
    "prepare_to_produce",
]
