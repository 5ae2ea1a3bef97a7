"""Brokers that are warm: their JVMs compile while they run, and the copier that is measured first would pay
for it.

Each way to write is warmed that anybody measured takes: what one alone uses would be compiled during its own
run. Idempotent producers warm nothing of transactions: a target that had only seen those spent 6.2 us of user
time on each record of the first gigabyte in transactions, and 1.4 on those of the eighth.
"""

import itertools
import time
from collections.abc import Callable

from bench.comparing.loads import BatchPool
from bench.comparing.replay import replay
from bench.comparing.stage import Side, Stage
from twinlog.kafka.raw import ProducerSettings, TransactionRotation
from twinlog.model import TopicPartition

_PARTITIONS = 8
_TURN_RECORDS = 300_000
_TRANSACTIONAL_TURN_RECORDS = 600_000
"""More, as a transaction runs through more code."""
_TRANSACTION_BYTES = 8 << 20
_TRANSACTIONAL_IDS = ("warm-up-0", "warm-up-1")


async def warm_brokers(
    stage: Stage, pool: BatchPool, seconds: float, progress: Callable[[float], None]
) -> None:
    """Write and read on both sides for that long, in transactions on the target. Raises KafkaError."""
    began = time.monotonic()
    for number in itertools.count():
        progress(min(time.monotonic() - began, seconds))
        if time.monotonic() - began >= seconds:
            return
        for side, in_transactions in ((stage.source, False), (stage.target, False), (stage.target, True)):
            topic = f"warm-up-{number}-{'transactions' if in_transactions else 'plain'}"
            await side.create_topic(topic, _PARTITIONS)
            if in_transactions:
                await _write_in_transactions(side, topic, pool)
            else:
                await replay(
                    side.session,
                    topic,
                    pool,
                    partition_count=_PARTITIONS,
                    record_count=_TURN_RECORDS,
                    progress=lambda _: None,
                )
            await side.count_records(topic, await side.ends(topic, _PARTITIONS))
            await side.delete_topic(topic)


async def _write_in_transactions(side: Side, topic: str, pool: BatchPool) -> None:
    batches = itertools.cycle(pool.batches)
    partitions = itertools.cycle([TopicPartition(topic, number) for number in range(_PARTITIONS)])
    left = _TRANSACTIONAL_TURN_RECORDS
    async with TransactionRotation(side.session, _TRANSACTIONAL_IDS, ProducerSettings()) as producer:
        while left > 0:
            producer.begin()
            size_bytes = 0
            while size_bytes < _TRANSACTION_BYTES:
                batch = next(batches)
                producer.send(next(partitions), batch)
                size_bytes += batch.size_bytes
                left -= batch.record_count
            await producer.commit()
