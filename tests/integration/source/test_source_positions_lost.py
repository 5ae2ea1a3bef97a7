"""The positions topic is deleted under a running flow: it is written again, and nothing is copied twice."""

from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin


@pytest.mark.parametrize("offsets", ["preserved", "translated"])
async def test_a_positions_topic_that_is_deleted_is_written_again(
    kafka_pair: KafkaPair, tmp_path: Path, offsets: str
) -> None:
    async with (
        open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **{"twinlog.offsets": offsets}) as rig,
        rig.configsync() as configsync,
    ):
        await rig.create(topic := f"orders-{offsets}")

        async def copy(first: int) -> None:
            await rig.produce(topic, [b"%d" % number for number in range(first, first + 20)])
            await rig.same(topic)

        async with rig.running(configsync):
            await copy(0)
            before = (await rig.target.describe_topics([rig.positions_topic]))[rig.positions_topic]
            await retry_admin(lambda: rig.target.delete_topics([rig.positions_topic]))
            await copy(100)

            async def is_there() -> bool:
                now = (await rig.target.describe_topics([rig.positions_topic]))[rig.positions_topic]
                return not isinstance(now, Exception) and now != before

            await eventually(is_there)
            await copy(200)
        async with rig.running(configsync):
            await copy(300)
