"""Applications of a simulated world: what they write is in the log at once."""

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from twinlog.batches import EndMarker, NewRecord, Seal, build_batch, decode_batch, sealed
from twinlog.testing.broker import Cluster
from twinlog.testing.broker.appending import append_batch, append_marker
from twinlog.testing.broker.groups import Committed
from twinlog.testing.broker.log import PartitionLog
from twinlog.testing.broker.partitions import Partition

_FIRST_PRODUCER_ID = 1_000_000


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

    def produce(self, topic: str, partition: int, *values: bytes) -> None:
        """One batch; the key of a record is its value."""
        self._append(self._partition(topic, partition), values, Seal(-1, -1, -1, transactional=False))

    def transaction(self, topic: str, *values: bytes, partitions: int = 1, commits: bool = True) -> None:
        """The same batch to the first partitions, committed or aborted."""
        producer_id = next(self._producer_ids)
        found = [self._partition(topic, index) for index in range(partitions)]
        for each in found:
            self._append(each, values, Seal(producer_id, 0, 0, transactional=True))
        for each in found:
            marker = EndMarker.COMMIT if commits else EndMarker.ABORT
            append_marker(each, marker, producer_id, 0, 0, self.cluster.clock.now_ms())

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

    def _partition(self, topic: str, index: int) -> Partition:
        found = self.cluster.partition(topic, index)
        assert found is not None, f"{topic}-{index} does not exist"
        return found

    def _append(self, partition: Partition, values: tuple[bytes, ...], seal: Seal) -> None:
        now_ms = self.cluster.clock.now_ms()
        records = [NewRecord(value, value, now_ms) for value in values]
        append_batch(partition, sealed(build_batch(records), seal), now_ms, transactions_v2=True)


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
        records = [
            Seen(index, record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
            for record in decode_batch(stored.batch)
        ]
        if header.is_transactional:
            open_records.setdefault(header.producer_id, []).extend(records)
        else:
            seen += records
    return sorted(seen)
