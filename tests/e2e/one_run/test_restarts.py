"""README: a service that dies starts again, the others keep running, and nothing is lost or repeated."""

import asyncio

import pytest

from e2e.conftest import MirrorRig
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import CopyCheck, compare
from twinlog.kafka.ports import NewTopic
from twinlog.local.twinlog_run import SERVICES
from twinlog.service.waiting import wait_or_stop
from twinlog.testing.brokers import eventually, retry_admin, unique_name, write_batches

PARTITIONS, BATCHES, RECORDS_PER_BATCH = 3, 60, 50


async def _write_slowly(mirror: MirrorRig, topic: str, kill_after: int, service: str) -> None:
    never, clock = asyncio.Event(), SystemClock()
    for number in range(BATCHES):
        records = [
            NewRecord(b"%d" % i, b"batch %d record %d" % (number, i), clock.now_ms())
            for i in range(RECORDS_PER_BATCH)
        ]
        await write_batches(mirror.pair.a, topic, [(number % PARTITIONS, Codec.ZSTD, records)])
        if number == kill_after:
            mirror.run.kill_service(service)
        await wait_or_stop(never, 0.02)


@pytest.mark.parametrize("service", [each for each in SERVICES if each != "source"])
async def test_killing_a_service_loses_and_repeats_nothing(mirror: MirrorRig, service: str) -> None:
    topic = unique_name(f"e2e-kill-{service}")
    others = {name: mirror.run.service(name).pid for name in SERVICES if name != service}
    killed = mirror.run.service(service).pid
    async with mirror.source() as source, mirror.target() as target:
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        await _write_slowly(mirror, topic, BATCHES // 2, service)

        async def all_there() -> CopyCheck | None:
            if mirror.remote(topic) not in await target.list_topics():
                return None
            result = await compare(source, topic, target, mirror.remote(topic), partition_count=PARTITIONS)
            return result if result.target_records >= BATCHES * RECORDS_PER_BATCH else None

        result = await eventually(all_there)
        assert result.identical, result

        def back_again() -> bool:
            return mirror.run.service(service).pid != killed

        await eventually(back_again)
    assert {name: mirror.run.service(name).pid for name in others} == others
