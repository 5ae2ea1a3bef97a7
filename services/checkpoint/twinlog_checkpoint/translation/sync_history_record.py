"""Records of `mm2-sync-history.<A>.internal`: what is kept of the offset syncs of each partition, and a head
that says up to where. JSON; pure.

Invariant: only records of the head's writer count, and only all of them. So what an earlier owner still
writes makes the whole unusable, and never wrong.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from twinlog.errors import WireFormatError
from twinlog.model import TopicPartition
from twinlog_checkpoint.translation.history import CondensedPairs, OffsetPair

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Written behind the records that it speaks of."""

    writer: str
    syncs_topic_id: str
    """Kafka's id of the offset-syncs topic; "" where the broker has none."""
    through: int
    """Every sync before this offset of the offset-syncs topic is in the records."""
    partitions: int
    """How many source partitions there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    writer: str
    partition: TopicPartition
    through: int
    """Its syncs before this offset are in it."""
    condensed: CondensedPairs


def encode_head(head: Head) -> tuple[bytes, bytes]:
    value = {
        "format": FORMAT,
        "writer": head.writer,
        "syncs_topic_id": head.syncs_topic_id,
        "through": head.through,
        "partitions": head.partitions,
    }
    return _bytes({"head": True}), _bytes(value)


def encode_partition(record: PartitionRecord) -> tuple[bytes, bytes]:
    condensed = record.condensed
    value = {
        "writer": record.writer,
        "through": record.through,
        "newest": [condensed.newest_sync.upstream, condensed.newest_sync.downstream],
        "vouched_from": condensed.vouched_from,
        "pairs": _deltas(condensed.pairs),
    }
    return _bytes({"topic": record.partition.topic, "partition": record.partition.partition}), _bytes(value)


def decode(key: bytes | None, value: bytes | None) -> Head | PartitionRecord | None:
    """None for what a later release may have written. Raises WireFormatError for what cannot be read."""
    match _document(key), _document(value):
        case {"head": True}, {
            "format": 1,
            "writer": str(writer),
            "syncs_topic_id": str(topic_id),
            "through": int(through),
            "partitions": int(partitions),
        }:
            return Head(writer=writer, syncs_topic_id=topic_id, through=through, partitions=partitions)
        case {"topic": str(topic), "partition": int(number)}, {
            "writer": str(writer),
            "through": int(through),
            "newest": [int(upstream), int(downstream)],
            "vouched_from": int(vouched_from),
            "pairs": list(deltas),
        }:
            return PartitionRecord(
                writer=writer,
                partition=TopicPartition(topic, number),
                through=through,
                condensed=CondensedPairs(
                    newest_sync=OffsetPair(upstream, downstream),
                    vouched_from=vouched_from,
                    pairs=_pairs(deltas),
                ),
            )
        case _:
            return None


def _deltas(pairs: Sequence[OffsetPair]) -> list[int]:
    steps = (
        (after.upstream - before.upstream, after.downstream - before.downstream)
        for before, after in pairwise(pairs)
    )
    return [*((pairs[0].upstream, pairs[0].downstream) if pairs else ()), *chain.from_iterable(steps)]


def _pairs(deltas: Sequence[object]) -> tuple[OffsetPair, ...]:
    """Raises WireFormatError unless both sides rise strictly from an offset of 0 or more."""
    pairs: list[OffsetPair] = []
    upstream = downstream = 0
    for first, second in zip(deltas[::2], deltas[1::2], strict=False):
        if not isinstance(first, int) or not isinstance(second, int) or first < 0 or second < 0:
            raise WireFormatError(f"pairs of offsets do not rise: {first!r}, {second!r}")
        if pairs and not (first and second):
            raise WireFormatError("pairs of offsets do not rise: a step of 0")
        upstream, downstream = upstream + first, downstream + second
        if max(upstream, downstream) >= 2**63:
            raise WireFormatError("an offset does not fit 64 bits")
        pairs.append(OffsetPair(upstream, downstream))
    if len(deltas) % 2:
        raise WireFormatError("half a pair of offsets")
    return tuple(pairs)


def _bytes(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"no JSON: {error}") from None
