"""What the source or the target lost: found at the start and while running, told exactly, and never a false
alarm. One flow with a topic for every case."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from integration.in_process import twinlog
from integration.source.source_rig import Rig, open_rig
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, retry_admin, write_batches
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

FIRST = [b"first %d" % number for number in range(40)]
MORE = [b"more %d" % number for number in range(100)]
COMPACT_AT_ONCE = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "max_compaction_lag_ms": "100",
}
NOT_LOST = ("exact", "emptied", "compacted", "markers", "aborted", "shortened-from-below")
"""Topics that look as if something were missing, and nothing is."""

Gaps = set[tuple[str, int, int, str]]


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    # Copies with offsets of their own; of the others: unit/source/task/test_loss_judge.py.
    own = {"twinlog.offsets": "translated"}
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path, **own) as opened:
        yield opened


class LogFiles:
    """The log of one topic as it was: put back while the broker is down, it is a log that lost its tail."""

    def __init__(self, cluster: BlockingCluster, topic: str, keep: Path) -> None:
        self._directory = cluster.log_file(1).parent / "data" / f"{topic}-0"
        self._kept = keep / topic
        recreated = shutil.ignore_patterns("*index", "*.snapshot")
        shutil.copytree(self._directory, self._kept, ignore=recreated, dirs_exist_ok=True)

    def put_back(self) -> None:
        shutil.rmtree(self._directory)
        shutil.copytree(self._kept, self._directory)


async def gaps(rig: Rig, service: ServiceProcess) -> Gaps:
    stub = SourceServiceStub(service.channel)
    answer = await stub.ListGaps(pb.ListGapsRequest(flow=rig.flow), timeout=CALL_SECONDS)
    return {(gap.partition.topic, gap.from_offset, gap.to_offset, gap.reason) for gap in answer.gaps}


async def gaps_by_command(service: ServiceProcess) -> Gaps:
    answer = await twinlog("gaps", "--endpoint", f"source={service.endpoint}", "-o", "json")
    assert answer.returncode == 0, answer
    return {(gap["topic"], gap["from"], gap["to"], gap["reason"]) for gap in json.loads(answer.stdout)}


async def gaps_are(
    rig: Rig, service: ServiceProcess, expected: Gaps, shortened: Mapping[str, tuple[int, int]]
) -> None:
    """Exactly these. `shortened`: target topics that lost a range; where it begins may be told a little
    early, as markers of transactions count."""

    async def equal() -> bool:
        found = await gaps(rig, service)
        rest = {gap for gap in found if gap[3] != "TARGET_TRUNCATED"}
        assert rest == expected, rest ^ expected
        cut = {topic: (first, end) for topic, first, end, _ in found - rest}
        assert cut.keys() == shortened.keys(), cut
        for topic, (first, end) in shortened.items():
            assert cut[topic][1] == end, cut
            assert first - 20 <= cut[topic][0] <= first, cut
        return True

    await eventually(equal)


async def states(rig: Rig, service: ServiceProcess) -> dict[str, tuple[str, str]]:
    return {
        found.source.topic: (
            pb.PartitionState.Name(found.state).removeprefix("PARTITION_STATE_"),
            found.reason,
        )
        for found in await rig.partitions(service)
    }


async def states_are(rig: Rig, service: ServiceProcess, expected: Mapping[str, tuple[str, str]]) -> None:
    async def equal() -> bool:
        found = await states(rig, service)
        assert {topic: found.get(topic) for topic in expected} == expected
        return True

    await eventually(equal)


async def values(rig: Rig, topic: str) -> list[bytes | None]:
    return [value for _, _, value, _ in await rig.target_content(topic)]


async def ends_with(rig: Rig, topic: str, expected: Sequence[bytes | None]) -> None:
    async def equal() -> bool:
        found = await values(rig, topic)
        assert found[-len(expected) :] == list(expected), (topic, found[-len(expected) - 3 :])
        return True

    await eventually(equal)


async def copied(rig: Rig, service: ServiceProcess, *topics: str) -> None:
    """Everything is copied, and the driver knows it."""

    async def at_the_end() -> bool:
        for found in await rig.partitions(service):
            if found.source.topic in topics:
                end = await offset(rig.source, found.source.topic, OffsetSpec.LATEST)
                assert found.position == end, found
        return True

    await eventually(at_the_end)


async def offset(cluster: KafkaCluster, topic: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(topic, 0)
    found = (await cluster.list_offsets(spec, [partition]))[partition]
    assert isinstance(found, int), found
    return found


async def delete_records(cluster: KafkaCluster, before: Mapping[str, int]) -> None:
    wanted = {TopicPartition(topic, 0): end for topic, end in before.items()}
    await retry_admin(lambda: cluster.delete_records(wanted))


async def while_down(cluster: BlockingCluster, *logs: LogFiles) -> None:
    """Stop the broker, put old logs back, start it."""

    def carry_out() -> None:
        cluster.stop_broker(1)
        for log in logs:
            log.put_back()
        cluster.restart_broker(1)

    await asyncio.to_thread(carry_out)


async def create_again(rig: Rig, topic: str) -> None:
    await retry_admin(lambda: rig.source.delete_topics([topic]))
    await rig.create(topic)


async def write_keyed(cluster: BlockingCluster, keys: Sequence[bytes]) -> None:
    records = [NewRecord(key, b"v", SystemClock().now_ms()) for key in keys]
    await write_batches(cluster, "compacted", [(0, Codec.NONE, records)])


async def compact(rig: Rig, cluster: BlockingCluster) -> None:
    """Write until the log has holes in its middle and before its end."""
    for _ in range(3):
        await write_keyed(cluster, [b"k%d" % number for number in range(30)])

    async def has_holes() -> bool:
        await write_keyed(cluster, [b"roll"])
        held = len(await rig.source_content("compacted"))
        return held < await offset(rig.source, "compacted", OffsetSpec.LATEST) - 60

    await eventually(has_holes)


async def transaction(rig: Rig, cluster: BlockingCluster, topic: str, *, abort: bool) -> None:
    records = [NewRecord(b"k", b"in a transaction", SystemClock().now_ms())]
    await write_batches(
        cluster, topic, [(0, Codec.NONE, records)], transactional_id=f"{topic}-writer", abort=abort
    )


async def test_what_was_lost_while_the_service_was_down_is_found_at_its_start(
    rig: Rig, kafka_pair: KafkaPair, tmp_path: Path
) -> None:
    """First with the policy to stop, then with the policy to continue."""
    lost = ("expired", "cut", "cut-and-grown", "created-again", "target-gone", "target-cut")
    rig.extra |= {"topics": ",".join((*lost, *NOT_LOST)), "twinlog.epoch.seconds": "30"}
    a, b = kafka_pair.a, kafka_pair.b
    for topic in (*lost, *NOT_LOST):
        await rig.create(topic, 1, **(COMPACT_AT_ONCE if topic == "compacted" else {}))
        if topic != "compacted":
            await rig.produce(topic, FIRST)
    await delete_records(rig.source, {"emptied": 40})
    await compact(rig, a)
    await transaction(rig, a, "markers", abort=False)
    await transaction(rig, a, "aborted", abort=True)
    old_logs = [LogFiles(a, topic, tmp_path / "a") for topic in ("cut", "cut-and-grown")]
    for topic in ("cut", "cut-and-grown"):
        await rig.produce(topic, [b"cut off %d" % number for number in range(10)])
    async with rig.configsync() as configsync:
        async with rig.running(configsync) as service:
            for topic in ("markers", "aborted", "target-cut", "target-gone", *lost[:4]):
                await rig.same(topic)
            old_log_of_target = LogFiles(b, rig.remote("target-cut"), tmp_path / "b")
            await rig.produce("target-cut", MORE)
            await rig.same("target-cut")
            await copied(rig, service, *lost, *NOT_LOST)
            assert await gaps(rig, service) == set()

        await retry_admin(lambda: rig.target.delete_topics([rig.remote("target-gone")]))
        await while_down(a, *old_logs)
        await while_down(b, old_log_of_target)
        for topic in ("expired", "exact"):
            await rig.produce(topic, MORE)
        await rig.produce("cut-and-grown", MORE)
        # The position is in a hole once these are compacted.
        for _ in range(3):
            await write_keyed(a, [b"roll"])
        await delete_records(rig.source, {"expired": 60, "exact": 40, "target-gone": 25})
        await delete_records(rig.target, {rig.remote("shortened-from-below"): 20})
        await create_again(rig, "created-again")
        await rig.produce("created-again", MORE)

        async with rig.running(configsync, **{"twinlog.on.data.loss": "fail"}) as service:
            stopped = ("FAULTED", "DATA_LOSS")
            await states_are(rig, service, {"expired": stopped, "cut": stopped, "cut-and-grown": stopped})
            stub = SourceServiceStub(service.channel)
            scope = pb.Scope(flow=rig.flow, source_topic="cut")
            target = pb.PositionTarget(earliest=pb.Earliest())
            await stub.SetPositions(
                pb.SetPositionsRequest(scope=scope, target=target, by="test"), timeout=CALL_SECONDS
            )
            await states_are(rig, service, {"cut": ("RUNNING", "")})
            await ends_with(rig, "cut", FIRST)

        async with rig.running(configsync) as service:
            expected = {
                ("expired", 40, 60, "RETENTION"),
                # Recorded by the command that moved the stopped partition past it.
                ("cut", 40, 50, "TRUNCATION"),
                ("cut-and-grown", 40, 50, "TRUNCATION"),
                ("target-gone", 0, 40, "TARGET_RECREATED"),
            }
            for topic in (*lost, *NOT_LOST):
                if topic == "compacted":
                    await write_keyed(a, [b"last"])
                else:
                    await rig.produce(topic, [b"last"])
            await gaps_are(rig, service, expected, {"target-cut": (40, 140)})
            await ends_with(rig, "expired", [*FIRST, *MORE[20:], b"last"])
            await ends_with(rig, "cut", [*FIRST, b"last"])
            await ends_with(rig, "cut-and-grown", [*MORE, b"last"])
            await ends_with(rig, "created-again", [*FIRST, *MORE, b"last"])
            await ends_with(rig, "exact", [*FIRST, *MORE, b"last"])
            for topic in ("markers", "aborted"):
                await rig.same(topic)
            for topic in NOT_LOST:
                await ends_with(rig, topic, [b"v" if topic == "compacted" else b"last"])
            await states_are(rig, service, dict.fromkeys((*lost, *NOT_LOST), ("RUNNING", "")))

            # The same while it runs: a log grows past the position at once, and a copy loses its tail.
            end = await offset(rig.source, "exact", OffsetSpec.LATEST)
            old_log = LogFiles(a, "exact", tmp_path / "a")
            await rig.produce("exact", [b"cut off"] * 10)
            await rig.produce("markers", [b"kept"])
            await copied(rig, service, "exact", "markers")
            old_log_of_target = LogFiles(b, rig.remote("markers"), tmp_path / "b")
            await rig.produce("markers", [b"lost on the target"] * 10)
            await copied(rig, service, "markers")
            position = await offset(rig.source, "markers", OffsetSpec.LATEST)
            await while_down(a, old_log)
            await rig.produce("exact", [b"in place of them"] * 50)
            await while_down(b, old_log_of_target)
            await rig.produce("markers", [b"behind what is lost"])
            expected |= {("exact", end, end + 10, "TRUNCATION")}
            shortened = {"target-cut": (40, 140), "markers": (position - 10, position)}
            await gaps_are(rig, service, expected, shortened)
            await ends_with(rig, "exact", [b"cut off", *[b"in place of them"] * 50])
            await ends_with(rig, "markers", [b"kept", b"behind what is lost"])
            assert await gaps_by_command(service) == await gaps(rig, service)
