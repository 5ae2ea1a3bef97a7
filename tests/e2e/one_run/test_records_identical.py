"""README: what is on the source is on the target, byte for byte, once, in order."""

import time
from collections.abc import Mapping

import pytest

from e2e.conftest import MirrorRig
from twinlog.batches import Codec, NewRecord
from twinlog.demo.comparison import CopyCheck, compare
from twinlog.kafka.ports import NewTopic
from twinlog.testing.brokers import awkward_records, eventually, retry_admin, unique_name, write_batches


async def _make(
    mirror: MirrorRig, topic: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    new = NewTopic(name=topic, partition_count=partitions, replication_factor=1, configs=configs or {})
    async with mirror.source() as source:
        await retry_admin(lambda: source.create_topics([new]))


async def _same(mirror: MirrorRig, topic: str, partitions: int, *, at_least: int) -> CopyCheck:
    async def compared() -> CopyCheck | None:
        async with mirror.source() as source, mirror.target() as target:
            if mirror.remote(topic) not in await target.list_topics():
                return None
            result = await compare(source, topic, target, mirror.remote(topic), partition_count=partitions)
            done = result.source_records >= at_least and result.target_records >= result.source_records
            return result if done else None

    result = await eventually(compared)
    assert result.identical, result
    return result


async def test_every_codec_keeps_every_awkward_record(mirror: MirrorRig) -> None:
    topic, now_ms = unique_name("e2e-codecs"), int(time.time_ns() // 1_000_000)
    await _make(mirror, topic, len(Codec))
    records = awkward_records(now_ms)
    await write_batches(mirror.pair.a, topic, [(i, codec, records) for i, codec in enumerate(Codec)])
    result = await _same(mirror, topic, len(Codec), at_least=len(records) * len(Codec))
    assert result.source_records == len(records) * len(Codec)


async def test_only_committed_records_of_transactions_arrive(mirror: MirrorRig) -> None:
    topic, now_ms = unique_name("e2e-transactions"), int(time.time_ns() // 1_000_000)
    await _make(mirror, topic, 2)
    for number in range(12):
        records = [NewRecord(b"t%d" % number, b"record %d" % i, now_ms) for i in range(number + 1)]
        batches = [(number % 2, Codec.ZSTD, records), (0, Codec.NONE, records)]
        await write_batches(mirror.pair.a, topic, batches, transactional_id=topic, abort=number % 3 == 1)
    result = await _same(mirror, topic, 2, at_least=2 * sum(n + 1 for n in range(12) if n % 3 != 1))
    assert result.source_records == 2 * sum(n + 1 for n in range(12) if n % 3 != 1)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
async def test_timestamps_stay(mirror: MirrorRig, timestamp_type: str) -> None:
    topic, now_ms = unique_name("e2e-times"), int(time.time_ns() // 1_000_000)
    await _make(mirror, topic, 1, {"message.timestamp.type": timestamp_type})
    records = [NewRecord(b"k", b"%d" % i, now_ms - 1_000 * i) for i in range(20)]
    await write_batches(mirror.pair.a, topic, [(0, Codec.SNAPPY, records)])
    await _same(mirror, topic, 1, at_least=20)
