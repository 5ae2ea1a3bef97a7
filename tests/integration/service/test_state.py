"""`twinlog state export|import` on real brokers: internal topics are lost, and the flow continues exactly."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from integration.source.source_rig import Rig, open_rig
from twinlog.errors import KafkaError
from twinlog.kafka.ports import NewTopic, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import KafkaPair, eventually, make_topics, retry_admin, unique_name
from twinlog.wire import Checkpoint, encode_checkpoint

COMMAND_SECONDS = 300


@pytest.fixture
async def rig(kafka_pair: KafkaPair, tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(kafka_pair.a, kafka_pair.b, tmp_path) as opened:
        yield opened


async def command(rig: Rig, verb: str, *arguments: str) -> tuple[int, Any]:
    """Exit code, and the JSON that was printed; of a failure the document on stderr."""
    file = rig.directory / "mm2.properties"
    file.write_text(rig.properties(), encoding="latin-1")
    words = ["twinlog", "state", verb, f"{rig.a}->{rig.b}", str(rig.directory / "state.jsonl")]
    answer = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", *words, "--config", str(file), "-o", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    told = answer.stdout or answer.stderr[answer.stderr.index("{") :]
    return answer.returncode, json.JSONDecoder().raw_decode(told)[0]


async def internal_topics(rig: Rig) -> list[str]:
    mine = (f".{rig.a}.internal", f"{rig.a}.checkpoints.internal")
    return [topic for topic in await rig.target.list_topics() if topic.endswith(mine)]


async def lose_the_internal_topics(rig: Rig) -> None:
    lost = await internal_topics(rig)
    assert rig.positions_topic in lost
    await retry_admin(lambda: rig.target.delete_topics(lost))

    async def gone() -> bool:
        described = await rig.target.describe_topics(lost)
        return all(isinstance(found, KafkaError) for found in described.values())

    await eventually(gone)


async def imported(rig: Rig, *arguments: str) -> dict[tuple[str, int], tuple[str, int | None]]:
    """Outcome and position of each partition, once no process counts as a member of the flow any more."""

    async def restored() -> Any:
        exit_code, told = await command(rig, "import", *arguments)
        assert told.get("reason") != "FLOW_RUNS", told
        return exit_code, told

    exit_code, told = await eventually(restored)
    if exit_code:
        raise ValueError(told)
    return {
        (each["topic"], each["partition"]): (each["outcome"], each["position"]) for each in told["partitions"]
    }


async def run_until_same(rig: Rig, topic: str, partitions: int) -> None:
    async with rig.configsync() as configsync, rig.running(configsync):
        await rig.same(topic, partitions)


@pytest.mark.parametrize("offsets", ["translated", "auto"])
async def test_a_flow_that_lost_its_state_continues_exactly_from_an_old_backup(
    rig: Rig, offsets: str
) -> None:
    topic = unique_name("orders")
    rig.extra |= {"topics": topic, "twinlog.offsets": offsets, "checkpoints.topic.replication.factor": "1"}
    await rig.create(topic, 3)
    for number in range(2):
        await rig.produce(topic, [b"first %d" % n for n in range(50)], partition=number)
    checkpoints = f"{rig.a}.checkpoints.internal"
    await make_topics(
        rig.target,
        NewTopic(
            name=checkpoints, partition_count=1, replication_factor=1, configs={"cleanup.policy": "compact"}
        ),
    )
    checkpoint = Checkpoint(
        group="g",
        partition=TopicPartition(rig.remote(topic), 0),
        upstream_offset=7,
        downstream_offset=7,
        metadata="",
    )
    key, value = encode_checkpoint(checkpoint)
    async with rig.target.writer() as writer:
        await writer.append(TopicPartition(checkpoints, 0), key=key, value=value)
    await run_until_same(rig, topic, 2)

    async def exact() -> bool:
        exit_code, told = await command(rig, "export")
        assert exit_code == 0, told
        assert told["partitions"] == told["exact_partitions"] >= 2, told
        return True

    await eventually(exact)

    # The backup is of yesterday: one partition was copied further since, and one began.
    await rig.produce(topic, [b"second %d" % n for n in range(50)], partition=1)
    await rig.produce(topic, [b"third %d" % n for n in range(50)], partition=2)
    async with rig.configsync() as configsync, rig.running(configsync):
        await rig.same(topic, 3)
        exit_code, told = await command(rig, "import", "--dry-run")
        assert (exit_code, told["reason"]) == (1, "FLOW_RUNS")
    await lose_the_internal_topics(rig)

    planned = await imported(rig, "--dry-run")
    assert rig.positions_topic not in await internal_topics(rig), "a dry run changed something"
    done = await imported(rig, "--yes")
    assert done == planned
    assert done[topic, 0] == ("AS_EXPORTED", 50)
    assert done[topic, 1] == ("DERIVED", 100)
    assert done[topic, 2] == ("DERIVED", 50)
    exit_code, told = await command(rig, "import", "--yes")
    assert (exit_code, told["reason"]) == (1, "STATE_PRESENT")

    for number in range(3):
        await rig.produce(topic, [b"fourth %d" % n for n in range(50)], partition=number)
    await run_until_same(rig, topic, 3)
    for number in range(3):
        assert await rig.target_content(topic, number) == await rig.source_content(topic, number)
    assert checkpoints in await internal_topics(rig)
    last = await rig.target.list_offsets(
        OffsetSpec.LATEST,
        [TopicPartition(checkpoints, 0)],
    )
    assert list(last.values()) == [1]
