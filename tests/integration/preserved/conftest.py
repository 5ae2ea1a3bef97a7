"""A flow between fake clusters, with copies that keep offsets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.preserved.preserved_rig import PreservedRig, preserved_rig
from twinlog.testing.brokers import KafkaPair


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path, unique_topic: str) -> AsyncIterator[PreservedRig]:
    async with preserved_rig(kafka_pair, tmp_path, unique_topic) as opened:
        yield opened
