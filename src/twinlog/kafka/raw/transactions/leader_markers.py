"""Ends of transactions written at the leader of their partition, without a coordinator (WriteTxnMarkers,
KIP-98 and KIP-664).

Layouts: WriteTxnMarkersRequest.json and WriteTxnMarkersResponse.json in Kafka's source. Needs ALTER (Kafka
3.8) or CLUSTER_ACTION on the cluster.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from twinlog.kafka.protocol.encoding import (
    INT32,
    NO_TAGS,
    Frame,
    compact_length,
    compact_string,
    skip_tags,
    take_compact_length,
    take_compact_string,
)
from twinlog.kafka.protocol.requests import HandWrittenRequest, Pieces, no_throttle
from twinlog.model import TopicPartition

WRITE_TXN_MARKERS = 27
_MARKER = struct.Struct(">qh?")
"""Producer id and epoch, whether it commits."""
_ANSWERED = struct.Struct(">ih")
"""Number of the partition, error code."""
_PRODUCER_ID_BYTES = 8


class AbortMarker(NamedTuple):
    """The end of one transaction in one partition. A leader accepts it when both epochs are at least those of
    its producer's last marker there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    """0 to 32767."""
    coordinator_epoch: int
    """0 to 2**31 - 1."""


MarkerAnswers = dict[tuple[TopicPartition, int], int]
"""The error code by partition and producer id. For several markers it belongs to any of them: a broker
returns one code for each producer and partition, so the log has to show what was written."""


def write_markers(markers: Sequence[AbortMarker]) -> HandWrittenRequest[MarkerAnswers]:
    """The broker appends the markers one after the other. It answers when all of them are on every replica in
    sync, or are refused. Version 1 (Kafka 2.6)."""

    def encode(_version: int) -> Pieces:
        pieces = [compact_length(len(markers))]
        for marker in markers:
            pieces += (
                _MARKER.pack(marker.producer_id, marker.producer_epoch, False),
                compact_length(1),
                compact_string(marker.partition.topic),
                compact_length(1),
                INT32.pack(marker.partition.partition),
                NO_TAGS,
                INT32.pack(marker.coordinator_epoch),
                NO_TAGS,
            )
        return [*pieces, NO_TAGS]

    return HandWrittenRequest(
        WRITE_TXN_MARKERS, range(1, 2), encode, _read, flexible_from=1, throttle_of=no_throttle
    )


def _read(data: Frame, position: int, _version: int) -> MarkerAnswers:
    answers: MarkerAnswers = {}
    producers, position = take_compact_length(data, position)
    for _ in range(producers):
        (producer_id,) = struct.unpack_from(">q", data, position)
        topics, position = take_compact_length(data, position + _PRODUCER_ID_BYTES)
        for _ in range(topics):
            topic, position = take_compact_string(data, position)
            count, position = take_compact_length(data, position)
            for _ in range(count):
                number, code = _ANSWERED.unpack_from(data, position)
                position = skip_tags(data, position + _ANSWERED.size)
                answers[TopicPartition(topic, number), producer_id] = code
            position = skip_tags(data, position)
        position = skip_tags(data, position)
    return answers
