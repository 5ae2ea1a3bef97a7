"""What `AppendLog` is offered, what it asks for, and what it is answered. Pure.

Compares what is filled at the end of a copy with the source. Pure.

Converts prepared batches of the source into items for a copy with the same offsets. Pure.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from twinlog.batches import OutgoingBatch, Prepared

SEQUENCE_MASK = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets without a record for consumers of the source: markers, aborted records, a lost range."""

    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the copy as its leader knows it, read when every replica in sync had it (high watermark =
    log end)."""

    end: int
    """The offset of the next record."""
    next_sequence: int | None
    """The sequence number that continues the writer's identity; None = the log does not know it, and the
    writer's next batch begins with its own offset."""
    knows_writer: bool
    """The leader remembers the identity, so it refuses a batch that does not follow the last one."""
    foreign_from: int | None = None
    """The first offset, at or after the requested one, that another producer wrote; None = there is none."""
    filled: tuple[Hole, ...] = ()
    """Offsets after that without a record for consumers, in order, adjacent ranges joined: filled by the
    filler or a foreign producer. A coordinator that was killed at the wrong moment may write the end of a
    transaction twice."""
    leader_epoch: int | None = None
    """The epoch of the leader that answered."""


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Read the copy's `Tail`, and search for foreign writers at or after `checked_from`."""

    checked_from: int
    leader_epoch: int | None = None
    """Everything below was checked in the log of this leader or a later one; None = unknown. After a log has
    lost records, it has another leader, and other records may be in their place."""
    topic_id: str = ""
    """The id of the topic that was written; "" = brokers without topic ids. Another topic of the same name
    has another log."""
    common_until: int = 0
    """Below this offset, records of other producers are copies of the source's, not foreign ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Send the batches as one, with `base_sequence`; report the answer to `answered` or `refused`."""

    batches: tuple[OutgoingBatch, ...]
    base_sequence: int
    size_bytes: int

    @property
    def first(self) -> int:
        return self.batches[0].first

    @property
    def end(self) -> int:
        return self.batches[-1].end


@dataclass(slots=True)
class FillProof:
    """What has to be compared with the source before the end of the copy counts: the ranges that are filled
    there."""

    end: int
    is_foreign: bool
    """The copy continues with a foreign record at this offset; otherwise its log ends there."""
    filled: deque[Hole]

    def forget_below(self, offset: int) -> None:
        """Compare nothing below an offset."""
        while self.filled and self.filled[0].end <= offset:
            self.filled.popleft()
        if self.filled and self.filled[0].first < offset:
            self.filled[0] = Hole(offset, self.filled[0].end - offset)

    def agrees(self, item: OutgoingBatch | Hole) -> bool:
        """Whether the filled ranges agree with this item of the source. If they do, everything before the end
        of the item is settled."""
        while self.filled and self.filled[0].first < item.end:
            hole = self.filled[0]
            if isinstance(item, OutgoingBatch) and item.first < hole.end:
                return False
            if item.end < hole.end:
                self.filled[0] = Hole(item.end, hole.end - item.end)
                return True
            self.filled.popleft()
        return True


def items_of(prepared: Prepared, *, from_offset: int) -> Iterator[OutgoingBatch | Hole]:
    """The items between `from_offset` and `prepared.next_offset`, without gaps.

    The batches must have been prepared with `keeps_offsets`, so that each is dense.
    """
    at = from_offset
    for batch in prepared.batches:
        if batch.first > at:
            yield Hole(at, batch.first - at)
        assert batch.is_dense, batch.runs
        yield batch
        at = batch.end
    if prepared.next_offset > at:
        yield Hole(at, prepared.next_offset - at)


# The reasons of preserved copies.


class PreservedReason(StrEnum):
    BOTH_WAYS = "BOTH_WAYS"
    """The source has copies of what the target has already."""
    FOREIGN_WRITE = "FOREIGN_WRITE"
    MARKER_REPEATED = "MARKER_REPEATED"
    """The target has the end of a transaction where the source has a record (KAFKA-19999)."""
    HOLE_TOO_LONG = "HOLE_TOO_LONG"
    HOLES_TOO_FREQUENT = "HOLES_TOO_FREQUENT"
    FILL_REFUSED = "FILL_REFUSED"
    SOURCE_TRUNCATED = "SOURCE_TRUNCATED"
    HIGH_WATERMARK_BEHIND = "HIGH_WATERMARK_BEHIND"
    """A back-off: the leader has records that not all replicas have, so the end is read again."""
    TARGET_LOST_TAIL = "TARGET_LOST_TAIL"
    """A back-off: the records that the target lost are copied again."""
    TARGET_RECREATED = "TARGET_RECREATED"
    """A back-off: the target topic was recreated, which the driver will notice."""
