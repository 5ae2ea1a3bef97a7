"""Applications of a simulated world: what they write is in the log at once."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from twinlog.batches import Codec, EndMarker, NewRecord, Seal, build_batch, decode_batch, sealed
from twinlog.testing.broker import Cluster
from twinlog.testing.broker.appending import append_batch, append_marker
from twinlog.testing.broker.groups import Committed
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition
from twinlog.testing.broker.stored import StoredBatch

_FIRST_PRODUCER_ID = 1_000_000
_NOBODY = Seal(-1, -1, -1, False)


class Seen(NamedTuple):
    """A record as a consumer with isolation.level=read_committed has it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Applications:
    """Producers and consumers of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._producer_ids = count(_FIRST_PRODUCER_ID)
        self.times_ms = count(cluster.clock.now_ms())
        """Of records: when they are produced changes nothing of them."""

    def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes | None,
        key: bytes | None = b"key",
        headers: tuple[tuple[bytes, bytes | None], ...] = (),
        codec: Codec = Codec.NONE,
    ) -> None:
        """One batch."""
        records = [NewRecord(key, value, next(self.times_ms), headers) for value in values]
        self._append(self.partition(topic, partition), records, _NOBODY, codec)

    def copy(self, topic: str, seen: Sequence[Seen]) -> None:
        """Write records of another cluster, as MirrorMaker 2 does."""
        for each in seen:
            record = NewRecord(each.key, each.value, each.timestamp_ms, each.headers)
            self._append(self.partition(topic, each.partition), [record], _NOBODY, Codec.NONE)

    def transaction(self, topic: str, *values: bytes, partitions: int = 1, commits: bool = True) -> None:
        """The same batch to the first partitions, committed or aborted."""
        ends = [self.open_transaction(topic, *values, partition=index) for index in range(partitions)]
        for end in ends:
            end(EndMarker.COMMIT if commits else EndMarker.ABORT)

    def commit(self, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
        """A group's offsets, as of a member that has gone."""
        groups = self.cluster.groups
        groups.classic(group_id, create=True)
        groups.commit(
            group_id, {(topic, index): Committed(offset, -1, "") for index, offset in offsets.items()}
        )

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        return {key: each.offset for key, each in self.cluster.groups.offsets.get(group_id, {}).items()}

    def read(self, topic: str) -> list[Seen]:
        """Every committed record, by partition and offset; none of a topic that does not exist."""
        found = self.cluster.topics.get(topic)
        if found is None:
            return []
        return [seen for each in found.partitions for seen in _committed(each.index, each.log)]

    def ends(self, topic: str) -> list[int]:
        found = self.cluster.topics.get(topic)
        return [] if found is None else [each.log.end_offset for each in found.partitions]

    def open_transaction(self, topic: str, *values: bytes, partition: int = 0) -> Callable[[EndMarker], None]:
        """Records of a transaction; what is returned ends it."""
        producer_id, found = next(self._producer_ids), self.partition(topic, partition)
        records = [NewRecord(b"key", value, next(self.times_ms)) for value in values]
        self._append(found, records, Seal(producer_id, 0, 0, True), Codec.NONE)
        return lambda marker: append_marker(found, marker, producer_id, 0, 0, self.cluster.clock.now_ms())

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.cluster.partition(topic, index)
        assert found is not None, f"{topic}-{index} does not exist"
        return found

    def _append(self, partition: Partition, records: list[NewRecord], seal: Seal, codec: Codec) -> None:
        data = sealed(build_batch(records, codec=codec), seal)
        append_batch(partition, data, self.cluster.clock.now_ms(), transactions_v2=True)


@lru_cache(maxsize=1000)
def _records(index: int, stored: StoredBatch) -> list[Seen]:
    """Decoded once, however often a test looks at the log."""
    return [
        Seen(index, record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for record in decode_batch(stored.batch)
    ]


def _committed(index: int, log: PartitionLog) -> list[Seen]:
    seen: list[Seen] = []
    open_records: dict[int, list[Seen]] = {}
    for stored in log.batches:
        header = stored.header
        if stored.marker is not None:
            ended = open_records.pop(header.producer_id, [])
            if stored.marker is EndMarker.COMMIT:
                seen += ended
            continue
        records = _records(index, stored)
        if header.is_transactional:
            open_records.setdefault(header.producer_id, []).extend(records)
        else:
            seen += records
    return sorted(seen)
