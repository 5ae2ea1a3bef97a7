"""The settings and the results of preparing batches for the target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinlog.batches.bodies import OpenRecord
from twinlog.batches.codec import MAX_OPEN_BYTES
from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.batches.outgoing import OutgoingBatch, TargetTopicLimits
from twinlog.batches.transformed import ChangeRecords, RouteRecords

NOT_YET = HIGHEST_OFFSET, HIGHEST_OFFSET
"""In `CopyPolicy.echoes`: no batch that was fetched so far is an echo, but later ones may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPolicy:
    """How one topic is copied."""

    target: TargetTopicLimits = field(default_factory=TargetTopicLimits)
    read_committed: bool = True
    check_crc: bool = True
    """Kafka's `check.crcs`."""
    coalesce_below_bytes: int = 64 * 1024
    """If the batches of a backlog are smaller than this on average, and have few records, they are packed
    together; 0 = never."""
    coalesced_bytes: int = 1 << 20
    """The target size of packed batches, uncompressed, below the target's limit. By default as much as one
    fetch brings of a partition: a little less would leave a small batch over from each."""
    max_open_bytes: int = MAX_OPEN_BYTES
    """The uncompressed size limit of a batch that has to be opened; a larger one is a fault."""
    transform: ChangeRecords | None = None
    """None = records are copied unchanged."""
    routes: RouteRecords | None = None
    """In place of `transform`, where records may go to other topics than the copy."""
    opened: dict[int, list[OpenRecord]] | None = None
    """Keeps the records of batches that were opened, by base offset, for a second preparation; None = not."""
    keeps_offsets: bool = False
    """A batch ends where source offsets are missing, because the copy has the same offsets
    (docs/adr/0008)."""
    echoes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By producer id, the first source offset and the first one after those where its batches are copies of
    what the target has already (docs/adr/0017): they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFault:
    """Why a partition cannot continue. A value, because the other partitions of the fetch continue."""

    reason: str
    """RECORD_TOO_LARGE, BATCH_TOO_LARGE or CORRUPT_BATCH, as in docs/reasons.md."""
    offset: int
    """The source position that cannot be passed: the record's offset (RECORD_TOO_LARGE), or the batch's
    beginning (the others)."""
    message: str
    size_bytes: int | None = None
    limit_bytes: int | None = None


class LeaderEpoch(NamedTuple):
    """From `offset` on, batches were written under `epoch`. A log that was truncated and continued has
    another one."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The result for one partition."""

    batches: tuple[OutgoingBatch, ...]
    """To be sent in this order."""
    next_offset: int
    """The source position once all of `batches` are committed: also past dropped batches, but before a
    fault."""
    fault: CopyFault | None = None
    is_cut: bool = False
    """There was no room for the rest, which has to be fetched again from `next_offset`."""
    echo_records: int = 0
    """Records that were left out because they are copies of what the target has already."""
    leader_epochs: tuple[LeaderEpoch, ...] = ()
    """The source's leader epochs of the batches up to `next_offset`, in order: one entry for each change,
    none for batches without one."""
    dropped_records: int = 0
    """Records that the transform dropped, of batches that end before `next_offset`."""
    routed: tuple[tuple[str, OutgoingBatch], ...] = ()
    """Batches that take a route, each with its name; in order for each."""

    @property
    def record_count(self) -> int:
        return sum(batch.record_count for batch in self.batches)

    @property
    def size_bytes(self) -> int:
        return sum([batch.size_bytes for batch in (*self.batches, *(each for _, each in self.routed))])
