"""What operators and clusters do to topics of a flow: pause, throttle, positions, retention, deletion.

Each is a story of one topic; all stories happen at the same time to one service.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin
from twinlog.testing.service_process import CALL_SECONDS


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    # Copies with offsets of their own; of the others: test_source_preserved.py.
    own = {"twinlog.offsets": "translated"}
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **own) as opened:
        yield opened


def scope(rig: Rig, topic: str = "", partition: int | None = None) -> pb.Scope:
    return pb.Scope(flow=rig.flow, source_topic=topic, partition=partition)


async def test_a_position_is_on_the_log_when_the_command_returns_also_0_with_reset_to_latest(
    rig: Rig,
) -> None:
    """MM2's format cannot say 0, so a crash before the next record must not fall back to the reset."""
    await rig.create("from-latest", 2)
    await rig.create("empty-at-first")
    await rig.produce("from-latest", [b"old %d" % number for number in range(5)])
    rig.extra |= {
        "topics": "from-latest, empty-at-first, came-later",
        f"{rig.a}.consumer.auto.offset.reset": "latest",
    }

    async def found(topic: str, expected: list[bytes], partition: int = 0) -> None:
        async def equal() -> bool:
            there = [value for _, _, value, _ in await rig.target_content(topic, partition)]
            assert there == expected, (topic, partition, there)
            return True

        await eventually(equal)

    async with rig.configsync() as configsync:
        async with rig.running(configsync) as service:
            stub = SourceServiceStub(service.channel)

            async def at_work() -> bool:
                found = await rig.partitions(service)
                return len(found) == 3 and all(each.state == pb.PARTITION_STATE_RUNNING for each in found)

            await eventually(at_work)
            await rig.produce("from-latest", [b"new"])
            await found("from-latest", [b"new"])
            # What comes after the flow began is copied whole: a topic, and a partition of a topic.
            await rig.create("came-later")
            await rig.produce("came-later", [b"all of it"])
            await retry_admin(lambda: rig.source.create_partitions({"from-latest": 3}))
            await rig.produce("from-latest", [b"all of it"], partition=2)
            await found("came-later", [b"all of it"])
            await found("from-latest", [b"all of it"], partition=2)
            await stub.PauseReplication(
                pb.PauseReplicationRequest(scope=scope(rig), by="test"), timeout=CALL_SECONDS
            )
            request = pb.SetPositionsRequest(
                scope=scope(rig, "from-latest", 0),
                target=pb.PositionTarget(earliest=pb.Earliest()),
                dry_run=True,
            )
            (change,) = (await stub.SetPositions(request, timeout=CALL_SECONDS)).changes
            assert (change.from_offset, change.to_offset, change.repeated_offsets) == (6, 0, 6)
            request.dry_run = False
            assert (await stub.SetPositions(request, timeout=CALL_SECONDS)).applied
            await service.kill()
        await rig.produce("empty-at-first", [b"while nobody copied"])
        async with rig.running(configsync) as service:
            stub = SourceServiceStub(service.channel)

            async def taken_over() -> bool:
                return len(await rig.partitions(service)) == 5

            await eventually(taken_over)
            await stub.ResumeReplication(
                pb.ResumeReplicationRequest(scope=scope(rig), by="test"), timeout=CALL_SECONDS
            )
            await found("from-latest", [b"new", *(b"old %d" % number for number in range(5)), b"new"])
            await found("empty-at-first", [b"while nobody copied"])
            await found("came-later", [b"all of it"])
            # To a time: to the first record at or after it.
            began_ms = (await rig.source_content("from-latest"))[3][0]
            request = pb.SetPositionsRequest(scope=scope(rig, "from-latest", 0), dry_run=True)
            request.target.timestamp.FromMilliseconds(began_ms)

            async def said() -> bool:
                (change,) = (await stub.SetPositions(request, timeout=CALL_SECONDS)).changes
                return (change.from_offset, change.to_offset, change.repeated_offsets) == (6, 3, 3)

            await eventually(said)
