"""source as a process of its own, with Spark, against two real clusters; configsync beside it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source_rig import CODECS, Rig, open_rig
from twinlog.testing.brokers import KafkaPair, eventually


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def test_records_of_every_codec_are_copied_identically_and_go_on_after_a_restart(
    rig: Rig, unique_topic: str
) -> None:
    topic = unique_topic
    rig.extra["topics"] = topic
    await rig.create(topic, 2)
    for index, codec in enumerate(CODECS):
        values = [b"%d " % number + b"x" * (number % 200) if number % 11 else None for number in range(300)]
        await rig.produce(topic, values, codec=codec, partition=index % 2)
    async with rig.configsync() as configsync:
        async with rig.running(configsync) as service:
            await rig.same(topic, 2)

            async def shown() -> bool:
                found = await rig.partitions(service, topic)
                assert [status.lag_records for status in found] == [0, 0]
                assert {status.position for status in found} == {900, 600}
                return True

            await eventually(shown)
        await rig.produce(topic, [b"while it was down"])
        async with rig.running(configsync):
            await rig.produce(topic, [b"after it came back"])
            await rig.same(topic, 2)


async def test_kill_9_loses_and_repeats_nothing(rig: Rig, unique_topic: str) -> None:
    topic = unique_topic
    rig.extra["topics"] = topic
    await rig.create(topic, 2)
    async with rig.configsync() as configsync:
        for round_number in range(3):
            async with rig.running(configsync) as service:
                values = [b"%d-%d" % (round_number, number) for number in range(5000)]
                await rig.produce(topic, values, codec="lz4", partition=round_number % 2)

                async def some(least: int = 1000 * (round_number + 1)) -> bool:
                    return sum([len(await rig.target_content(topic, n)) for n in (0, 1)]) >= least

                await eventually(some)
                await service.kill()
        async with rig.running(configsync):
            await rig.same(topic, 2)
