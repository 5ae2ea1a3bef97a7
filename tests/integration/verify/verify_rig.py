"""Mirrors made by hand, good ones and bad ones, and `twinlog verify` on them."""

import asyncio
import json
import re
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from integration.in_process import twinlog
from integration.source.source_rig import Rig
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.config import load
from twinlog.kafka.ports import NewTopic, TopicDescription
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import Flow, TopicPartition
from twinlog.testing.brokers import make_topics, write_batches
from twinlog.verify.page import report_schema
from twinlog.verify.report import document
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import CopyFact
from twinlog_source.verify.engine import Verification
from twinlog_source.verify.request import OnProgress, VerifyProgress, VerifyRequest

Batches = Sequence[tuple[int, Codec, Sequence[NewRecord]]]
COMMAND_SECONDS = 300


@dataclass(slots=True, kw_only=True)
class VerifyRig:
    rig: Rig
    a: BlockingCluster
    b: BlockingCluster

    async def positions_topic(self) -> None:
        await make_topics(
            self.rig.target,
            NewTopic(
                name=self.rig.positions_topic,
                partition_count=2,
                replication_factor=1,
                configs={"cleanup.policy": "compact"},
            ),
        )

    async def topics(self, topic: str, partitions: int = 1, **target_configs: str) -> None:
        """A source topic and its copy, both empty."""
        await self.rig.create(topic, partitions)
        configs = {name.replace("_", "."): value for name, value in target_configs.items()}
        await make_topics(
            self.rig.target,
            NewTopic(
                name=self.rig.remote(topic),
                partition_count=partitions,
                replication_factor=1,
                configs=configs,
            ),
        )

    async def write_source(self, topic: str, batches: Batches, **transaction: Any) -> None:
        await write_batches(self.a, topic, batches, **transaction)

    async def write_copy(self, topic: str, batches: Batches, **transaction: Any) -> None:
        await write_batches(self.b, self.rig.remote(topic), batches, **transaction)

    async def store_position(self, topic: str, offset: int, partition: int = 0) -> None:
        """Say that everything below an offset was copied."""
        await self.append(
            source_offset_key(self.rig.a, TopicPartition(topic, partition)), encode_source_offset(offset)
        )

    async def append(self, key: bytes, value: bytes | None) -> None:
        """A record of the positions topic."""
        async with self.rig.target.writer() as writer:
            await writer.append(TopicPartition(self.rig.positions_topic, 0), key=key, value=value)

    async def promise_offsets(self, topic: str) -> None:
        """Say that a copy is preserved from its beginning on."""
        copy = self.rig.remote(topic)
        found = (await self.rig.target.describe_topics([copy]))[copy]
        assert isinstance(found, TopicDescription), found
        for number in range(found.partition_count):
            fact = CopyFact(
                partition=TopicPartition(topic, number),
                preserved=True,
                since=0,
                reason="",
                target_topic_id=found.topic_id,
            )
            await self.append(*fact_record(self.rig.a, fact))

    def file(self, **more: str) -> Path:
        file = self.rig.directory / "mm2.properties"
        file.write_text(self.rig.properties(**more), encoding="latin-1")
        return file

    async def verify(
        self,
        *topics: str,
        properties: dict[str, str] | None = None,
        on_progress: OnProgress = lambda _: None,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        **request: Any,
    ) -> Any:
        """The report of a verification in this process; `meanwhile` is done once it has begun to read."""
        begun = asyncio.Event()

        def note(progress: VerifyProgress) -> None:
            begun.set()
            on_progress(progress)

        async def change() -> None:
            await begun.wait()
            if meanwhile is not None:
                await meanwhile()

        configuration = load(self.file(**(properties or {})), environ={})
        settings = {"wait_seconds": 0.5, "patience_seconds": 10.0, **request}
        verification = Verification(
            configuration=configuration,
            request=VerifyRequest(flow=Flow(self.rig.a, self.rig.b), topics=frozenset(topics), **settings),
            clock=SystemClock(),
            on_progress=note,
        )
        async with asyncio.TaskGroup() as group:
            run = group.create_task(verification.run(), name="verification")
            changing = group.create_task(change(), name="meanwhile")
            await run
            if meanwhile is None:
                changing.cancel()
        return validated(document(run.result()))

    async def command(self, *arguments: str, name: str = "verify") -> tuple[int, Any]:
        """The exit code and the JSON of the command."""
        flow = f"{self.rig.a}->{self.rig.b}"
        words = [name, flow, "--config", str(self.file()), "-o", "json", *arguments]
        exit_code, told = answered(await twinlog(*words))
        return exit_code, validated(told) if name == "verify" and exit_code != 2 else told


def validated(report: Any) -> Any:
    """The report, which must be as its schema says."""
    jsonschema.validate(report, report_schema())
    return report


def answered(answer: "subprocess.CompletedProcess[str]") -> tuple[int, Any]:
    """The exit code and the JSON of a command. Libraries may write warnings to stderr; a refusal (2) is
    behind them. Spark's own daemon shows where a worker was whose answer nobody waited for any more."""
    ours = re.sub(r"PySpark daemon failed to flush [\s\S]*?BrokenPipeError.*\n", "", answer.stderr)
    assert "Traceback" not in ours, answer
    if answer.returncode == 2 and not answer.stdout:
        return 2, json.JSONDecoder().raw_decode(answer.stderr[answer.stderr.index("{") :])[0]
    try:
        return answer.returncode, json.loads(answer.stdout)
    except json.JSONDecodeError:
        raise AssertionError(f"no JSON: {answer}") from None


def differences(report: Any) -> list[tuple[str, int | None, int | None, int]]:
    return [
        (each["kind"], each["source_offset"], each["target_offset"], each["count"])
        for each in report["differences"]
    ]


def not_compared(report: Any) -> list[tuple[str, str, int | None, int | None]]:
    return [
        (each["side"], each["reason"], each["from_offset"], each["to_offset"])
        for each in report["not_compared"]
    ]
