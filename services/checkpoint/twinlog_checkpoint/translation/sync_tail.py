"""Follows a flow's offset syncs into the two stores that translation asks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import random

import structlog

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TwinlogError, WireFormatError, required
from twinlog.kafka.deadline import pause
from twinlog.kafka.ports import KafkaCluster, LogWriter, OffsetSpec
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import Flow, TopicPartition
from twinlog.offsets import OffsetSyncStore
from twinlog.service.runtime import Backoff, retrying_loop
from twinlog.service.waiting import wait_for_any
from twinlog.wire import OffsetSync, TopicIds, decode_offset_sync
from twinlog.wire.topic_ids import topic_ids_of
from twinlog_checkpoint.translation.history import OffsetPair, SyncHistory
from twinlog_checkpoint.translation.log_sides import LogScan
from twinlog_checkpoint.translation.sync_history_log import SavedHistory, SyncHistoryLog

FETCH_WAIT_SECONDS = 5.0
"""A broker answers as soon as there is a sync: this bounds how often an idle flow asks."""
SAME_TOPIC_SECONDS = 1.0
"""While syncs come, the topic's id is looked at so often at most."""
SAME_TOPIC_IDLE_SECONDS = 10.0
_TAKEN_AT_ONCE = 50

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class SyncTail:
    """The offset syncs of one flow: what was kept of them, then every one since.

    `store` holds what MM2 would know, `history` every pair. Nothing is translated before the first
    pass is done (`store.read_to_end`). When the topic is created again, both begin again: it is noticed by
    a position that the log does not have, or by the topic's id where the new log has grown past that. Also a
    process that stands by follows the syncs, so it is ready when it takes over.
    """

    flow: Flow
    cluster: KafkaCluster
    """The one that hosts the syncs, with a consumer's settings."""
    topic: str
    kept: SyncHistoryLog
    clock: Clock
    store: OffsetSyncStore = field(default_factory=lambda: OffsetSyncStore(must_read_to_end=False))
    history: SyncHistory = field(default_factory=SyncHistory)
    on_turn: Callable[[], None] = lambda: None
    """Told when the first pass is done."""
    ids_of: Callable[[str], TopicIds | None] = lambda _topic: None
    """Of a source topic and its copy now, for syncs that name none; None = not known."""
    may_be_absent: bool = False
    """Without the topic nothing has been copied yet. False for a flow of this process, which creates it."""
    is_wanted: asyncio.Event | None = None
    """Nothing is read before it is set; None = it is read at once."""
    blocker: TwinlogError | None = None
    """Why the topic cannot be read just now; None when it can."""
    _reading: bool = False
    """The position, and what is held, belong together."""
    _begun: bool = False
    """It was so at least once."""
    _topic_id: str = ""
    """Kafka's id of the topic that is read; "" where the broker has none."""
    _id_known_at: float = 0.0
    """When the topic was last seen to be that one; monotonic seconds."""
    _failed: bool = False
    """The last step: the topic may have been deleted meanwhile."""
    _first_offset: int = 0
    _through: int = 0
    """Every sync before this offset is in `history`."""
    _held_through: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions of which more was kept than where reading began: syncs before that are known."""

    def on_restored(self, *, checkpoints_restored: bool) -> None:
        """Hear whether the checkpoint guard could be restored, before the syncs are used.

        Without the guard syncs of earlier times must not be used (MM2's mustReadToEnd), because they may take
        a group back.
        """
        if not checkpoints_restored:
            self.store.distrust_history()

    async def keep(self, writer: LogWriter) -> None:
        """Keep what is known for the next start, when enough is new. For the flow's owner."""
        if not self.store.read_to_end or not self._topic_id:
            return
        if self.kept.is_due(through=self._through, first_offset=self._first_offset):
            await self.kept.save(writer, self.history, through=self._through, syncs_topic_id=self._topic_id)

    @property
    def position(self) -> int | None:
        """The next offset to read; None before the first pass is done."""
        return self._through if self.store.read_to_end else None

    @property
    def problem(self) -> str:
        """The blocker in words that name the topic; empty when there is none."""
        return "" if self.blocker is None else f"{self.topic} cannot be read: {self.blocker}"

    async def run(self, stop: asyncio.Event) -> None:
        if self.is_wanted is not None:
            await wait_for_any(stop, self.is_wanted)
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
                grace_seconds=0.0,
                # The source service makes the topic, and may start after this one.
                is_trouble=lambda error: self._begun or error.reason != KafkaReason.TOPIC_UNKNOWN,
            )

    async def _step(self, scan: LogScan) -> None:
        if scan.lost_position:
            self._reading = False
        if not self._reading:
            await self._begin(scan)
        if scan.first_pass_done and not self.store.read_to_end:
            self._finish_first_pass()
        position = scan.next_offset
        records = await scan.more(max_wait_seconds=FETCH_WAIT_SECONDS)
        try:
            is_another = await self._is_another_topic(seen_records=bool(records))
        except KafkaError:
            scan.next_offset = position
            raise
        if is_another:
            self._reading = False
            return
        self.blocker, self._failed = None, False
        # No pause until all are applied: `_through` may be asked for in every pause.
        for record in records:
            try:
                sync = decode_offset_sync(record.key, record.value)
            except WireFormatError as error:
                _log.warning(
                    "offset_sync_skipped", flow=str(self.flow), offset=record.offset, message=str(error)
                )
                continue
            if not self._held_through or record.offset >= self._held_through.get(sync.partition, 0):
                self.apply(sync, topic_ids_of(record.headers))
        self._through = scan.next_offset
        if scan.first_pass_done and not self.store.read_to_end:
            self._finish_first_pass()

    async def _is_another_topic(self, *, seen_records: bool) -> bool:
        """Whether the topic is not the one that reading began with. Asked before what was read is used, but
        not more often than is needed. Raises KafkaError."""
        now = self.clock.monotonic()
        seconds = SAME_TOPIC_SECONDS if seen_records else SAME_TOPIC_IDLE_SECONDS
        if not self._topic_id or not (self._failed or now - self._id_known_at >= seconds):
            return False
        described = required((await self.cluster.describe_topics([self.topic]))[self.topic])
        self._id_known_at = now
        return described.topic_id != self._topic_id

    async def _begin(self, scan: LogScan) -> None:
        # The id first: of a topic that is created again in between it is the former one's, and differs later.
        described = (await self.cluster.describe_topics([self.topic]))[self.topic]
        await scan.begin()
        topic_id = "" if isinstance(described, KafkaError) else described.topic_id
        self._id_known_at = self.clock.monotonic()
        kept = await self.kept.load(topic_id) if topic_id else None
        if kept is not None and not scan.next_offset <= kept.through <= scan.end_at_begin:
            _log.warning("sync_history_does_not_fit", flow=str(self.flow), topic=self.topic)
            kept = None
        if self._begun:
            # The guard has lived on in memory, so the new topic's history may be used at once.
            self.store = OffsetSyncStore(must_read_to_end=False)
            self.history = SyncHistory()
            self.kept.begin()
            _log.warning("offset_syncs_reread", flow=str(self.flow), topic=self.topic)
        self._topic_id, self._first_offset, self._held_through = topic_id, scan.next_offset, {}
        if kept is not None:
            await self._take(kept)
            scan.next_offset = kept.through
        self._through, self._begun, self._reading = scan.next_offset, True, True

    async def _take(self, kept: SavedHistory) -> None:
        """Begin with what was kept."""
        for number, record in enumerate(kept.records):
            self.history.restore(record.partition, record.condensed)
            for pair in record.condensed.pairs:
                if pair.upstream >= record.condensed.vouched_from:
                    self.store.apply(
                        OffsetSync(
                            partition=record.partition,
                            upstream_offset=pair.upstream,
                            downstream_offset=pair.downstream,
                        )
                    )
            if record.through > kept.through:
                self._held_through[record.partition] = record.through
            if number % _TAKEN_AT_ONCE == 0:
                await pause(0)
        _log.info(
            "sync_history_taken",
            flow=str(self.flow),
            topic=self.kept.topic,
            partitions=len(kept.records),
            through=kept.through,
        )

    def apply(self, sync: OffsetSync, topic_ids: TopicIds | None = None) -> None:
        """Take the next sync of the topic."""
        self.store.apply(sync)
        # What lies in the topic at the start may be of any.
        if topic_ids is None and self.store.read_to_end:
            topic_ids = self.ids_of(sync.partition.topic)
        pair = OffsetPair(sync.upstream_offset, sync.downstream_offset)
        self.history.on_sync(sync.partition, pair, topic_ids)

    def _finish_first_pass(self) -> None:
        self.store.finish_reading()
        self.on_turn()
        _log.info(
            "offset_syncs_read",
            flow=str(self.flow),
            topic=self.topic,
            partitions=len(self.history.partitions()),
        )

    def _on_error(self, error: TwinlogError) -> None:
        if self.may_be_absent and error.reason == KafkaReason.TOPIC_UNKNOWN:
            self.store.finish_reading()
        self.blocker, self._failed = error, True
