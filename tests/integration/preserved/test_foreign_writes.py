"""Foreign writes on real brokers: the copier finds them while it copies and at rest, in copies of both kinds,
and says who wrote what."""

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


def some(count: int, word: bytes = b"ours") -> list[NewRecord]:
    now_ms = SystemClock().now_ms()
    return [NewRecord(word, b"%d" % number, now_ms) for number in range(count)]


async def status_of(mirror: VerifyRig, service: ServiceProcess, topic: str) -> pb.PartitionStatus:
    """Empty while the partition is not known."""
    found = await mirror.rig.partitions(service, topic)
    return found[0] if found else pb.PartitionStatus()


async def copied(mirror: VerifyRig, service: ServiceProcess, topic: str, position: int) -> None:
    async def is_there() -> bool:
        return (await status_of(mirror, service, topic)).position == position

    await eventually(is_there)


@pytest.mark.parametrize("exactly_once", ["enabled", "disabled"])
async def test_who_writes_into_a_copy_is_named_while_it_is_copied(
    mirror: VerifyRig, exactly_once: str
) -> None:
    good, bad = unique_name("alone"), unique_name("visited")
    mirror.rig.extra |= {
        "topics": f"{good},{bad}",
        "twinlog.offsets": "translated",
        "exactly.once.source.support": exactly_once,
    }
    for topic in (good, bad):
        await mirror.rig.create(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, some(10))])
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:
        for topic in (good, bad):
            await copied(mirror, service, topic, 10)
        # The first is a transaction that was aborted: nobody sees it.
        await mirror.write_copy(
            bad, [(0, Codec.NONE, some(4, b"unseen"))], transactional_id=unique_name("x"), abort=True
        )
        await mirror.write_copy(bad, [(0, Codec.NONE, some(3, b"stranger"))])
        for topic in (good, bad):
            await mirror.write_source(topic, [(0, Codec.LZ4, some(5))])
            await copied(mirror, service, topic, 15)
        told: dict[str, pb.PartitionStatus] = {}

        async def is_found() -> bool:
            told["status"] = await status_of(mirror, service, bad)
            return told["status"].foreign_records == 3

        await eventually(is_found)
        write = told["status"].foreign_write
        assert (write.records, write.to_offset - write.from_offset) == (3, 3)
        assert write.HasField("written_at")
        report = await mirror.verify(bad)
        (difference,) = report["differences"]
        assert (difference["kind"], difference["target_offset"]) == ("FOREIGN", write.from_offset)
        assert difference["written_by"]["producer_id"] == write.producer_id
        assert difference["written_by"]["producer_epoch"] == write.producer_epoch
        assert (await status_of(mirror, service, good)).foreign_records == 0
        flow = await mirror.rig.flow_status(service)
        assert flow.foreign_records == 3


async def test_a_task_that_takes_over_sees_what_was_written_between(mirror: VerifyRig) -> None:
    topic = unique_name("between")
    mirror.rig.extra |= {"topics": topic, "twinlog.offsets": "translated"}
    await mirror.rig.create(topic)
    await mirror.write_source(topic, [(0, Codec.LZ4, some(10))])
    async with mirror.rig.configsync() as configsync:
        async with mirror.rig.running(configsync) as service:
            await copied(mirror, service, topic, 10)
        await mirror.write_copy(topic, [(0, Codec.NONE, some(2, b"stranger"))])
        await mirror.write_source(topic, [(0, Codec.LZ4, some(5))])
        async with mirror.rig.running(configsync) as service:
            await copied(mirror, service, topic, 15)

            async def is_found() -> bool:
                return (await status_of(mirror, service, topic)).foreign_records == 2

            await eventually(is_found)


@pytest.mark.parametrize("offsets", ["translated", "auto"])
async def test_what_is_written_into_a_copy_at_rest_is_found(mirror: VerifyRig, offsets: str) -> None:
    """No record of the source comes meanwhile."""
    topic = unique_name(f"resting-{offsets}")
    mirror.rig.extra |= {"topics": topic, "twinlog.offsets": offsets}
    await mirror.rig.create(topic)
    await mirror.write_source(topic, [(0, Codec.LZ4, some(10))])
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:
        await copied(mirror, service, topic, 10)
        kind = "preserved" if offsets == "auto" else "translated"
        assert (await status_of(mirror, service, topic)).offsets == kind
        await mirror.write_copy(topic, [(0, Codec.NONE, some(3, b"stranger"))])
        told: dict[str, pb.PartitionStatus] = {}

        async def is_found() -> bool:
            told["status"] = await status_of(mirror, service, topic)
            return told["status"].foreign_records == 3

        await eventually(is_found)
        write = told["status"].foreign_write
        report = await mirror.verify(topic)
        (difference,) = report["differences"]
        assert (difference["kind"], difference["target_offset"]) == ("FOREIGN", write.from_offset)
        assert difference["written_by"]["producer_id"] == write.producer_id
        assert (await mirror.rig.flow_status(service)).foreign_records == 3
        # What comes then is copied once, and nobody is accused once more.
        await mirror.write_source(topic, [(0, Codec.LZ4, some(5))])
        await copied(mirror, service, topic, 15)
        report = await mirror.verify(topic)
        assert report["differences_by_kind"] == {"FOREIGN": 3}
        status = await status_of(mirror, service, topic)
        assert status.foreign_records == 3
        if kind == "preserved":
            assert (status.offsets, status.offsets_reason) == ("translated", "FOREIGN_WRITE")
        assert service.log().count('"event": "foreign_write"') == 1, "one line says who wrote what"
