"""Exact translation of mirrors that others made: the real MM2, and one that copies twice. Our own mirrors:
tests/chaos/translation_chaos.py."""

import random
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest

from chaos.mirrored_truth import (
    PARTITIONS,
    HistoryWriter,
    LogView,
    Truth,
    all_copied,
    read_truths,
    read_view,
)
from integration.checkpoint.checkpoint_rig import BEGINNING_MS, Ends, mirror
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow as FlowMessage
from twinlog.api.common.v1.types_pb2 import TopicPartition as PartitionMessage
from twinlog.batches import Codec, NewRecord
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import Flow
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, unique_name, write_batches
from twinlog.testing.java.mm2 import mirror_maker_2, quick_mm2_properties
from twinlog.testing.service_process import CALL_SECONDS, run_service

OFFSETS = 1000
GOOD = (pb2.VERDICT_EXACT, pb2.VERDICT_UP_TO_DATE)


@pytest.mark.java
async def test_a_mirror_that_mm2_made_is_translated_exactly(kafka_pair: KafkaPair, tmp_path: Path) -> None:
    topic, flow = unique_name("exact-mm2"), Flow(unique_name("east"), unique_name("west"))
    clients = {
        flow.source: kafka_pair.a.client_properties(),
        flow.target: kafka_pair.b.client_properties(),
    }
    extra = {"topics": topic, f"{flow.source}.consumer.isolation.level": "read_committed"}
    text = quick_mm2_properties(clients, [flow], extra)
    remote = f"{flow.source}.{topic}"
    rng = random.Random(17)
    writer = HistoryWriter(cluster=kafka_pair.a, topic=topic, rng=rng)
    async with (
        open_cluster("a", clients[flow.source]) as source,
        open_cluster("b", clients[flow.target]) as target,
    ):
        new = NewTopic(name=topic, partition_count=PARTITIONS, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        await writer.write(4000)
        for _ in range(2):
            async with mirror_maker_2(text, tmp_path):
                await eventually(lambda: all_copied(source, topic, target, remote))
                await writer.write(3000)
                await eventually(lambda: all_copied(source, topic, target, remote))
            await writer.write(1000)
        truths = await read_truths(source, topic, target, remote)
        logs = {number: _as_far_as_copied(truth) for number, truth in truths.items()}
    places = [
        (number, rng.randrange(logs[number].source.offsets[-1] + 1))
        for number in (rng.randrange(PARTITIONS) for _ in range(OFFSETS))
    ]
    places += [(number, 0) for number in logs]
    async with run_service("checkpoint", tmp_path / "service", text) as service:
        answers = await _translated(service.channel, flow, topic, places)
    wrong = [
        (place, answer)
        for place, answer in zip(places, answers, strict=True)
        if answer.verdict not in GOOD or logs[place[0]].fault(place[1], answer.translated_offset)
    ]
    assert not wrong, wrong[:3]


async def test_records_that_were_copied_twice_never_move_an_answer_ahead(
    kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """As an at-least-once mirror leaves them when it is killed: stretches are copied again, no sync tells."""
    rng = random.Random(23)
    async with mirror(Ends.of(kafka_pair)) as flow:
        count = 8_000
        await _write(kafka_pair.a, flow.topic, range(count))
        await _write(kafka_pair.b, flow.copy.topic, range(-7, 0))
        copied = 0
        while copied < count:
            again, further = min(copied, rng.choice((0, 3, 40, 900))), rng.randint(300, 1500)
            await _write(kafka_pair.b, flow.copy.topic, range(copied - again, min(count, copied + further)))
            copied += further
        await flow.sync(0, 7)
        view = await read_view(flow.target, flow.copy)
        truth = Truth(await read_view(flow.source, flow.origin), view)
        assert truth.duplicates > 500
        places = [(0, offset) for offset in sorted({0, count, *(rng.randrange(count) for _ in range(500))})]
        asked = Flow(flow.a, flow.b)
        async with run_service("checkpoint", tmp_path / "service", flow.properties) as service:
            answers = await _translated(service.channel, asked, flow.topic, places)
    wrong = [
        (place, answer)
        for place, answer in zip(places, answers, strict=True)
        if answer.verdict not in GOOD or truth.fault(place[1], answer.translated_offset)
    ]
    assert not wrong, (len(wrong), wrong[:3])


async def _write(cluster: BlockingCluster, topic: str, names: range) -> None:
    """Records that are the same wherever and however often they are written."""
    batches = [
        (
            0,
            Codec.NONE,
            [NewRecord(None, b"%d" % name, BEGINNING_MS + name // 9) for name in names[at : at + 50]],
        )
        for at in range(0, len(names), 50)
    ]
    await write_batches(cluster, topic, batches)


def _as_far_as_copied(truth: Truth) -> Truth:
    """What MM2 has not copied yet is no part of the copy: the truth ends where the target does."""
    source = truth.source
    end = list(source.names).index(truth.target.names[-1]) + 1
    return Truth(LogView(offsets=source.offsets[:end], names=source.names[:end]), truth.target)


async def _translated(
    channel: grpc.aio.Channel, flow: Flow, topic: str, places: Sequence[tuple[int, int]]
) -> Sequence[pb2.OffsetTranslation]:
    request = pb2.TranslateOffsetsRequest(
        flow=FlowMessage(source=flow.source, target=flow.target),
        queries=[
            pb2.OffsetQuery(partition=PartitionMessage(topic=topic, partition=number), offset=offset)
            for number, offset in places
        ],
    )
    stub = CheckpointServiceStub(channel)

    async def ready() -> bool:
        listed = await stub.ListGroups(pb2.ListGroupsRequest(), timeout=CALL_SECONDS)
        return request.flow in listed.ready_flows

    await eventually(ready)
    return (await stub.TranslateOffsets(request, timeout=120)).translations
