"""Random places of mirrored topics, and what the checkpoint service and its checkpoints say of them."""

import random
from collections.abc import Mapping, Sequence

import grpc

from chaos.mirrored_truth import PARTITIONS
from chaos.rough_mirror import Mirrored, Truths
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1.types_pb2 import Flow as FlowMessage
from twinlog.api.common.v1.types_pb2 import TopicPartition as PartitionMessage
from twinlog.client import MirrorClient
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import eventually

TRANSLATE_SECONDS = 120.0
READ_CHECKPOINTS_SECONDS = 30.0

Place = tuple[Mirrored, int, int]
"""A topic, a partition, an offset of it."""


def random_places(truths: Truths, count: int, dice: random.Random) -> Sequence[Place]:
    """The beginning of every partition among them."""
    entries = sorted(truths, key=lambda entry: entry.topic)
    places: set[Place] = {(entry, number, 0) for entry in entries for number in range(PARTITIONS)}
    while len(places) < count:
        entry, number = dice.choice(entries), dice.randrange(PARTITIONS)
        end = truths[entry][number].source.offsets[-1] + 1
        places.add((entry, number, dice.randint(0, end)))
    return sorted(places, key=lambda place: (place[0].topic, *place[1:]))


def as_groups(
    places: Sequence[Place], prefix: str, dice: random.Random
) -> Mapping[str, Mapping[TopicPartition, Place]]:
    """Groups whose committed offsets are these places: each holds a partition once."""
    groups: dict[str, dict[TopicPartition, Place]] = {}
    for place in dice.sample(places, len(places)):
        entry, number, _ = place
        partition = TopicPartition(entry.topic, number)
        group = next(
            (name for name, held in groups.items() if partition not in held), f"{prefix}-{len(groups)}"
        )
        groups.setdefault(group, {})[partition] = place
    return groups


async def translate(endpoint: str, places: Sequence[Place]) -> Mapping[Place, pb2.OffsetTranslation]:
    """Ask TranslateOffsets; waits for a service that comes back."""
    answers: dict[Place, pb2.OffsetTranslation] = {}
    for flow in sorted({entry.flow for entry, _, _ in places}):
        mine = [place for place in places if place[0].flow == flow]
        answers.update(zip(mine, await _translate_flow(endpoint, flow, mine), strict=True))
    return answers


async def _translate_flow(
    endpoint: str, flow: Flow, places: Sequence[Place]
) -> Sequence[pb2.OffsetTranslation]:
    request = pb2.TranslateOffsetsRequest(
        flow=FlowMessage(source=flow.source, target=flow.target),
        queries=[
            pb2.OffsetQuery(partition=PartitionMessage(topic=entry.topic, partition=number), offset=offset)
            for entry, number, offset in places
        ],
    )

    async def answered() -> Sequence[pb2.OffsetTranslation]:
        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub = CheckpointServiceStub(channel)
            try:
                return (await stub.TranslateOffsets(request, timeout=TRANSLATE_SECONDS)).translations
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    return ()  # it has just begun, and reads the offset syncs
                raise

    return await eventually(answered)


async def read_checkpoints(
    properties: Mapping[str, str], aliases: Sequence[str], group_pattern: str
) -> Mapping[tuple[str, TopicPartition], int]:
    """What an application on the target reads of them."""
    found: dict[tuple[str, TopicPartition], int] = {}
    async with MirrorClient(properties) as client:
        for alias in aliases:
            offsets = await client.remote_consumer_offsets_matching(
                group_pattern, alias, timeout_seconds=READ_CHECKPOINTS_SECONDS
            )
            for group, held in offsets.items():
                found |= {(group, partition): at.next_offset for partition, at in held.items()}
    return found
