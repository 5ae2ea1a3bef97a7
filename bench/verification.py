"""How fast `twinlog verify` proves a copy, beside a naive comparison by two consumers.

    python -m bench.verification --records 1000000

Two clusters of one broker each hold the same batches of 1 KB records. The naive comparison reads both with
aiokafka's consumer and compares timestamp, key, value and headers, partition by partition.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition

from bench.comparing.drain import replay
from bench.comparing.loads import LOADS, Load, make_pool
from bench.comparing.stage import Side, Stage, open_stage
from twinlog.clock import SystemClock
from twinlog.config import load as load_config
from twinlog.machine import WorkDirectory
from twinlog.model import Flow
from twinlog.verify.report import FlowVerdict
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import VerifyRequest

_TOPIC = "verified"
_PARTITIONS = 8
_POOL_BYTES = 64 << 20
_POLL_MS = 1_000
_MEGABYTE = 1e6


async def _fill(side: Side, topic: str, load: Load, records: int, now_ms: int) -> float:
    """The same batches on every side. Megabytes in the log."""
    pool = make_pool(load, batch_bytes=131_072, pool_bytes=_POOL_BYTES, now_ms=now_ms)
    await side.create_topic(topic, _PARTITIONS)
    done = await replay(
        side.session,
        topic,
        pool,
        partition_count=_PARTITIONS,
        record_count=records,
    )
    return done.record_count * pool.bytes_per_record / _MEGABYTE


async def _verified(stage: Stage, directory: Path) -> float:
    """Seconds. Raises AssertionError when it is not equal."""
    file = directory / "mm2.properties"
    file.write_text(
        f"clusters = A, B\nA->B.enabled = true\ntopics = {_TOPIC}\n"
        f"A.bootstrap.servers = {stage.source.brokers.bootstrap_servers}\n"
        f"B.bootstrap.servers = {stage.target.brokers.bootstrap_servers}\n"
    )
    request = VerifyRequest(flow=Flow("A", "B"), topics=frozenset({_TOPIC}))
    verification = Verification(
        configuration=load_config(file, environ={}), request=request, clock=SystemClock()
    )
    began = time.perf_counter()
    report = await verification.run()
    assert report.verdict is FlowVerdict.EQUAL, report
    return time.perf_counter() - began


async def _naive(stage: Stage) -> float:
    """Seconds that two consumers take."""
    began = time.perf_counter()
    consumers = []
    for side, topic in ((stage.source, _TOPIC), (stage.target, f"A.{_TOPIC}")):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=side.brokers.bootstrap_servers, isolation_level="read_committed"
        )
        await consumer.start()
        consumers.append((consumer, topic))
    for number in range(_PARTITIONS):
        logs = []
        for consumer, topic in consumers:
            partition = ClientPartition(topic, number)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            logs.append((consumer, partition, (await consumer.end_offsets([partition]))[partition]))
        waiting: list[list[object]] = [[], []]
        done = [0, 0]
        while any(at < end for at, (_, _, end) in zip(done, logs, strict=True)):
            for index, (consumer, partition, end) in enumerate(logs):
                if done[index] < end and len(waiting[index]) < 10_000:
                    found = await consumer.getmany(partition, timeout_ms=_POLL_MS, max_records=10_000)
                    for record in found.get(partition, ()):
                        waiting[index].append((record.timestamp, record.key, record.value, record.headers))
                        done[index] = record.offset + 1
            count = min(len(waiting[0]), len(waiting[1]))
            assert waiting[0][:count] == waiting[1][:count]
            waiting = [waiting[0][count:], waiting[1][count:]]
    for consumer, _ in consumers:
        await consumer.stop()
    return time.perf_counter() - began


async def _run(records: int, name: str) -> None:
    load = next(each for each in LOADS if each.name == name)
    now_ms = SystemClock().now_ms()
    directory = WorkDirectory("twinlog-bench-")
    try:
        async with open_stage() as stage:
            size = await _fill(stage.source, _TOPIC, load, records, now_ms)
            await _fill(stage.target, f"A.{_TOPIC}", load, records, now_ms)
            sys.stdout.write(f"{records} records of {name}, {size:.0f} MB in each log\n")
            naive = await _naive(stage)
            _say("naive consumers", naive, size, naive)
            _say("twinlog verify", await _verified(stage, directory.path), size, naive)
    finally:
        directory.remove()


def _say(name: str, seconds: float, megabytes: float, naive: float) -> None:
    sys.stdout.write(
        f"{name:20} {seconds:7.1f} s {megabytes / seconds:7.0f} MB/s of each log"
        f" {2 * megabytes / seconds:7.0f} MB/s read {naive / seconds:6.1f} x naive\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.verification", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--load", default="1kb-none", choices=[load.name for load in LOADS])
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.records, arguments.load))


if __name__ == "__main__":
    main()
