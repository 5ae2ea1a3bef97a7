"""The data of the live view: partitions from source, delay from heartbeat, both over gRPC like the CLI."""

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as checkpoint_pb
from twinlog.api.checkpoint.v1 import checkpoint_service_pb2_grpc as checkpoint_grpc
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2 as heartbeat_pb
from twinlog.api.heartbeat.v1 import heartbeat_service_pb2_grpc as heartbeat_grpc
from twinlog.api.source.v1 import source_service_pb2 as source_pb
from twinlog.api.source.v1 import source_service_pb2_grpc as source_grpc
from twinlog.demo.screen import TopicRow
from twinlog.local.processes.process import GuardedProcess
from twinlog.model import TopicPartition
from twinlog.service.waiting import wait_or_stop

# The live page of the demo: `twinlog ui` as a separate process.

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.1
_READY = "ready: "


@asynccontextmanager
async def live_page(file: Path, directory: Path) -> AsyncIterator[str]:
    """A line with the page's address, or why there is none. The demo continues without it."""
    log = directory / "ui.log"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "twinlog",
        "ui",
        "--config",
        file,
        "--listen",
        "127.0.0.1:0",
    ]
    process = GuardedProcess(command, output=log)
    try:
        url = await _address(process, log)
        if url is None:
            yield f"the live page did not start: {_told(log).strip() or 'it said nothing'}"
        else:
            if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
                await asyncio.to_thread(webbrowser.open, url)
            yield f"live page: {url}"
    finally:
        await asyncio.to_thread(process.stop, STOP_SECONDS)


def _told(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


async def _address(process: GuardedProcess, log: Path) -> str | None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + START_SECONDS
    never = asyncio.Event()
    while process.running and loop.time() < give_up_at:
        lines = _told(log).splitlines(keepends=True)
        line = next((each for each in lines if each.startswith(_READY)), "")
        if line.endswith("\n"):
            return line.removeprefix(_READY).strip()
        await wait_or_stop(never, _POLL_SECONDS)
    return None


CALL_TIMEOUT_SECONDS = 5.0
_OF_THE_RECORD = (checkpoint_pb.VERDICT_PRESERVED, checkpoint_pb.VERDICT_EXACT)


class Watching:
    """Asks the services of a running Twinlog. Raises grpc.aio.AioRpcError when one does not answer."""

    def __init__(
        self, source: grpc.aio.Channel, heartbeat: grpc.aio.Channel, checkpoint: grpc.aio.Channel
    ) -> None:
        self._source = source_grpc.SourceServiceStub(source)
        self._checkpoint = checkpoint_grpc.CheckpointServiceStub(checkpoint)
        self._heartbeat = heartbeat_grpc.HeartbeatServiceStub(heartbeat)

    async def partitions(self) -> list[source_pb.PartitionStatus]:
        answer = await self._source.ListPartitions(
            source_pb.ListPartitionsRequest(page_size=10_000), timeout=CALL_TIMEOUT_SECONDS
        )
        return list(answer.partitions)

    async def topics(self) -> list[TopicRow]:
        """One row per replicated topic, without heartbeats."""
        by_topic: dict[str, list[source_pb.PartitionStatus]] = {}
        for partition in await self.partitions():
            if not partition.source.topic.endswith("heartbeats"):
                by_topic.setdefault(partition.source.topic, []).append(partition)
        return [_row(topic, partitions) for topic, partitions in sorted(by_topic.items())]

    async def group_is_settled(
        self, group: str, on_source: Mapping[TopicPartition, int], *, copied_at_ms: int
    ) -> bool:
        """Whether the group's offsets on the target are those of exactly these offsets on the source.
        `copied_at_ms`: since when everything is on the target."""
        answer = await self._checkpoint.ListGroups(
            checkpoint_pb.ListGroupsRequest(group=group), timeout=CALL_TIMEOUT_SECONDS
        )
        settled = {
            TopicPartition(row.source.topic, row.source.partition): row.upstream_offset
            for row in answer.groups
            if is_settled(row, copied_at_ms=copied_at_ms)
        }
        return settled == dict(on_source)

    async def delay_seconds(self) -> float | None:
        """End to end, of the last heartbeat; None before the first one arrived."""
        answer = await self._heartbeat.ListDelays(
            heartbeat_pb.ListDelaysRequest(), timeout=CALL_TIMEOUT_SECONDS
        )
        for delay in answer.delays:
            if (delay.flow.source, delay.flow.target) == ("A", "B") and delay.HasField("last_delay"):
                return delay.last_delay.ToTimedelta().total_seconds()
        return None


def is_settled(row: checkpoint_pb.GroupPartition, *, copied_at_ms: int) -> bool:
    """Whether the offset on the target is final. A group that is ahead of the copy is at the end of the copy
    so far (UP_TO_DATE): where it continues is known once its record is copied. Pure."""
    if not row.committed_on_target or row.as_of.ToMilliseconds() <= copied_at_ms:
        return False
    at_the_end = row.verdict == checkpoint_pb.VERDICT_UP_TO_DATE and row.HasField("source_lag")
    return row.verdict in _OF_THE_RECORD or (at_the_end and not row.source_lag)


def _row(topic: str, partitions: list[source_pb.PartitionStatus]) -> TopicRow:
    states = {source_pb.PartitionState.Name(p.state).removeprefix("PARTITION_STATE_") for p in partitions}
    return TopicRow(
        source_topic=topic,
        target_topic=partitions[0].target_topic,
        partitions=len(partitions),
        records=sum(max(p.position, 0) for p in partitions),
        records_per_second=sum(p.records_per_second for p in partitions),
        megabytes_per_second=sum(p.bytes_per_second for p in partitions) / 1e6,
        lag_records=sum(p.lag_records for p in partitions)
        if all(p.HasField("lag_records") for p in partitions)
        else None,
        state=states.pop() if len(states) == 1 else "MIXED",
    )
