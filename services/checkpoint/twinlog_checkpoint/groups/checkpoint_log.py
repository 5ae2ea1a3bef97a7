"""The service's own topic `<A>.checkpoints.internal`: creates it, reads it once at start, and writes to
it."""

from dataclasses import dataclass, replace

import structlog

from twinlog.errors import FatalKafkaError, WireFormatError
from twinlog.kafka.admin.compacted_topic import TopicMaking, compact_soon, ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster, LogWriter
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, Record, TopicPartition
from twinlog.offsets import CheckpointHistory
from twinlog.wire import Checkpoint, decode_checkpoint, encode_checkpoint
from twinlog.wire.topic_ids import topic_ids_headers, topic_ids_of
from twinlog_checkpoint.translation.log_sides import INTERNAL_PARTITION

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class CheckpointLog:
    """The checkpoints of one flow, on its target."""

    flow: Flow
    topic: str
    replication_factor: int
    admin: KafkaCluster
    reader_cluster: KafkaCluster

    async def restore(self, history: CheckpointHistory) -> bool:
        """Create the topic if needed, and load its content. Return whether all of it could be read.

        False (MM2's loadOk) means no right to read the topic, so earlier checkpoints are not known. Raises
        TransientKafkaError while the target does not answer; try again then, because nothing could be written
        either.
        """
        made = await ensure_compacted_topic(
            self.admin, self.topic, replication_factor=self.replication_factor, is_read_whole=True
        )
        if made is TopicMaking.EXISTED:
            await compact_soon(self.admin, self.topic)
        try:
            await self.read(history)
        except FatalKafkaError as error:
            _log.warning(
                "checkpoints_not_restored",
                flow=str(self.flow),
                topic=self.topic,
                reason=error.reason,
                message=str(error),
            )
            return False
        return True

    async def read(self, history: CheckpointHistory) -> None:
        """Load what the topic has. Raises KafkaError (TOPIC_UNKNOWN when there is no such topic)."""
        loaded = 0
        async with self.reader_cluster.reader() as reader:
            place = TopicPartition(self.topic, INTERNAL_PARTITION)
            async for record in committed_records(self.admin, reader, place):
                loaded += self._remember(record, history)
        _log.info("checkpoints_restored", flow=str(self.flow), topic=self.topic, records=loaded)

    def _remember(self, record: Record, history: CheckpointHistory) -> bool:
        try:
            checkpoint = decode_checkpoint(record.key, record.value)
            ids = topic_ids_of(record.headers)
            history.remember(replace(checkpoint, topic_ids=ids))
            if ids is not None:
                history.confirm(checkpoint.group, checkpoint.partition, ids.target)
        except WireFormatError as error:
            _log.warning("checkpoint_skipped", topic=self.topic, offset=record.offset, message=str(error))
            return False
        return True

    async def append(self, writer: LogWriter, checkpoint: Checkpoint) -> None:
        """Write one checkpoint; returns when the target has it. Raises KafkaError."""
        key, value = encode_checkpoint(checkpoint)
        headers = topic_ids_headers(checkpoint.topic_ids)
        place = TopicPartition(self.topic, INTERNAL_PARTITION)
        await writer.append(place, key=key, value=value, headers=headers)
