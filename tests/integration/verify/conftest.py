"""What the tests of a verification share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from integration.verify.verify_rig import VerifyRig
from twinlog.batches import NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import KafkaPair, awkward_records


@pytest.fixture
async def mirror(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[VerifyRig]:
    """With a topic for positions, and without a service that copies."""
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        made = VerifyRig(rig=rig, a=kafka_pair.a, b=kafka_pair.b)
        await made.positions_topic()
        yield made


@pytest.fixture
def records() -> list[NewRecord]:
    return awkward_records(SystemClock().now_ms() - 3_600_000, count=60)
