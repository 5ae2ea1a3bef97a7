"""The gap ledger: ranges of source records that will never be on the target, kept beside the positions.

A gap is a record of `mm2-offsets.<A>.internal` under a connector name of our own, which Connect leaves
alone. Its key holds where it begins and why, so gaps of one partition stand side by side after compaction,
and a gap that is found again replaces itself.
"""

from dataclasses import dataclass

from twinlog.model import Flow, TopicPartition
from twinlog.wire.connect_json import JsonValue
from twinlog.wire.source_offset import (
    GAP_CONNECTOR,
    ConnectKey,
    decode_connect_key,
    decode_document,
    encode_connect_key,
    encode_document,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    partition: TopicPartition
    from_offset: int
    to_offset: int
    """First offset after the gap."""
    reason: str
    """RETENTION, TRUNCATION, TOPIC_RECREATED, TARGET_RECREATED, TARGET_TRUNCATED."""
    found_at_ms: int

    @property
    def identity(self) -> tuple[TopicPartition, int, str]:
        """What makes it the same gap when it is found again."""
        return self.partition, self.from_offset, self.reason

    @property
    def is_loss(self) -> bool:
        """The records are on neither side now. A truncation lost nothing: the target has what the source
        lost."""
        return self.reason != "TRUNCATION"


def gap_record(flow: Flow, gap: Gap) -> tuple[bytes, bytes]:
    """Key and value of a gap."""
    key = ConnectKey(
        connector=GAP_CONNECTOR,
        partition={
            "cluster": flow.source,
            "partition": gap.partition.partition,
            "topic": gap.partition.topic,
            "from": gap.from_offset,
            "reason": gap.reason,
        },
    )
    value: dict[str, JsonValue] = {"to": gap.to_offset, "found_at_ms": gap.found_at_ms}
    return encode_connect_key(key), encode_document(value)


def parse_gap(source_alias: str, key: bytes | None, value: bytes | None) -> Gap | None:
    """Read a gap of a source cluster; None for every other record, and for a tombstone."""
    decoded = decode_connect_key(key)
    if decoded is None or decoded.connector != GAP_CONNECTOR:
        return None
    document = decode_document(value)
    match (decoded.partition, document):
        case (
            {
                "cluster": str(cluster),
                "topic": str(topic),
                "partition": int(number),
                "from": int(begin),
                "reason": str(reason),
            },
            {"to": int(end), "found_at_ms": int(found_at_ms)},
        ) if cluster == source_alias:
            return Gap(
                partition=TopicPartition(topic, number),
                from_offset=begin,
                to_offset=end,
                reason=reason,
                found_at_ms=found_at_ms,
            )
        case _:
            return None
