"""An epoch stays while its plan holds."""

from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin


@pytest.mark.parametrize("offsets", ["auto", "translated"])
async def test_tasks_stay_while_their_plan_holds_and_are_replaced_when_it_does_not(
    kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str, offsets: str
) -> None:
    """A copy that is created again is noticed beside running tasks, not at the next hand-over."""
    topic, later = unique_topic, f"{unique_topic}-later"
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        rig.extra |= {
            "topics": f"{topic}.*",
            "twinlog.epoch.seconds": "0.2",
            "twinlog.epoch.max.seconds": "600",
            "twinlog.offsets": offsets,
        }
        await rig.create(topic)
        async with rig.configsync() as configsync, rig.running(configsync) as service:
            await rig.produce(topic, [b"first"])
            await rig.same(topic)
            first_epoch = (await rig.flow_status(service)).epoch
            for number in range(20):
                await rig.produce(topic, [b"%d" % number])
                await rig.same(topic)
            assert (await rig.flow_status(service)).epoch == first_epoch

            await rig.create(later)
            await rig.produce(later, [b"first"])
            await rig.same(later)
            with_topic = (await rig.flow_status(service)).epoch
            assert with_topic > first_epoch

            await retry_admin(lambda: rig.target.delete_topics([rig.remote(topic)]))
            await rig.produce(topic, [b"after"])

            async def copied_again() -> bool:
                """Only what came after; where offsets are the source's, all that the source holds."""
                there = [value for _, _, value, _ in await rig.target_content(topic)]
                if offsets == "translated":
                    return there == [b"after"]
                return {value for _, _, value, _ in await rig.source_content(topic)} == set(there)

            await eventually(copied_again)

            async def with_the_new_copy() -> bool:
                return (await rig.flow_status(service)).epoch > with_topic

            await eventually(with_the_new_copy)
