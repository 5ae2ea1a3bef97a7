"""Positions as records of the positions topic."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.model import TopicPartition
from twinlog.wire.murmur2 import partition_for_key
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.log.fact_records import fact_record, partition_key
from twinlog_source.log.facts import ZeroFact


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsTopic:
    """Where and how positions are written."""

    topic: str
    partition_count: int
    source_alias: str
    connector_name: str
    _places: dict[TopicPartition, "_Place"] = field(default_factory=dict, compare=False, repr=False)
    """For every partition with a written position: the constant parts, which cost most to encode."""

    def batches(
        self,
        positions: Mapping[TopicPartition, int],
        extra: Sequence[NewRecord],
        *,
        leaving_zero: Collection[TopicPartition] = (),
        now_ms: int,
    ) -> dict[TopicPartition, OutgoingBatch]:
        """The records that store these positions, and `extra`, as one batch per partition of the topic."""
        by_partition: dict[TopicPartition, list[NewRecord]] = {}
        for partition, position in positions.items():
            if not position:
                fact = NewRecord(*fact_record(self.source_alias, ZeroFact(partition=partition)), now_ms)
                self._add(by_partition, fact)
        for partition in leaving_zero:
            key = partition_key(self.source_alias, "zero", partition)
            self._add(by_partition, NewRecord(key, None, now_ms))
        for partition, position in positions.items():
            place = self._places.get(partition) or self._find_place(partition)
            record = NewRecord(place.key, encode_source_offset(position), now_ms)
            by_partition.setdefault(place.partition, []).append(record)
        for record in extra:
            self._add(by_partition, record)
        return {partition: build_batch(records) for partition, records in by_partition.items()}

    def _add(self, by_partition: dict[TopicPartition, list[NewRecord]], record: NewRecord) -> None:
        by_partition.setdefault(self._partition_of(record.key or b""), []).append(record)

    def _find_place(self, partition: TopicPartition) -> "_Place":
        key = source_offset_key(self.source_alias, partition, connector=self.connector_name)
        place = self._places[partition] = _Place(key, self._partition_of(key))
        return place

    def _partition_of(self, key: bytes) -> TopicPartition:
        return TopicPartition(self.topic, partition_for_key(key, self.partition_count))


class _Place(NamedTuple):
    """Where and under which key a position is stored."""

    key: bytes
    partition: TopicPartition
