"""The record of a flow's source: which cluster it is, whether it lost its groups, and which groups are gone.
It survives restarts, as one record in the journal's topic (`mm2-failover.<A>.internal`)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.errors import WireFormatError
from twinlog.kafka.ports import KafkaCluster
from twinlog.kafka.table import Table
from twinlog.model import Flow
from twinlog.policy.internal_topics import failover_topic

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


SourceTable = Table[Flow, SourceRecord]


def source_table(flow: Flow, cluster: KafkaCluster, *, replication_factor: int) -> SourceTable:
    """The table on the flow's target: one row, the flow's."""
    return Table(
        cluster=cluster,
        topic=failover_topic(flow.source),
        codec=_Codec(flow),
        replication_factor=replication_factor,
    )


@dataclass(frozen=True, slots=True)
class _Codec:
    flow: Flow

    def decode_key(self, key: bytes) -> Flow | None:
        return self.flow if key == _key(self.flow) else None

    def decode_value(self, key: Flow, value: bytes) -> SourceRecord:
        return decode(value)

    def encode(self, key: Flow, value: SourceRecord | None) -> tuple[bytes, bytes | None]:
        return _key(key), None if value is None else encode(value)


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
