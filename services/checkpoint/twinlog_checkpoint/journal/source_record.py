"""The record of a flow's source: which cluster it is, whether it lost its groups, and which groups are gone.
It survives restarts, as one record in the journal's topic (`mm2-failover.<A>.internal`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.errors import WireFormatError
from twinlog.kafka.admin.compacted_topic import ensure_compacted_topic
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.whole_logs import committed_records
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.journal.moves_log import failover_topic
from twinlog_checkpoint.translation.log_scan import INTERNAL_PARTITION

MOST_GONE = 2_000
"""Most groups in the record, which has to fit into one message. For other groups a new process starts the
grace period again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    cluster_id: str
    """The id of the cluster from which the groups were read; "" if it has none."""
    held: str = ""
    """Why no group may be deleted (SOURCE_LOST, SOURCE_REPLACED); "" when nothing forbids it."""
    gone_ms: Mapping[str, int] = field(default_factory=dict)
    """When each group was first seen to be gone from the source; at most `MOST_GONE` groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecordLog:
    """Reads and writes the record of one flow on its target."""

    flow: Flow
    cluster: KafkaCluster
    replication_factor: int

    async def load(self) -> SourceRecord | None:
        """Return the record; None when there is none. Raises KafkaError, WireFormatError."""
        topic = failover_topic(self.flow)
        if topic not in await self.cluster.list_topics():
            return None
        newest: bytes | None = None
        async with self.cluster.reader() as reader:
            place = TopicPartition(topic, INTERNAL_PARTITION)
            async for record in committed_records(self.cluster, reader, place):
                if record.key == _key(self.flow):
                    newest = record.value
        return None if newest is None else decode(newest)

    async def store(self, record: SourceRecord) -> None:
        """Store the record; return when the target has acknowledged it. Raises KafkaError."""
        topic = failover_topic(self.flow)
        await ensure_compacted_topic(self.cluster, topic, replication_factor=self.replication_factor)
        async with self.cluster.writer() as writer:
            await writer.append(
                TopicPartition(topic, INTERNAL_PARTITION), key=_key(self.flow), value=encode(record)
            )


def encode(record: SourceRecord) -> bytes:
    fields = {"format": 1, "cluster_id": record.cluster_id, "held": record.held}
    return json.dumps({**fields, "gone_ms": dict(record.gone_ms)}).encode()


def decode(value: bytes) -> SourceRecord:
    """Raises WireFormatError."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"the record of the source is damaged: {error!r}") from None
    match fields:
        case {"format": 1, "cluster_id": str(cluster_id), "held": str(held)}:
            return SourceRecord(cluster_id=cluster_id, held=held, gone_ms=_times(fields.get("gone_ms", {})))
        case {"format": int(written_as)} if written_as != 1:
            raise WireFormatError(
                f"the record of the source has format {written_as}, this release reads 1",
                reason="WIRE_VERSION",
            )
        case _:
            raise WireFormatError("the record of the source is damaged")


def _times(value: object) -> dict[str, int]:
    """Raises WireFormatError."""
    if not isinstance(value, dict) or not all(type(at) is int for at in value.values()):
        raise WireFormatError("the record of the source is damaged: gone_ms is not a table of times")
    return value


def _key(flow: Flow) -> bytes:
    return json.dumps(["TwinlogSource", {"flow": str(flow)}], separators=(",", ":")).encode()
