"""Follows a flow's offset syncs into the two stores that translation asks."""

import asyncio
from dataclasses import dataclass, field
from random import random

import structlog

from twinlog.clock import Clock
from twinlog.errors import TwinlogError, WireFormatError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.model import Flow
from twinlog.offsets import OffsetSyncStore
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.wire import OffsetSync, decode_offset_sync
from twinlog_checkpoint.history import OffsetPair, SyncHistory
from twinlog_checkpoint.log_scan import LogScan

FETCH_WAIT_SECONDS = 0.5

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class SyncTail:
    """The offset syncs of one flow, from the first one there is.

    Read by the flow's owner and by those that stand by, who take over without reading it all. `store` holds
    what MM2 would know (§6.3), `history` every pair. Nothing is translated before the first pass is done
    (`store.read_to_end`). When the topic is created again, both begin again.
    """

    flow: Flow
    cluster: KafkaCluster
    """The one that hosts the syncs, with a consumer's settings."""
    topic: str
    clock: Clock
    store: OffsetSyncStore = field(default_factory=lambda: OffsetSyncStore(must_read_to_end=False))
    history: SyncHistory = field(default_factory=SyncHistory)
    obstacle: TwinlogError | None = None
    """Why the topic cannot be read just now; None when it can."""
    _begun: bool = False

    def on_restored(self, *, checkpoints_restored: bool) -> None:
        """Hear whether the checkpoint guard could be restored, before the syncs are used.

        Without the guard syncs of earlier times must not be used (MM2's mustReadToEnd), because they may take
        a group back.
        """
        if not checkpoints_restored:
            self.store.distrust_history()

    @property
    def problem(self) -> str:
        """The obstacle in words that name the topic; empty when there is none."""
        return "" if self.obstacle is None else f"{self.topic} cannot be read: {self.obstacle}"

    async def run(self, stop: asyncio.Event) -> None:
        async with self.cluster.reader(read_committed=False) as reader:
            scan = LogScan(admin=self.cluster, reader=reader, topic=self.topic, end=OffsetSpec.LATEST)
            await retrying_loop(
                f"offset syncs {self.flow}",
                lambda: self._step(scan),
                stop=stop,
                interval_seconds=0.0,
                backoff=Backoff(initial_seconds=0.2, max_seconds=5.0, random=random),
                clock=self.clock,
                on_error=self._on_error,
            )

    async def _step(self, scan: LogScan) -> None:
        if not self._begun or scan.lost_position:
            await self._begin(scan)
        if scan.first_pass_done and not self.store.read_to_end:
            self._finish_first_pass()
        records = await scan.more(max_wait_seconds=FETCH_WAIT_SECONDS)
        self.obstacle = None
        for record in records:
            try:
                self.apply(decode_offset_sync(record.key, record.value))
            except WireFormatError as error:
                _log.warning(
                    "offset_sync_skipped", flow=str(self.flow), offset=record.offset, message=str(error)
                )
        if scan.first_pass_done and not self.store.read_to_end:
            self._finish_first_pass()

    async def _begin(self, scan: LogScan) -> None:
        await scan.begin()
        if self._begun:
            # The guard has lived on in memory, so the new topic's history may be used at once.
            self.store = OffsetSyncStore(must_read_to_end=False)
            self.history = SyncHistory()
            _log.warning("offset_syncs_read_anew", flow=str(self.flow), topic=self.topic)
        self._begun = True

    def apply(self, sync: OffsetSync) -> None:
        """Take the next sync of the topic."""
        self.store.apply(sync)
        self.history.on_sync(sync.partition, OffsetPair(sync.upstream_offset, sync.downstream_offset))

    def _finish_first_pass(self) -> None:
        self.store.finish_reading()
        _log.info(
            "offset_syncs_read",
            flow=str(self.flow),
            topic=self.topic,
            partitions=len(self.history.partitions()),
        )

    def _on_error(self, error: TwinlogError) -> None:
        self.obstacle = error
