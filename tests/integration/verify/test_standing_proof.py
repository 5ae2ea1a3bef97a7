"""The standing proof on real brokers: copies are proven while they are made, foreign records are found."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.source.source_rig import open_rig
from integration.verify.verify_rig import VerifyRig
from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync_pb
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.testing.brokers import KafkaPair, eventually, unique_name
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess


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


async def test_the_proof_follows_rules_that_change(mirror: VerifyRig) -> None:
    """A topic that a rule adds is verified, one that a rule removes is not accused. The command agrees, which
    asks no service."""
    first, second = unique_name("first"), unique_name("second")
    mirror.rig.extra |= {"topics": first, "twinlog.verify.interval.seconds": "0.5"}
    now_ms = SystemClock().now_ms()
    records = [NewRecord(b"k", b"%d" % number, now_ms + number) for number in range(40)]
    for topic in (first, second):
        await mirror.rig.create(topic)
        await mirror.write_source(topic, [(0, Codec.LZ4, records)])
    async with mirror.rig.configsync() as configsync, mirror.rig.running(configsync) as service:

        async def is_proven(topic: str) -> bool:
            proof = await proof_of(mirror, service, topic)
            return (proof.verdict, proof.proven_until) == ("EQUAL", 40)

        await eventually(lambda: is_proven(first))
        stub = ConfigSyncServiceStub(configsync.channel)
        change = configsync_pb.RuleChange(
            key="topics", operation=configsync_pb.RULE_OPERATION_SET, value=second
        )
        flow = types_pb2.Flow(source=mirror.rig.a, target=mirror.rig.b)
        request = configsync_pb.UpdateRulesRequest(flow=flow, changes=[change])
        await stub.UpdateRules(request, timeout=CALL_SECONDS)
        await eventually(lambda: is_proven(second))
        await mirror.write_source(first, [(0, Codec.LZ4, records)])
        exit_code, report = await mirror.command("--wait", "5")
        assert (exit_code, [each["topic"] for each in report["partitions"]]) == (0, [second])
        assert report["rules"]["version"] == 1
        await mirror.write_copy(second, [(0, Codec.NONE, [NewRecord(b"who", b"was this", now_ms)])])
        exit_code, report = await mirror.command("--wait", "5")
        assert (exit_code, report["differences_by_kind"]) == (1, {"FOREIGN": 1})


async def test_what_is_proven_outlives_the_service(mirror: VerifyRig) -> None:
    good, bad = unique_name("kept-good"), unique_name("kept-bad")
    mirror.rig.extra |= {"topics": f"{good},{bad}", "twinlog.verify.interval.seconds": "0.5"}
    now_ms = SystemClock().now_ms()
    records = [NewRecord(b"k", b"%05d" % number * 2_000, now_ms + number) for number in range(40)]
    for topic in (good, bad):
        await mirror.rig.create(topic)
        for record in records:
            await mirror.write_source(topic, [(0, Codec.NONE, [record])])
    seen: dict[str, pb.PartitionProof] = {}
    async with mirror.rig.configsync() as configsync:
        async with mirror.rig.running(configsync) as service:

            async def is_copied() -> bool:
                found = await mirror.rig.partitions(service, bad)
                return bool(found) and found[0].position == 40

            await eventually(is_copied)
            await mirror.write_copy(bad, [(0, Codec.NONE, [NewRecord(b"who", b"was this", now_ms)])])

            async def is_judged() -> bool:
                seen.update({topic: await proof_of(mirror, service, topic) for topic in (good, bad)})
                return (seen[good].verdict, seen[bad].verdict) == ("EQUAL", "DIFFERENT")

            await eventually(is_judged)
            await eventually(lambda: mirror.proof_is_stored(bad, "DIFFERENT"))
            await eventually(lambda: mirror.proof_is_stored(good, "EQUAL"))
        # Now a verification never ends: it reads the copy that differs once more, a byte a second.
        mirror.rig.extra |= {"twinlog.verify.max.bytes.per.second": "1"}
        async with mirror.rig.running(configsync) as service:

            async def is_remembered() -> bool:
                seen.update({topic: await proof_of(mirror, service, topic) for topic in (good, bad)})
                return (seen[good].verdict, seen[bad].verdict) == ("EQUAL", "DIFFERENT")

            await eventually(is_remembered)
            assert seen[good].proven_until == 40
            assert seen[good].HasField("proven_at")
            assert dict(seen[bad].differences) == {"FOREIGN": 1}


async def test_what_is_proven_is_told_and_stored_while_the_first_verification_runs(mirror: VerifyRig) -> None:
    """One that would take hours; the process ends before."""
    topic = unique_name("slow")
    mirror.rig.extra |= {
        "topics": topic,
        "twinlog.verify.interval.seconds": "5",
        "twinlog.verify.max.bytes.per.second": "200000",
    }
    now_ms = SystemClock().now_ms()
    small = [NewRecord(None, b"%d" % number, now_ms) for number in range(60_000)]
    large = [NewRecord(None, random.Random(number).randbytes(500_000), now_ms) for number in range(40)]
    await mirror.rig.create(topic)
    await mirror.write_source(
        topic, [(0, Codec.LZ4, small[at : at + 10_000]) for at in range(0, 60_000, 10_000)]
    )
    for record in large:
        await mirror.write_source(topic, [(0, Codec.NONE, [record])])
    seen = [0]

    async def is_partly_proven() -> bool:
        proof = await proof_of(mirror, service, topic)
        seen[0] = proof.proven_until
        return proof.verdict == "EQUAL" and 50_000 <= proof.proven_until < 60_000 + len(large)

    async with mirror.rig.configsync() as configsync:
        async with mirror.rig.running(configsync) as service:
            await eventually(is_partly_proven, timeout_seconds=180)
            await eventually(lambda: mirror.proof_is_stored(topic, "EQUAL"))
        before = seen[0]
        # Nothing more is proven from now on.
        mirror.rig.extra |= {"twinlog.verify.max.bytes.per.second": "1"}
        async with mirror.rig.running(configsync) as service:

            async def is_remembered() -> bool:
                proof = await proof_of(mirror, service, topic)
                return proof.verdict == "EQUAL" and proof.proven_until >= before

            await eventually(is_remembered)
