"""The partitions of all flows for WatchPartitions: compared once a second while there are watchers."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping

from opentelemetry.metrics import Meter

from twinlog.api.source.v1 import source_service_pb2 as pb
from twinlog.clock import Clock
from twinlog.model import Flow, TopicPartition
from twinlog.service.api_values import timestamp
from twinlog.service.feeds.server import Changed, Event, Progress, Removed, ResumableRegistry, SnapshotItem
from twinlog.service.waiting import wait_or_stop
from twinlog.verify.standing import ProofStanding
from twinlog_source.api.messages import partition_status, retry_ms
from twinlog_source.driver.flow_driver import FlowDriver
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.partitions.standing import FlowFacts, PartitionStanding, standing_of

LOOK_SECONDS = 1.0
HISTORY_SIZE = 20_000
SNAPSHOT_PART = 1000
"""Partitions in one message; far below gRPC's limit."""

Key = tuple[Flow, TopicPartition]
Shape = tuple[object, ...]


class PartitionBoard:
    """The state behind WatchPartitions. Use it from one event loop only.

    Without watchers it does nothing. The next comparison finds what has changed meanwhile, so resume tokens
    stay valid.
    """

    def __init__(
        self, drivers: Mapping[Flow, FlowDriver], *, history_id: str, meter: Meter, clock: Clock
    ) -> None:
        self._drivers = drivers
        self._shapes: dict[Key, Shape] = {}
        """How each partition was last sent."""
        self._clock = clock
        self._registry: ResumableRegistry[Key, pb.PartitionStatus] = ResumableRegistry(
            history_id=history_id,
            meter=meter,
            rpc_method="twinlog.api.source.v1.SourceService/WatchPartitions",
            history_size=HISTORY_SIZE,
            conflate=True,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Loop: send changes to watchers until `stop`."""
        while not await wait_or_stop(stop, LOOK_SECONDS):
            if self._registry.watchers:
                self.look()

    def look(self) -> bytes:
        """Update the board, and return the token of this moment."""
        gone = dict(self._shapes)
        for flow, driver in self._drivers.items():
            facts = driver.facts()
            for partition, row in driver.state.table.rows.items():
                key = (flow, partition)
                standing = standing_of(row, facts)
                shape = _shape(row, standing, facts, driver.state.table.proofs.get(partition))
                if gone.pop(key, None) != shape:
                    self._shapes[key] = shape
                    self._registry.put(key, partition_status(driver, row, standing, facts))
        for key in gone:
            del self._shapes[key]
            self._registry.remove(key)
        return self._registry.token

    async def watch(
        self, token: bytes, *, stop: asyncio.Event, flow: Flow | None, topic: str
    ) -> AsyncGenerator[pb.WatchPartitionsResponse, None]:
        """Yield the messages of one watcher: the snapshot, then at most one a second.

        Raises ResumeTokenExpiredError, ExhaustedError, ConfigError.
        """
        self.look()
        batches = self._registry.watch_batches(
            token,
            stop=stop,
            selects=lambda key: flow in (None, key[0]) and topic in ("", key[1].topic),
            pause_seconds=LOOK_SECONDS,
        )
        try:
            async for batch in batches:
                for message in self._messages(batch):
                    yield message
        finally:
            await batches.aclose()

    def _messages(self, batch: list[Event[Key, pb.PartitionStatus]]) -> Iterable[pb.WatchPartitionsResponse]:
        last = batch[-1]
        if isinstance(last, Progress):
            progress = pb.WatchPartitionsResponse(resume_token=last.token)
            progress.progress.as_of.CopyFrom(timestamp(self._clock.now_ms()))
            yield progress
            return
        changed = [event.item for event in batch if isinstance(event, Changed)]
        removed = [event.item for event in batch if isinstance(event, Removed)]
        if changed or removed:
            changes = pb.PartitionChanges(changed=changed, removed=removed)
            yield pb.WatchPartitionsResponse(resume_token=last.token, changes=changes)
            return
        items = [event.item for event in batch if isinstance(event, SnapshotItem)]
        for first in range(0, len(items), SNAPSHOT_PART):
            part = pb.PartitionStatuses(partitions=items[first : first + SNAPSHOT_PART])
            yield pb.WatchPartitionsResponse(snapshot_items=part)
        yield pb.WatchPartitionsResponse(resume_token=last.token, snapshot_end=pb.PartitionsSnapshotEnd())


def _shape(
    row: PartitionRow, standing: PartitionStanding, facts: FlowFacts, proof: ProofStanding | None
) -> Shape:
    """The fields whose change is sent. Times of observation, and fields that grow with the clock, are left
    out."""
    report = row.report
    return (
        row.target_topic,
        standing.state,
        standing.reason,
        standing.message,
        standing.lag_records,
        standing.lag_seconds is None,
        row.position,
        row.end,
        row.slot,
        row.records.shown(facts.now),
        row.bytes.shown(facts.now),
        None if row.blocker is not None else retry_ms(row, facts),
        None if report is None else (report.lane, (report.replication_latency_ns or 0) // 1_000_000),
        None if proof is None else (proof.verdict, proof.proven_until, *proof.differences.items()),
        row.foreign_records,
    )
