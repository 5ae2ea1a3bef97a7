"""The standing proof on real brokers: copies are proven while they are made, foreign records are found."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from integration.verify.verify_rig import VerifyRig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import ServiceProcess


@pytest.fixture
async def mirror(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[VerifyRig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as rig:
        yield VerifyRig(rig=rig, a=kafka_pair.a, b=kafka_pair.b)


async def proof_of(mirror: VerifyRig, service: ServiceProcess, topic: str) -> pb.PartitionProof:
    """Empty while the partition is not copied, or not verified."""
    found = await mirror.rig.partitions(service, topic)
    return found[0].proof if found else pb.PartitionProof()


async def test_copies_are_proven_while_they_are_made(mirror: VerifyRig) -> None:
    good, bad = unique_name("good"), unique_name("bad")
    mirror.rig.extra |= {
        "topics": f"{good},{bad}",
        "twinlog.verify.interval.seconds": "0.5",
        "twinlog.verify.max.bytes.per.second": "1000000",
    }
    now_ms = SystemClock().now_ms()
    records = [NewRecord(b"k", b"%d" % number, now_ms + number) for number in range(40)]
    for topic in (good, bad):
        await mirror.rig.create(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, records)])
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:

        async def is_proven(topic: str, until: int) -> bool:
            proof = await proof_of(mirror, service, topic)
            return (proof.verdict, proof.proven_until) == ("EQUAL", until)

        await eventually(lambda: is_proven(good, 40))
        await eventually(lambda: is_proven(bad, 40))
        assert (await proof_of(mirror, service, good)).HasField("proven_at")
        stranger = NewRecord(b"who", b"was this", now_ms)
        await mirror.write_copy(bad, [(0, Codec.NONE, [stranger])])
        for topic in (good, bad):
            await mirror.write_source(topic, [(0, Codec.LZ4, records)])

        async def is_found() -> bool:
            proof = await proof_of(mirror, service, bad)
            return (proof.verdict, dict(proof.differences)) == ("DIFFERENT", {"FOREIGN": 1})

        await eventually(is_found)
        await eventually(lambda: is_proven(good, 80))
