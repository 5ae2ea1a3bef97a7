"""A verification on Spark: large partitions are split where both logs have the same records, and each part is
a task."""

import asyncio
import contextlib
import functools
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinlog.config.runtime_settings import SparkSettings
from twinlog.errors import TwinlogError
from twinlog.kafka.ports import KafkaCluster
from twinlog.machine.java import spark_environment
from twinlog.model import TopicPartition
from twinlog.verify.comparing.sides import Read, Steps, Window
from twinlog.verify.model import Bounds, PartitionProof, Side
from twinlog.verify.ranges import joined, parts, split_offsets
from twinlog_source.pipeline.session import (
    SPARK_FAILURES,
    SparkUnavailableError,
    close_context,
    is_local,
    local_cores,
    open_context,
)
from twinlog_source.pipeline.verify_job import run_verification
from twinlog_source.verify.gathering.flow import GatheredFlow
from twinlog_source.verify.progress import ProgressBoard
from twinlog_source.verify.proving.desk import Desk
from twinlog_source.verify.proving.locating import HEAD, Locator
from twinlog_source.verify.proving.partition_log import PartitionLog
from twinlog_source.verify.proving.reading import Sides
from twinlog_source.verify.proving.spark_task import PartSpec, prove_part
from twinlog_source.verify.proving.waiting import Waiting, offset_for_time
from twinlog_source.verify.request import VerifyRequest
from twinlog_source.verify.state import ProvenRanges

_PARALLELISM_OF_A_CLUSTER = 8
"""The number of tasks that share a limit of bytes per second, if Spark does not tell its number of cores."""


@dataclass(slots=True, kw_only=True)
class OnSpark:
    gathered: GatheredFlow
    request: VerifyRequest
    sides: Sides
    waiting: Waiting
    state: ProvenRanges
    progress: ProgressBoard
    spark: SparkSettings
    master: str
    _parts: list[Bounds] = field(default_factory=list)
    _has_rows: bool = False
    """The directory already has rows of this verification."""

    async def prove_all(self, bounds: Sequence[Bounds]) -> list[PartitionProof]:
        """Raises SparkUnavailableError."""
        cut = {each.source: parts(each, await self._cuts(each)) for each in bounds}
        found = await self._prove_parts([part for of_partition in cut.values() for part in of_partition])
        different = [
            each
            for each in bounds
            if len(cut[each.source]) > 1 and any(proof.differences for proof in found[each.source])
        ]
        # Only a comparison of the whole partition can name records that moved from one part to another.
        found |= await self._prove_parts(different)
        proofs = [each[0] if len(each) == 1 else joined(each) for each in found.values()]
        for proof in proofs:
            self.gathered.say_what_is_hidden(proof)
        return proofs

    async def _prove_parts(self, asked: Sequence[Bounds]) -> dict[TopicPartition, list[PartitionProof]]:
        """By source partition; parts that were proven before are not compared again."""
        kept = [self.state.kept_part(part) for part in asked]
        self._parts = [part for part, proof in zip(asked, kept, strict=True) if proof is None]
        self.progress.begin(self._parts)
        proofs = [proof for proof in kept if proof is not None]
        wants_rows = self.request.parquet_directory is not None and not self._has_rows
        if self._parts or (proofs and wants_rows):
            proofs += await self._on_spark(proofs)
        by_partition: dict[TopicPartition, list[PartitionProof]] = {}
        for proof in proofs:
            by_partition.setdefault(proof.source, []).append(proof)
        return by_partition

    async def _on_spark(self, kept: Sequence[PartitionProof]) -> list[PartitionProof]:
        handlers = {
            "settings": self._settings,
            "extend": self._extend,
            "ends": self._ends,
            "time": self._time,
            "progress": self._note,
            "proven": self._proven,
        }
        async with Desk(host=self._host(), handlers=handlers) as desk:
            specs = [
                PartSpec(number=number, bounds=part, endpoint=desk.endpoint, token=desk.token)
                for number, part in enumerate(self._parts)
            ]
            return await asyncio.to_thread(self._run_job, specs, kept)

    def _run_job(self, specs: Sequence[PartSpec], kept: Sequence[PartitionProof]) -> list[PartitionProof]:
        """`kept` was proven by an earlier run, and gets rows as well."""
        directory = self.request.parquet_directory
        parquet = None if directory is None else Path(directory).resolve().as_uri()
        context, _ = open_context(
            app_name="twinlog-verify",
            master=self.master,
            threads=local_cores(self.master) or 1,
            extra={**self.spark.conf, "spark.task.maxFailures": "8"},
            environment=spark_environment(os.environ),
            with_sql=True,
        )
        try:
            mode = "append" if self._has_rows else "overwrite"
            proofs, _reduced = run_verification(context, specs, prove_part, kept, parquet=parquet, mode=mode)
            self._has_rows = True
        except SPARK_FAILURES as error:
            raise SparkUnavailableError(f"Spark ({self.master}) failed: {type(error).__name__}") from error
        finally:
            close_context(context)
        return proofs

    def _host(self) -> str:
        """The host at which tasks find this process."""
        if is_local(self.master):
            return "127.0.0.1"
        named = self.spark.conf.get("spark.driver.host")
        if named is None and self.spark.worker_endpoint is not None:
            named = self.spark.worker_endpoint.host
        return named or socket.gethostname()

    async def _cuts(self, bounds: Bounds) -> list[tuple[int, int]]:
        """Places at which both logs have the same records, in order. A place that is not found is left out,
        and so is what follows a place that cannot be read: the task that reaches it reports the error."""
        cuts: list[tuple[int, int]] = []
        offsets = split_offsets(bounds, self.request.part_offsets)
        if not offsets:
            return cuts
        async with asyncio.TaskGroup() as group:
            logs = {
                side: self.sides.log(side, partition, self.request.patience_seconds, group)
                for side, partition in ((Side.SOURCE, bounds.source), (Side.TARGET, bounds.target))
            }
            for log in logs.values():
                log.is_ahead = False
            locator = Locator(drive=functools.partial(_drive, logs))
            look_up = offset_for_time(self.gathered.target.offsets_for_times, bounds.target)
            target_start = bounds.target_start
            with contextlib.suppress(TwinlogError):
                for offset in offsets:
                    head = Window(side=Side.SOURCE, next_offset=offset, limit=bounds.source_goal)
                    await _drive(logs, head.grow(HEAD))
                    place = await locator.find(
                        head, Side.TARGET, look_up=look_up, start=target_start, limit=bounds.target_limit
                    )
                    if place is not None and place > target_start:
                        cuts.append((head.entries[0].offset, place))
                        target_start = place
        return cuts

    async def _settings(self, _: dict[str, Any]) -> Any:
        clients = self.gathered.flow.clients
        cores = local_cores(self.master) or _PARALLELISM_OF_A_CLUSTER
        limit = self.request.max_bytes_per_second
        return {
            "source_alias": clients.source_consumer.alias,
            "source": dict(clients.source_consumer.properties),
            "target_alias": clients.target_consumer.alias,
            "target": dict(clients.target_consumer.properties),
            "read_committed": self.gathered.read_committed,
            "policy_config": dict(self.gathered.flow.policy_config),
            "max_bytes_per_second": max(1, limit // min(cores, len(self._parts))) if limit else 0,
            "patience_seconds": self.request.patience_seconds,
            "max_open_bytes": self.gathered.flow.source.max_uncompressed_bytes,
        }

    async def _extend(self, asked: dict[str, Any]) -> Any:
        partition = TopicPartition(asked["topic"], asked["partition"])
        extended = await self.waiting.extend_soon(partition, at=asked["at"], limit=asked["limit"])
        if extended is None:
            return None
        return {"limit": extended.target_limit, "position": extended.position}

    async def _ends(self, asked: dict[str, Any]) -> Any:
        return asdict(await self.gathered.ends_now(TopicPartition(asked["topic"], asked["partition"])))

    async def _time(self, asked: dict[str, Any]) -> Any:
        cluster: KafkaCluster = self.gathered.source if asked["side"] == Side.SOURCE else self.gathered.target
        partition = TopicPartition(asked["topic"], asked["partition"])
        return await offset_for_time(cluster.offsets_for_times, partition)(asked["timestamp_ms"])

    async def _note(self, asked: dict[str, Any]) -> Any:
        self.progress.note(asked["number"], asked["offsets"], asked["bytes"])

    async def _proven(self, asked: dict[str, Any]) -> Any:
        """A part is equal: keep that before the others have ended."""
        part = self._parts[asked["number"]]
        self.progress.note(asked["number"], part.source_goal - part.source_start, asked["bytes"])
        self.state.keep_part(
            part,
            records=asked["records"],
            unopened_records=asked["unopened_records"],
            same_offsets=asked["same_offsets"],
            source_hash=asked["source_hash"],
            target_hash=asked["target_hash"],
        )


async def _drive(logs: dict[Side, PartitionLog], steps: Steps[Any]) -> Any:
    answer: Any = None
    try:
        while True:
            asked = steps.send(answer)
            assert isinstance(asked, Read)
            answer = await logs[asked.side].read(asked.offset, limit=asked.offset)
    except StopIteration as end:
        return end.value
