"""Which offsets copies have where nobody chose: new ones those of the source, older ones their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source_rig import Rig, open_rig
from integration.test_source_preserved import offsets_are, same_offsets
from twinlog.testing.brokers import KafkaPair

RECORDS = [b"first %d" % number for number in range(30)]
MORE = [b"more %d" % number for number in range(20)]


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def test_an_upgrade_leaves_copies_as_they_are_and_preserves_new_ones(rig: Rig) -> None:
    """A version that knew translated copies only wrote what one writes that is told to make no others."""
    for topic in ("by-default-old", "by-default-empty"):
        await rig.create(topic)
    await rig.produce("by-default-old", RECORDS)
    async with rig.configsync() as configsync:
        async with rig.running(configsync, **{"twinlog.offsets": "translated"}) as service:
            await rig.same("by-default-old")
            await offsets_are(rig, service, "by-default-empty", "translated", "OFFSETS_CONFIGURED", 0)
        await rig.create("by-default-new")
        await rig.produce("by-default-new", RECORDS)
        for _ in range(2):
            async with rig.running(configsync) as service:
                await offsets_are(rig, service, "by-default-old", "translated", "POSITION_STORED", 0)
                # Nothing of it was copied yet, so it can still have any offsets.
                for topic in ("by-default-new", "by-default-empty"):
                    await offsets_are(rig, service, topic, "preserved", "", 0)
                    await rig.produce(topic, MORE)
                    await same_offsets(rig, topic)
                await rig.produce("by-default-old", MORE)
                await rig.same("by-default-old")
