"""Operators steer one thing and touch no other; watchers see it as it happens."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from integration.in_process import twinlog
from integration.source.source_rig import Rig, open_rig, producer
from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.cli.source.watched_partitions import KnownPartitions
from twinlog.testing.brokers import KafkaPair, eventually
from twinlog.testing.service_process import CALL_SECONDS, ServiceProcess

PARTITIONS = 3

Positions = dict[str, int]


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def steered(rig: Rig) -> AsyncIterator[tuple[ServiceProcess, SourceServiceStub]]:
    """Topics `one` (three partitions) and `other`, with a record of each copied already."""
    rig.extra["topics"] = "one,other"
    await rig.create("one", PARTITIONS)
    await rig.create("other")
    await one_record_each(rig)
    async with rig.configsync() as configsync, rig.running(configsync) as service:

        async def copied() -> bool:
            return set((await positions(rig, service)).values()) == {1}

        await eventually(copied)
        yield service, SourceServiceStub(service.channel)


async def states(rig: Rig, service: ServiceProcess) -> dict[str, str]:
    return {
        f"{each.source.topic}-{each.source.partition}": pb.PartitionState.Name(each.state).removeprefix(
            "PARTITION_STATE_"
        )
        for each in await rig.partitions(service)
    }


def expected(paused: Iterable[str]) -> dict[str, str]:
    names = [*(f"one-{number}" for number in range(PARTITIONS)), "other-0"]
    return {name: "PAUSED" if name in paused else "RUNNING" for name in names}


async def test_each_scope_is_paused_and_resumed_alone_and_watchers_see_it(rig: Rig) -> None:
    scopes = {
        ("one", 1): {"one-1"},
        ("one", None): {"one-0", "one-1", "one-2"},
        ("", None): {"one-0", "one-1", "one-2", "other-0"},
    }
    async with steered(rig) as (service, stub), followed(stub, rig) as known:
        for (topic, partition), paused in scopes.items():
            scope = pb.Scope(flow=rig.flow, source_topic=topic, partition=partition)
            await stub.PauseReplication(
                pb.PauseReplicationRequest(scope=scope, by="ann"), timeout=CALL_SECONDS
            )

            async def rests(paused: set[str] = paused) -> bool:
                return await states(rig, service) == expected(paused) == watched(known)

            await eventually(rests)
            assert {each.message.split(" since ")[0] for each in known.sorted() if each.message} == {"by ann"}
            before = await positions(rig, service)
            await one_record_each(rig)

            async def only_the_others_went_on(paused: set[str] = paused, before: Positions = before) -> bool:
                now = await positions(rig, service)
                return now == {name: at + (name not in paused) for name, at in before.items()}

            await eventually(only_the_others_went_on)
            await stub.ResumeReplication(
                pb.ResumeReplicationRequest(scope=scope, by="ann"), timeout=CALL_SECONDS
            )

            async def all_went_on(before: Positions = before) -> bool:
                assert await states(rig, service) == expected(()) == watched(known)
                return await positions(rig, service) == {name: at + 1 for name, at in before.items()}

            await eventually(all_went_on)
        await rig.same("one", PARTITIONS)
        await rig.same("other")
        await _all_pauses_end_at_once(rig, service)
        await _limits_are_listed_without_a_rate(rig, service)
        await _the_command_follows(rig, service)
        await _tokens_resume(rig, stub)


def _partitions() -> list[tuple[str, int]]:
    return [*(("one", number) for number in range(PARTITIONS)), ("other", 0)]


async def positions(rig: Rig, service: ServiceProcess) -> Positions:
    return {
        f"{each.source.topic}-{each.source.partition}": each.position
        for each in await rig.partitions(service)
    }


async def one_record_each(rig: Rig) -> None:
    async with producer(rig.source_servers, None, 16_384) as sender:
        for topic, partition in _partitions():
            await (await sender.send(topic, b"more", partition=partition))


def watched(known: KnownPartitions) -> dict[str, str]:
    return {
        f"{each.source.topic}-{each.source.partition}": pb.PartitionState.Name(each.state).removeprefix(
            "PARTITION_STATE_"
        )
        for each in known.sorted()
    }


@asynccontextmanager
async def followed(stub: SourceServiceStub, rig: Rig) -> AsyncIterator[KnownPartitions]:
    """What one watch has told so far."""
    known = KnownPartitions()

    async def follow() -> None:
        async for response in stub.WatchPartitions(pb.WatchPartitionsRequest(flow=rig.flow)):
            known.take(response)

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(), name="watch")
        yield known
        following.cancel()


async def _command(service: ServiceProcess, *words: str) -> list[dict[str, Any]]:
    """What a command says in JSON; it has to succeed."""
    said = await twinlog(*words, "-o", "json", "--endpoint", f"source={service.endpoint}")
    assert said.returncode == 0, words
    answer: list[dict[str, Any]] = json.loads(said.stdout)
    return answer


async def _all_pauses_end_at_once(rig: Rig, service: ServiceProcess) -> None:
    """`twinlog resume FLOW --all`, of a topic, a partition and the flow itself."""
    flow = f"{rig.a}->{rig.b}"
    for words in (["--topic", "other"], ["--topic", "one", "--partition", "1"], []):
        paused = await _command(service, "pause", flow, *words)
    assert len(paused) == 3
    assert len(await _command(service, "resume", flow)) == 2, "only the flow's own is ended without --all"

    async def rests() -> bool:
        return await states(rig, service) == expected({"one-1", "other-0"})

    await eventually(rests)
    assert await _command(service, "resume", flow, "--all") == []

    async def goes_on() -> bool:
        return await states(rig, service) == expected(())

    await eventually(goes_on)


async def _limits_are_listed_without_a_rate(rig: Rig, service: ServiceProcess) -> None:
    """`twinlog throttle` changes nothing unless it is given a rate."""
    flow = f"{rig.a}->{rig.b}"
    assert await _command(service, "throttle", flow) == []
    await _command(service, "throttle", flow, "20M", "--topic", "one")
    for words in ([], [flow], ["--flow", flow, "--topic", "one"]):
        (limit,) = await _command(service, "throttle", *words)
        assert (limit["topic"], limit["bytes_per_second"]) == ("one", 20_000_000)
    assert await _command(service, "throttle", flow, "--topic", "other") == []
    assert await _command(service, "throttle", flow, "none", "--topic", "one") == []


async def _the_command_follows(rig: Rig, service: ServiceProcess) -> None:
    """`twinlog partitions --watch -o json`: all partitions first, then what changes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "twinlog", "partitions", "--watch", "-o", "json"),
        *("--endpoint", f"source={service.endpoint}"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(CALL_SECONDS * 3):
            first = json.loads(await process.stdout.readline())
            assert [(each["topic"], each["partition"]) for each in first] == _partitions()
            await rig.produce("other", [b"more"])
            while True:
                changed = json.loads(await process.stdout.readline())
                if {each["topic"] for each in changed if each["lag_records"] == 0} == {"other"}:
                    break
    finally:
        process.kill()
        await process.wait()


async def _tokens_resume(rig: Rig, stub: SourceServiceStub) -> None:
    """From a list on, only what changed since; another process's token is refused."""
    listed = await stub.ListPartitions(pb.ListPartitionsRequest(flow=rig.flow), timeout=CALL_SECONDS)
    await rig.produce("other", [b"even more"])
    await rig.same("other")
    request = pb.WatchPartitionsRequest(flow=rig.flow, resume_token=listed.resume_token)
    watch = stub.WatchPartitions(request)
    async with asyncio.timeout(CALL_SECONDS):
        async for response in watch:
            assert response.WhichOneof("event") == "changes"
            if any(each.source.topic == "other" for each in response.changes.changed):
                break
    watch.cancel()
    foreign = bytearray(listed.resume_token)
    foreign[3] ^= 1
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in stub.WatchPartitions(pb.WatchPartitionsRequest(resume_token=bytes(foreign))):
            pass
    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
