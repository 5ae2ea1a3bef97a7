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
        producer = txn.begin()
        acks = [producer.send(TopicPartition("A.orders", 0), batch) for batch in prepared.batches]
        producer.send(TopicPartition("mm2-offsets.A.internal", 4), build_batch(position_records))
        await producer.commit()                       # waits for every ack, then for the commit
        base_offset = acks[0].result()              # each is an asyncio.Future[int]

`RawProducer(target, ProducerSettings())` is the idempotent one: `send`, then `flush`. After any failure a
producer or rotation is unusable: `state` is FAILED, `failure` says why, `partition_failures` which target
partitions are to blame. Leave its `async with`, take a new one with the same ids, resume from the committed
position.
"""

from twinlog.kafka.protocol.client_pool import DataClientPool as DataClientPool
from twinlog.kafka.raw.fetch.fetcher import RawFetcher as RawFetcher
from twinlog.kafka.raw.fetch.reader import BatchReader as BatchReader
from twinlog.kafka.raw.fetch.results import FetchFailure as FetchFailure
from twinlog.kafka.raw.fetch.results import FetchSizes as FetchSizes
from twinlog.kafka.raw.fetch.wire import FetchedPartition as FetchedPartition
from twinlog.kafka.raw.leaders import prepare_to_fetch as prepare_to_fetch
from twinlog.kafka.raw.lookups import OpenTransaction as OpenTransaction
from twinlog.kafka.raw.lookups import epoch_ends as epoch_ends
from twinlog.kafka.raw.lookups import list_offsets as list_offsets
from twinlog.kafka.raw.lookups import open_transactions as open_transactions
from twinlog.kafka.raw.produce.partition_queue import prepare_to_produce as prepare_to_produce
from twinlog.kafka.raw.produce.producer import ProducerState as ProducerState
from twinlog.kafka.raw.produce.producer import RawProducer as RawProducer
from twinlog.kafka.raw.produce.producer import TransactionRotation as TransactionRotation
from twinlog.kafka.raw.settings import InFlightWindow as InFlightWindow
from twinlog.kafka.raw.settings import ProducerSettings as ProducerSettings
from twinlog.kafka.raw.transactions.coordinator import TransactionCoordinator as TransactionCoordinator
from twinlog.kafka.raw.transactions.coordinator import fence as fence
from twinlog.kafka.raw.transactions.coordinator import known_producers as known_producers
from twinlog.kafka.raw.transactions.hanging_guard import COMMITTED as COMMITTED
from twinlog.kafka.raw.transactions.hanging_guard import OUTCOME as OUTCOME
from twinlog.kafka.raw.transactions.wire import ProducerIdentity as ProducerIdentity
