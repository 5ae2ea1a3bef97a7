"""Records that could not be changed, for the topic of the target that gets them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twinlog.batches import NewRecord, OutgoingBatch, build_batch
from twinlog.batches.bodies import OpenRecord, decode_record
from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition

_PREFIX = "__connect.errors."
_BATCH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    topic: str
    connector_name: str

    @property
    def partition(self) -> TopicPartition:
        """Kafka Connect gives the topic one partition."""
        return TopicPartition(self.topic, 0)

    def batches(
        self, source: TopicPartition, failed: Mapping[int, str], fetched: Mapping[int, OpenRecord]
    ) -> Sequence[OutgoingBatch]:
        """`failed`: why each could not be changed. The records are as they were fetched, with the headers by
        which Kafka Connect says where one comes from and what failed."""
        groups: list[list[NewRecord]] = []
        room_bytes = 0
        for offset, why in sorted(failed.items()):
            try:
                _, timestamp_ms, key, value, headers = decode_record(fetched[offset])
            except WireFormatError:
                # It failed because it cannot be read: its bytes are all there is.
                _, timestamp_ms, value = fetched[offset]
                key, headers = None, ()
            told = {
                "topic": source.topic,
                "partition": str(source.partition),
                "offset": str(offset),
                "connector.name": self.connector_name,
                "stage": "TRANSFORMATION",
                "exception.class.name": "TRANSFORM_FAILED",
                "exception.message": why,
            }
            added = tuple(((_PREFIX + name).encode(), text.encode()) for name, text in told.items())
            size_bytes = len(fetched[offset][2])
            if not groups or size_bytes > room_bytes:
                groups.append([])
                room_bytes = _BATCH_BYTES
            groups[-1].append(NewRecord(key, value, timestamp_ms, (*headers, *added)))
            room_bytes -= size_bytes
        return [build_batch(group) for group in groups]
