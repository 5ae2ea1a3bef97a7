"""Sends records to the source at a steady rate and sees them arrive on the target: a process of its own, so
that nothing else of the benchmark delays it. Plain aiokafka on both ends, as an application would have it.

Its argument is a JSON object with the fields of `ProbePlan`. Prints `measuring` when the warm-up is over,
`measured` when the last record was sent, and at last a JSON object with the fields of `ProbeOutcome`.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from twinlog.service.waiting import wait_or_stop

_LATE_SECONDS = 30.0
_POLL_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    source_servers: str
    target_servers: str
    source_topic: str
    target_topic: str
    partitions: int
    records_per_second: int
    warm_up_seconds: float
    measured_seconds: float
    value_bytes: int = 1000

    @property
    def warm_up_records(self) -> int:
        return int(self.warm_up_seconds * self.records_per_second)

    @property
    def all_records(self) -> int:
        return self.warm_up_records + int(self.measured_seconds * self.records_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    latencies_ms: list[float]
    """Ascending, one per record sent after the warm-up that arrived."""
    missing: int
    """Records, also of the warm-up, that did not arrive within 30 s of the last one."""
    duplicates: int


async def probe(plan: ProbePlan) -> ProbeOutcome:
    """Raises KafkaError of aiokafka when brokers are away."""
    producer = AIOKafkaProducer(bootstrap_servers=plan.source_servers, linger_ms=0, acks="all")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.target_servers,
        isolation_level="read_committed",
        auto_offset_reset="latest",
        enable_auto_commit=False,
    )
    partitions = [TopicPartition(plan.target_topic, number) for number in range(plan.partitions)]
    consumer.assign(partitions)
    arrivals = _Arrivals(plan)
    async with producer, consumer, asyncio.TaskGroup() as group:
        for partition in partitions:
            # Asks for the end: from here on nothing is missed.
            await consumer.position(partition)
        receiving = group.create_task(arrivals.receive(consumer), name="receive")
        await _send(plan, producer)
        await asyncio.wait([receiving], timeout=_LATE_SECONDS)
        receiving.cancel()
    return arrivals.outcome()


async def _send(plan: ProbePlan, producer: AIOKafkaProducer) -> None:
    never = asyncio.Event()
    began = time.perf_counter()
    for index in range(plan.all_records):
        if index == plan.warm_up_records:
            print("measuring", flush=True)
        due = began + index / plan.records_per_second
        while (early := due - time.perf_counter()) > 0:
            await wait_or_stop(never, early)
        value = written(index, time.monotonic_ns(), plan.value_bytes)
        await producer.send(plan.source_topic, value, partition=index % plan.partitions)
    print("measured", flush=True)
    await producer.flush()


def written(index: int, sent_ns: int, value_bytes: int) -> bytes:
    """A value is text, since expressions take it as a string."""
    return json.dumps({"index": index, "sent": sent_ns, "amount": 99.5}).encode().ljust(value_bytes)


def read(value: bytes) -> tuple[int, int]:
    """Which record it is, and when it was sent."""
    head = json.loads(value)
    return head["index"], head["sent"]


class _Arrivals:
    def __init__(self, plan: ProbePlan) -> None:
        self._plan = plan
        self._seen = bytearray(plan.all_records)
        self._latencies_ms: list[float] = []
        self._arrived = 0
        self._duplicates = 0

    async def receive(self, consumer: AIOKafkaConsumer) -> None:
        """Return when every record has arrived."""
        while self._arrived < self._plan.all_records:
            by_partition = await consumer.getmany(timeout_ms=_POLL_MS)
            now_ns = time.monotonic_ns()
            for records in by_partition.values():
                for record in records:
                    self._take(record.value, now_ns)

    def outcome(self) -> ProbeOutcome:
        return ProbeOutcome(
            latencies_ms=sorted(self._latencies_ms),
            missing=self._plan.all_records - self._arrived,
            duplicates=self._duplicates,
        )

    def _take(self, value: bytes, now_ns: int) -> None:
        index, sent_ns = read(value)
        if self._seen[index]:
            self._duplicates += 1
            return
        self._seen[index] = 1
        self._arrived += 1
        if index >= self._plan.warm_up_records:
            self._latencies_ms.append((now_ns - sent_ns) / 1e6)


def main() -> None:
    outcome = uvloop.run(probe(ProbePlan(**json.loads(sys.argv[1]))))
    print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
