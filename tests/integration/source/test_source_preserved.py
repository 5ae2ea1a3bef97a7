"""Copies with the source's offsets under their driver: decided, moved, lost, created again. One flow
with a topic for every case."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source.source_rig import GrowingLog, Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.errors import KafkaError
from twinlog.kafka.ports import OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

FIRST = [b"first %d" % number for number in range(30)]
MORE = [b"more %d" % number for number in range(20)]
TOPICS = (
    "keeps-plain",
    "keeps-trimmed",
    "keeps-moved",
    "keeps-target-recreated",
    "keeps-source-recreated",
    "keeps-foreign",
)


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **{"twinlog.offsets": "auto"}) as opened:
        yield opened


async def same_offsets(rig: Rig, topic: str, *, from_offset: int = 0) -> None:
    """Wait until the copy has every record of the source at its offset, and no other."""
    source = GrowingLog(rig.source, TopicPartition(topic, 0))
    target = GrowingLog(rig.target, TopicPartition(rig.remote(topic), 0))

    async def equal() -> bool:
        here = {each.offset: each.value for each in await source.records() if each.offset >= from_offset}
        there = {each.offset: each.value for each in await target.records() if each.offset >= from_offset}
        if not there.items() <= here.items():
            raise ValueError(f"{topic}: {there.items() - here.items()} is not at the source's offset")
        return here == there

    await eventually(equal)


async def all_there(rig: Rig, topic: str) -> None:
    """Wait until every record of the source is in the copy, wherever that is."""

    async def contained() -> bool:
        here = [each.value for each in await GrowingLog(rig.source, TopicPartition(topic, 0)).records()]
        target = GrowingLog(rig.target, TopicPartition(rig.remote(topic), 0))
        there = [each.value for each in await target.records()]
        return set(here) <= set(there)

    await eventually(contained)


async def offsets_are(rig: Rig, service: ServiceProcess, topic: str, *expected: object) -> None:
    async def equal() -> bool:
        rows = await rig.partitions(service, topic)
        found = [(each.offsets, each.offsets_reason, each.offsets_since) for each in rows]
        assert found == [expected], f"{topic}: {found}"
        return True

    await eventually(equal)


async def ends_are_equal(rig: Rig, topic: str) -> None:
    """Also the ends of transactions are filled on the target."""

    async def equal() -> bool:
        ends = [
            (await cluster.list_offsets(OffsetSpec.LATEST, [partition]))[partition]
            for cluster, partition in (
                (rig.source, TopicPartition(topic, 0)),
                (rig.target, TopicPartition(rig.remote(topic), 0)),
            )
        ]
        assert ends[0] == ends[1], ends
        return True

    await eventually(equal)


async def set_position(rig: Rig, service: ServiceProcess, topic: str, offset: int) -> pb.PositionChange:
    stub = SourceServiceStub(service.channel)
    request = pb.SetPositionsRequest(
        scope=pb.Scope(flow=rig.flow, source_topic=topic), target=pb.PositionTarget(offset=offset), by="test"
    )
    (change,) = (await stub.SetPositions(request, timeout=CALL_SECONDS)).changes
    return change


async def gaps(rig: Rig, service: ServiceProcess) -> set[tuple[str, int, int, str]]:
    stub = SourceServiceStub(service.channel)
    answer = await stub.ListGaps(pb.ListGapsRequest(flow=rig.flow), timeout=CALL_SECONDS)
    return {(gap.partition.topic, gap.from_offset, gap.to_offset, gap.reason) for gap in answer.gaps}


async def topic_id(rig: Rig, topic: str) -> str:
    """Id of a topic on the target; empty while there is none."""
    found = (await rig.target.describe_topics([topic]))[topic]
    return "" if isinstance(found, KafkaError) else found.topic_id


async def recreate(rig: Rig, topic: str) -> None:
    """Delete a source topic and create it again in a moment."""
    assert await rig.source.delete_topics([topic]) == {topic: None}

    async def made() -> bool:
        try:
            await rig.create(topic)
        except AssertionError:
            return False
        return True

    await eventually(made)


async def test_topics_continue_where_they_come_from_once_applications_have_moved(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """Copied to B under their own names, written there, and copied back: nothing twice, same offsets."""
    prefix = unique_name("back")
    plain, transactions, parted = topics = [f"{prefix}-{kind}" for kind in ("plain", "tx", "parted")]
    same_names = {"replication.policy.class": "IdentityReplicationPolicy", "topics": f"{prefix}-.*"}
    async with (
        open_rig(kafka_pair.a, kafka_pair.b, tmp_path / "forth", **same_names) as forth,
        open_rig(kafka_pair.b, kafka_pair.a, tmp_path / "back", **same_names) as back,
    ):
        for topic in topics:
            await forth.create(topic)
            await forth.produce(topic, FIRST, transactional=topic == transactions)
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            for topic in topics:
                await same_offsets(forth, topic)
                await ends_are_equal(forth, topic)
                await offsets_are(forth, service, topic, "preserved", "", 0)
        # Applications write to B now. One producer was late: nobody has copied what it wrote to A.
        await forth.produce(parted, [b"late"])
        for topic in topics:
            await back.produce(topic, MORE, transactional=topic == transactions)
        async with back.configsync() as configsync:
            async with back.running(configsync) as service:
                for topic in (plain, transactions):
                    await same_offsets(back, topic)
                    await offsets_are(back, service, topic, "preserved", "", 0)
                await offsets_are(back, service, parted, "translated", "TARGET_DIFFERS", len(FIRST))
                await all_there(back, parted)
            async with back.running(configsync) as service:
                for topic in topics:
                    await back.produce(topic, [b"after a restart"])
                await same_offsets(back, plain)
                await same_offsets(back, transactions)
                await all_there(back, parted)
        # And there again: what came from B is not copied to it once more.
        for topic in (plain, transactions):
            await forth.produce(topic, [b"there again"], transactional=topic == transactions)
        async with forth.configsync() as configsync, forth.running(configsync) as service:
            for topic in (plain, transactions):
                await same_offsets(forth, topic)
                await offsets_are(forth, service, topic, "preserved", "", 0)
        copied = GrowingLog(back.target, TopicPartition(parted, 0))
        assert [each.value for each in await copied.records()] == [
            *FIRST,
            b"late",
            *MORE,
            b"after a restart",
        ]


async def test_copies_keep_their_offsets_through_what_happens_to_them(rig: Rig) -> None:
    for topic in TOPICS:
        await rig.create(topic)
        await rig.produce(topic, FIRST)
    await rig.source.delete_records({TopicPartition("keeps-trimmed", 0): 12})
    async with rig.configsync() as configsync:
        async with rig.running(configsync) as service:
            for topic in TOPICS:
                await same_offsets(rig, topic)
                begins_at = 12 if topic == "keeps-trimmed" else 0
                await offsets_are(rig, service, topic, "preserved", "", begins_at)
            trimmed = [TopicPartition(rig.remote("keeps-trimmed"), 0)]

            async def is_trimmed() -> bool:
                starts = await rig.target.list_offsets(OffsetSpec.EARLIEST, trimmed)
                assert list(starts.values()) == [12], "what was filled is deleted"
                return True

            await eventually(is_trimmed)

            # An operator leaves records out: their offsets are filled, what follows keeps its place.
            change = await set_position(rig, service, "keeps-moved", 10)
            assert (change.reason, change.applied) == ("OFFSETS_PRESERVED", False)
            await rig.produce("keeps-moved", MORE)
            await same_offsets(rig, "keeps-moved")

            # The copy is deleted: configsync creates it again, and it is copied from the beginning.
            # (Records that arrive before that is noticed may get wrong offsets: docs/offsets.md.)
            remote = rig.remote("keeps-target-recreated")
            before = await topic_id(rig, remote)
            await retry_admin(lambda: rig.target.delete_topics([remote]))

            async def is_another() -> bool:
                return await topic_id(rig, remote) not in ("", before)

            await eventually(is_another)
            await same_offsets(rig, "keeps-target-recreated")
            await rig.produce("keeps-target-recreated", MORE)
            await same_offsets(rig, "keeps-target-recreated")

            # The source topic is another one: its offsets have no place in the copy.
            await recreate(rig, "keeps-source-recreated")
            await rig.produce("keeps-source-recreated", MORE)
            await offsets_are(rig, service, "keeps-source-recreated", "translated", "SOURCE_RECREATED", 0)
            await all_there(rig, "keeps-source-recreated")

            # Somebody writes to a copy.
            async with rig.target.writer() as stranger:
                await stranger.append(
                    TopicPartition(rig.remote("keeps-foreign"), 0), key=None, value=b"who was that?"
                )
            await rig.produce("keeps-foreign", MORE)
            await offsets_are(rig, service, "keeps-foreign", "translated", "FOREIGN_WRITE", len(FIRST))
            await all_there(rig, "keeps-foreign")
            await offsets_are(rig, service, "keeps-target-recreated", "preserved", "", 0)
            assert {gap for gap in await gaps(rig, service) if gap[0] == "keeps-target-recreated"} == set()

        # A clean restart: where copies end is all that is needed.
        async with rig.running(configsync) as service:
            await rig.produce("keeps-plain", MORE)
            await same_offsets(rig, "keeps-plain")
            await offsets_are(rig, service, "keeps-foreign", "translated", "FOREIGN_WRITE", len(FIRST))

        # The configuration changes its mind: the copy continues behind its end, with nothing twice.
        async with rig.running(configsync, **{"twinlog.offsets.translated.topics": "keeps-plain"}) as service:
            end = len(FIRST) + len(MORE)
            await offsets_are(rig, service, "keeps-plain", "translated", "OFFSETS_CONFIGURED", end)
            await rig.produce("keeps-plain", MORE)
            await rig.same("keeps-plain")
        async with rig.running(configsync) as service:
            await offsets_are(rig, service, "keeps-plain", "translated", "OFFSETS_CONFIGURED", end)
            await rig.produce("keeps-trimmed", MORE)
            await same_offsets(rig, "keeps-trimmed")
