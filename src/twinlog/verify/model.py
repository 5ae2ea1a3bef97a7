"""What a verification says: differences by kind, what was not compared and why, and the proof of a
partition."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


class Kind(StrEnum):
    """What is wrong with a record. A closed list; the words are part of the report's schema."""

    MISSING = "MISSING"
    """The source has it, the copy has not."""
    DUPLICATE = "DUPLICATE"
    """The copy has it once more."""
    FOREIGN = "FOREIGN"
    """The copy has it, the source has not."""
    CHANGED = "CHANGED"
    """It is at its place, with another key, value, headers or timestamp."""
    ORDER = "ORDER"
    """It is in the copy as it was written, at another place among the others."""


class Reason(StrEnum):
    """Why a range was not compared. Reasons of errors (KAFKA_TIMEOUT, TOPIC_UNKNOWN, …) stand beside
    these."""

    SOURCE_RETENTION = "SOURCE_RETENTION"
    """The source has deleted the records, or lost them as the ledger of gaps says; the copy still has
    them."""
    TARGET_RETENTION = "TARGET_RETENTION"
    """The target has deleted the records of the copy; the source still has them."""
    KNOWN_GAP = "KNOWN_GAP"
    """The ledger of gaps says that these records are not on the target."""
    BEFORE_FIRST_COPY = "BEFORE_FIRST_COPY"
    """The flow begins at the end of a topic (auto.offset.reset=latest), and these came before."""
    NOT_COPIED_YET = "NOT_COPIED_YET"
    """Behind the stored position of the flow: lag, and no loss."""
    TARGET_OPEN_TRANSACTION = "TARGET_OPEN_TRANSACTION"
    """A transaction is open on the copy: nobody sees what is behind its beginning."""
    TARGET_MISSING = "TARGET_MISSING"
    """There is no such topic or partition on the target."""
    TOO_DIFFERENT = "TOO_DIFFERENT"
    """So much in a row differs that it cannot be said what belongs together."""

    @property
    def is_harmless(self) -> bool:
        """Nothing that both clusters could still hold was left out."""
        return self in (
            Reason.SOURCE_RETENTION,
            Reason.TARGET_RETENTION,
            Reason.BEFORE_FIRST_COPY,
        )


NO_POSITION = (
    "the flow has no stored position, so these records may be lost or not copied yet"
    " (if the replicator has stopped for good, use --complete)"
)
"""Detail of NOT_COPIED_YET."""

COMPACTED_AWAY = "only the copy is compacted: some records of this range are not on the target"
"""Detail of TARGET_RETENTION."""

EMPTY_COPY = (
    "the copy is empty, and the flow may begin after the start of a topic: these records may be older than"
    " its beginning, or lost"
)
"""Detail of BEFORE_FIRST_COPY."""


class Side(StrEnum):
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One record that differs, or `count` records in a row that differ in the same way.

    `source_offset` is the record on the source; of a FOREIGN one, the record before which it stands.
    `target_offset` is the record on the target; of a MISSING one, the record before which it would stand.
    None: the end of the log.
    """

    kind: Kind
    source_offset: int | None
    target_offset: int | None
    count: int = 1
    changed: tuple[str, ...] = ()
    """What differs, for CHANGED: key, value, headers, timestamp; offset, where the source's are promised."""
    found_in: str = ""
    """For MISSING and FOREIGN: the same record in another partition of the topic, as `topic-2@17`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """A range of offsets of one side that was not compared."""

    side: Side
    from_offset: int
    to_offset: int
    """First offset behind it."""
    reason: str
    """A `Reason`, or that of an error."""
    detail: str = ""
    is_harmless: bool = False
    """True: the copy may be EQUAL all the same."""


@dataclass(frozen=True, slots=True)
class Range:
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGap:
    """A range of the source that is not on the target, by the flow's ledger."""

    from_offset: int
    to_offset: int
    reason: str
    acknowledged: bool = False
    lost_of_joined: int | None = None
    """It stands for several gaps, with records between them that are on the target: so many offsets are
    lost. None: all of them."""

    @property
    def is_joined(self) -> bool:
        return self.lost_of_joined is not None

    @property
    def lost_offsets(self) -> int:
        """How many offsets of the range are lost, at most."""
        return self.to_offset - self.from_offset if self.lost_of_joined is None else self.lost_of_joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is compared of one partition.

    Everything below the goals must be explained. What is between a goal and its limit is only read to find
    counterparts: records that came while the bounds were taken.
    """

    source: TopicPartition
    target: TopicPartition
    source_start: int
    source_goal: int
    source_limit: int
    target_start: int
    target_goal: int
    target_limit: int
    position: int | None
    """Next source offset to copy, as stored before `target_goal` was taken; None: nothing is stored."""
    source_lost: tuple[Range, ...] = ()
    """What the source has no more, such as everything before its log's start."""
    target_lost: tuple[Range, ...] = ()
    gaps: tuple[KnownGap, ...] = ()
    source_compacted: bool = False
    target_compacted: bool = False
    begins_anywhere: bool = False
    """The copy may begin later than the source: the flow began at the end."""
    offsets_kept_from: int | None = None
    """Source offset from which on the copy must have the source's offsets; None: nobody promised that."""
    offsets_kept_until: int | None = None
    """Source offset from which on a copy that had the source's offsets has its own; None: it still has the
    source's."""
    may_grow: bool = True
    """More of the copy may come; not in a part that ends before the partition does."""
    head_is_free: bool = False
    """What the target has before the first record of the source's range belongs to what is not compared."""
    equal_until: int = 0
    """Source offset behind the last record that was found equal before this range; 0: none was."""
    source_log_start: int | None = None
    """Where the source's log begins, if the range begins later: originals of duplicates are looked for from
    there on."""
    tail_is_free: bool = False
    """What the target has behind the last record of the source's range belongs to what is not compared."""

    @property
    def has_all_offsets(self) -> bool:
        """The whole copy must have the source's offsets."""
        return self.offsets_kept_from is not None and self.offsets_kept_until is None


@dataclass(slots=True, kw_only=True)
class PartitionProof:
    """What is known of one partition after a verification."""

    source: TopicPartition
    target: TopicPartition
    source_from: int
    source_to: int
    """First source offset that the comparison did not reach."""
    target_from: int
    target_to: int
    records: int = 0
    """Records of the source that were found equal on the target."""
    unopened_records: int = 0
    """Those of `records` that were compared by the bytes of their batches."""
    continues_at: tuple[int, int] | None = None
    """Source and target offset after the last records that were compared, also of those that came after the
    source's goal was taken: where a later comparison begins. None: not known."""
    equal_until: int = 0
    """Source offset behind the last record that was found equal."""
    records_after_goal: int = 0
    """Found equal before `continues_at`, and not among `records`."""
    superseded_records: int = 0
    """Records of compacted topics that are on one side only, which a later record of the key explains."""
    target_compacted: bool = False
    """The copy is a compacted topic."""
    same_offsets: bool = True
    """Each compared record has the same offset on both sides."""
    offsets_promised: bool = False
    """The copy must have the source's offsets: a record at another one is a difference."""
    source_hash: str = ""
    """Order-sensitive hash of the batches that were compared, of each side; empty = not known."""
    target_hash: str = ""
    bytes: int = 0
    """Read of both sides, as stored."""
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    timestamps_compared: bool = True
    """False: (some) timestamps of the copy are its broker's own (LogAppendTime)."""
    unmatched: dict[tuple[Side, int], Hashable] = field(default_factory=dict)
    """What the first of the MISSING and FOREIGN records hold, by side and offset: they may be in another
    partition."""

    @property
    def is_complete(self) -> bool:
        return all(each.is_harmless for each in self.not_compared)

    def not_read(self, error: TwinlogError, *, goal: int) -> None:
        """The rest of the source, up to the offset `goal`, could not be read."""
        self.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=self.source_to,
                to_offset=max(self.source_to, goal),
                reason=error.reason,
                detail=str(error),
            )
        )
