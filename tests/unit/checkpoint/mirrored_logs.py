"""A source log, a mirror of it with everything that mirrors do to logs, and what is true of both."""

import random
from dataclasses import dataclass, field, replace
from typing import Any, Self

from twinlog.batches import EndMarker
from twinlog.model import Record, TopicPartition
from twinlog.offsets import OffsetSyncStore
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.wire import OffsetSync
from twinlog_checkpoint.translation.history import OffsetPair, SyncHistory

ORIGIN = TopicPartition("orders", 0)
COPY = TopicPartition("A.orders", 0)


@dataclass(slots=True, kw_only=True)
class MirroredLogs:
    """Records carry their name (a number) in the value, so that tests know which record is where."""

    seed: int
    offset_lag_max: int = 20
    exactly_once: bool = True
    source: FakeCluster = field(default_factory=lambda: FakeCluster("A"))
    target: FakeCluster = field(default_factory=lambda: FakeCluster("B"))
    history: SyncHistory = field(default_factory=SyncHistory)
    store: OffsetSyncStore = field(default_factory=lambda: OffsetSyncStore(must_read_to_end=False))
    keys: int = 400
    value_bytes: int = 1
    """At least: names are padded."""
    lost_syncs: float = 0.0
    """Share of offset syncs that never arrive; those of a new task do, unless it is 1."""
    is_changed: bool = False
    """Every third record is dropped; the others name their origin on the target."""
    rng: random.Random = field(init=False)
    next_name: int = 0
    copied_to: int = 0
    retired: list[Record] = field(default_factory=list)
    """Visible records that retention has taken from the source: a group before them has not read them."""
    _last_synced_downstream: int = -1
    _last_copied: OffsetPair | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        if ORIGIN.topic not in self.source.topics:
            self.source.add_topic(ORIGIN.topic)
        self.target.add_topic(COPY.topic)
        self.store.finish_reading()

    @classmethod
    def copied(cls, count: int, **settings: Any) -> Self:
        """With so many records, all of which are copied."""
        logs = cls(**settings)
        logs.produce(count)
        logs.copy()
        return logs

    # ------------------------------------------------------------------------------------------ what happens

    def produce(self, count: int) -> None:
        """Records on the source: plain ones, transactions, aborted transactions; few keys, repeating
        timestamps."""
        while count > 0:
            size = min(count, self.rng.randint(1, 12))
            count -= size
            records = [self._record() for _ in range(size)]
            kind = self.rng.random()
            if kind < 0.5:
                self.source.append(ORIGIN, *records)
            else:
                outcome = EndMarker.COMMIT if kind < 0.8 else EndMarker.ABORT
                self.source.append_transaction(ORIGIN, records, outcome)

    def copy(self, most: int | None = None) -> None:
        """Mirror what is visible and not copied yet, in batches, with MM2's offset syncs."""
        pending = [record for record in self.visible_source() if record.offset >= self.copied_to]
        pending = pending[:most] if most is not None else pending
        if self.is_changed:
            pending = [_named(record) for record in pending if int(record.value or b"") % 3]
        while pending:
            size = self.rng.randint(1, 15)
            batch, pending = pending[:size], pending[size:]
            if self.exactly_once and self.rng.random() < 0.1:
                self.target.append_transaction(COPY, batch, EndMarker.ABORT)
            start = self.target.log(COPY).end_offset
            if self.exactly_once:
                self.target.append_transaction(COPY, batch, EndMarker.COMMIT)
            else:
                self.target.append(COPY, *batch)
            for index, record in enumerate(batch):
                self._sync(record.offset, start + index)
            self.copied_to = batch[-1].offset + 1

    def rest(self) -> None:
        """The mirror has nothing to do: MM2 sends the sync that it has held back."""
        if self._last_copied is not None:
            self.send(self._last_copied)

    def lose_tail(self, share: float) -> None:
        """The copy loses its last records; the mirror continues at its position."""
        end = self.target.log(COPY).end_offset
        self.target.truncate(COPY, max(self.target.log(COPY).start_offset, int(end * (1 - share))))

    def create_again(self, *, from_start: bool) -> None:
        """The copy is deleted and created again; the mirror continues at its position, or copies all
        again."""
        del self.target.topics[COPY.topic]
        self.target.add_topic(COPY.topic)
        if from_start:
            self.copied_to = 0
            self._last_synced_downstream = -1

    def crash(self, back: int) -> None:
        """The mirror restarts from an older position: at least once, so records are copied again."""
        if self.exactly_once:
            self._last_synced_downstream = -1
            return
        offsets = [record.offset for record in self.visible_source() if record.offset < self.copied_to]
        if offsets:
            self.copied_to = offsets[max(0, len(offsets) - 1 - back)]
            self._last_synced_downstream = -1

    def retain(self, before: int) -> None:
        """Retention takes everything before an offset from the source."""
        self.retired += [record for record in self.visible_source() if record.offset < before]
        self.source.log(ORIGIN).delete_before(before)

    def forget_pairs(self, before: int) -> None:
        """The syncs before an offset were compacted when the service started again."""
        kept = self.history.of(ORIGIN)
        condensed = None if kept is None else kept.condensed()
        if condensed is None:
            return
        pairs = tuple(pair for pair in condensed.pairs if pair.upstream >= before)
        self.history, self.store = SyncHistory(), OffsetSyncStore(must_read_to_end=False)
        self.store.finish_reading()
        for pair in pairs or condensed.pairs[-1:]:
            self.send(pair)

    def compact(self, cluster: FakeCluster, share: float) -> None:
        """Keep the last record of each key in the log's first part, as the cleaner does."""
        partition = ORIGIN if cluster is self.source else COPY
        edge = int(cluster.log(partition).end_offset * share)
        last_of_key: dict[bytes | None, int] = {}
        records = cluster.records(partition)
        for record in records:
            last_of_key[record.key] = record.offset
        cluster.punch_holes(
            partition,
            {
                record.offset
                for record in records
                if record.offset < edge and last_of_key[record.key] != record.offset
            },
        )

    def _record(self) -> Record:
        name = self.next_name
        self.next_name += 1
        return Record(
            offset=-1,
            timestamp_ms=1_700_000_000_000 + name // 7,
            key=b"key %d" % self.rng.randrange(self.keys),
            value=b"%0*d" % (self.value_bytes, name),
        )

    def _sync(self, upstream: int, downstream: int) -> None:
        # A mirror that finds its copy shorter begins with a new writer of syncs: its first one is due.
        went_back = self._last_copied is not None and downstream <= self._last_copied.downstream
        self._last_copied = OffsetPair(upstream, downstream)
        due = (
            self._last_synced_downstream < 0
            or went_back
            or downstream - self._last_synced_downstream > self.offset_lag_max
        )
        if not due:
            return
        first_of_lifetime = self._last_synced_downstream < 0
        self._last_synced_downstream = downstream
        if first_of_lifetime or went_back or self.rng.random() >= self.lost_syncs:
            self.send(OffsetPair(upstream, downstream))

    def send(self, sync: OffsetPair) -> None:
        if self.lost_syncs == 1:
            return
        self.history.on_sync(ORIGIN, sync)
        self.store.apply(
            OffsetSync(partition=ORIGIN, upstream_offset=sync.upstream, downstream_offset=sync.downstream)
        )

    # ---------------------------------------------------------------------------------------- what is true

    def visible_source(self) -> list[Record]:
        return visible(self.source, ORIGIN)

    def visible_target(self) -> list[Record]:
        return visible(self.target, COPY)

    def check(self, upstream: int, downstream: int, *, exact: bool = True) -> None:
        """The promise: everything unread lies at `downstream` or behind it; where `exact`, the record there
        is unread. Where the copy holds a stretch twice and compaction left parts of it, that may be a later
        record of the source, or one that was copied the second time.
        """
        once = [*self.retired, *self.visible_source()]
        unread = [int(record.value or b"") for record in once if record.offset >= upstream]
        on_target = [(record.offset, int(record.value or b"")) for record in self.visible_target()]
        names_there = {name for _, name in on_target}
        following = [name for offset, name in on_target if offset >= downstream]
        expected = {name for name in unread if name in names_there}
        missed = expected - set(following)
        assert not missed, f"{upstream} -> {downstream} skips {sorted(missed)[:5]}"
        if not exact:
            return
        if expected:
            assert following[0] in expected, f"{upstream} -> {downstream} reads {following[0]} again"
        elif self.exactly_once:
            known = {int(record.value or b"") for record in once}
            assert not known & set(following), f"{upstream} -> {downstream} reads what was read"


def _named(record: Record) -> Record:
    origin = f"A/{ORIGIN.topic}/{ORIGIN.partition}/{record.offset}/{record.timestamp_ms}".encode()
    return replace(record, headers=(("twinlog.origin", b"B/other/0/7/0"), ("twinlog.origin", origin)))


def visible(cluster: FakeCluster, partition: TopicPartition) -> list[Record]:
    return cluster.records(partition, read_committed=True)
