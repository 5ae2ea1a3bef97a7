"""The results of a verification: differences by kind, ranges not compared with reasons, and the proof of a
partition."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


class DifferenceKind(StrEnum):
    """How a record differs. A closed list; the values are part of the report's schema."""

    MISSING = "MISSING"
    """The source has it, the copy lacks it."""
    DUPLICATE = "DUPLICATE"
    """The copy has it once more."""
    FOREIGN = "FOREIGN"
    """The copy has it, the source lacks it."""
    CHANGED = "CHANGED"
    """It is at its place with another key, value, headers or timestamp."""
    ORDER = "ORDER"
    """The copy has it unchanged, at another place among the others."""


class NotComparedReason(StrEnum):
    """Why a range was not compared. Reasons of errors (KAFKA_TIMEOUT, TOPIC_UNKNOWN, …) also appear in its
    place."""

    SOURCE_RETENTION = "SOURCE_RETENTION"
    """The source deleted the records, or its log was truncated; the copy still has them."""
    EARLIER_TOPIC = "EARLIER_TOPIC"
    """The source topic was deleted and created again: the copy still has records of the earlier one."""
    LOST = "LOST"
    """By the ledger of gaps, these records are on neither cluster."""
    TARGET_RETENTION = "TARGET_RETENTION"
    """The target deleted the records of the copy; the source still has them."""
    KNOWN_GAP = "KNOWN_GAP"
    """By the ledger of gaps, these records are not on the target."""
    BEFORE_FIRST_COPY = "BEFORE_FIRST_COPY"
    """The flow begins at the end of a topic (auto.offset.reset=latest), and these records are older."""
    NOT_COPIED_YET = "NOT_COPIED_YET"
    """After the stored position of the flow: lag, not loss."""
    TARGET_OPEN_TRANSACTION = "TARGET_OPEN_TRANSACTION"
    """A transaction is open on the copy; nobody can read beyond its beginning."""
    TARGET_MISSING = "TARGET_MISSING"
    """The target has no such topic or partition."""
    BOTH_WAYS = "BOTH_WAYS"
    """The topic is copied both ways under the same name: both logs have records of both clusters."""
    TRANSFORMED = "TRANSFORMED"
    """The copy has what transforms made of the records."""
    OTHER_TRANSFORMS = "OTHER_TRANSFORMS"
    """The records were copied while other transforms were configured."""
    ROUTED = "ROUTED"
    """The records go to a topic that is not compared: it began meanwhile, or was deleted on the target."""
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    """Transforms made the record too large for the copy, and the file says that it is left out then."""
    TOO_DIFFERENT = "TOO_DIFFERENT"
    """So many consecutive records differ that their counterparts cannot be determined."""

    @property
    def is_harmless(self) -> bool:
        """Whether it leaves out nothing that both clusters could still hold."""
        return self in (
            NotComparedReason.SOURCE_RETENTION,
            NotComparedReason.EARLIER_TOPIC,
            NotComparedReason.LOST,
            NotComparedReason.TARGET_RETENTION,
            NotComparedReason.BEFORE_FIRST_COPY,
            NotComparedReason.RECORD_TOO_LARGE,
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
    """One record that differs, or `count` consecutive records that differ in the same way.

    `source_offset` is the record on the source; for a FOREIGN one, the record before which it stands.
    `target_offset` is the record on the target; for a MISSING one, the record before which it would stand.
    None: the end of the log.
    """

    kind: DifferenceKind
    source_offset: int | None
    target_offset: int | None
    count: int = 1
    changed: tuple[str, ...] = ()
    """The differing parts of CHANGED: key, value, headers, timestamp; offset, where the source's are
    promised."""
    found_in: str = ""
    """For MISSING and FOREIGN: the same record in another partition of the topic, as `topic-2@17`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """A range of offsets of one side that was not compared."""

    side: Side
    from_offset: int
    to_offset: int
    """First offset after the range."""
    reason: str
    """A `NotComparedReason`, or an error's reason."""
    detail: str = ""
    is_harmless: bool = False
    """True: the copy may be EQUAL nevertheless."""


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
    """For several gaps joined in one, with copied records between them: the number of lost offsets. None:
    all."""

    @property
    def is_joined(self) -> bool:
        return self.lost_of_joined is not None

    @property
    def lost_offsets(self) -> int:
        """Most lost offsets of the range."""
        return self.to_offset - self.from_offset if self.lost_of_joined is None else self.lost_of_joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The compared ranges of one partition.

    Everything below the goals must be explained. Records between a goal and its limit arrived while the
    bounds were taken, and are read only to find counterparts.
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
    """Ranges that the source no longer has, such as everything before its log's start."""
    only_on_target: NotComparedReason = NotComparedReason.SOURCE_RETENTION
    """Why the copy may have records that are in `source_lost`."""
    target_lost: tuple[Range, ...] = ()
    gaps: tuple[KnownGap, ...] = ()
    too_large: dict[int, str] = field(default_factory=dict)
    """Source records that were left out if the copy lacks them, and why: what reads the source adds them."""
    source_compacted: bool = False
    target_compacted: bool = False
    begins_anywhere: bool = False
    """The copy may begin later than the source, because the flow began at the end."""
    offsets_kept_from: int | None = None
    """Source offset from which the copy must have the source's offsets; None: not promised."""
    offsets_kept_until: int | None = None
    """Source offset from which a copy with the source's offsets has its own; None: it still has the
    source's."""
    head_is_free: bool = False
    """The target's records before the first record of the source's range belong to ranges that are not
    compared."""
    equal_until: int = 0
    """Source offset after the last record that was found equal before this range; 0: none."""
    source_log_start: int | None = None
    """The source's log start, if the range begins later: the search for originals of duplicates begins
    there."""
    tail_is_free: bool = False
    """The target's records after the last record of the source's range belong to ranges that are not
    compared."""

    @property
    def has_all_offsets(self) -> bool:
        """The whole copy must have the source's offsets."""
        return self.offsets_kept_from is not None and self.offsets_kept_until is None


@dataclass(slots=True, kw_only=True)
class PartitionProof:
    """The result for one partition."""

    source: TopicPartition
    target: TopicPartition
    source_from: int
    source_to: int
    """First source offset that the comparison did not reach."""
    target_from: int
    target_to: int
    records: int = 0
    """Records of the source with an equal record on the target."""
    unopened_records: int = 0
    """Those of `records` that were compared by the bytes of their batches."""
    continues_at: tuple[int, int] | None = None
    """Source and target offset after the last compared records, including those after the source's goal: a
    later comparison begins there. None: not known."""
    equal_until: int = 0
    """Source offset after the last equal record."""
    records_after_goal: int = 0
    """Found equal before `continues_at`, and not among `records`."""
    superseded_records: int = 0
    """Records of compacted topics on one side only, which a later record of the key explains."""
    target_compacted: bool = False
    """The copy is a compacted topic."""
    displaced_from: int | None = None
    """The first record of the source whose key has another record at the end of the compacted copy: its
    cleaner removes the copy of this one. None: none is known."""
    same_offsets: bool = True
    """Each compared record has the same offset on both sides."""
    offsets_promised: bool = False
    """The copy must have the source's offsets: another offset is a difference."""
    routed_from: str = ""
    """The topic whose records are compared, if the name of `source` is that of a route which they take."""
    one_origin: bool = False
    """The topic is copied both ways, so only what the source's own applications wrote is compared."""
    source_hash: str = ""
    """Order-sensitive hash of the compared batches of each side; empty = not known."""
    target_hash: str = ""
    bytes: int = 0
    """Bytes read of both sides, as stored."""
    differences: list[Difference] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    timestamps_compared: bool = True
    """False: (some) timestamps of the copy are its broker's own (LogAppendTime)."""
    unmatched: dict[tuple[Side, int], Hashable] = field(default_factory=dict)
    """Contents of the first MISSING and FOREIGN records, by side and offset: another partition may hold
    them."""

    @property
    def log(self) -> TopicPartition:
        """The partition of the source whose records are compared."""
        return TopicPartition(self.routed_from or self.source.topic, self.source.partition)

    @property
    def is_complete(self) -> bool:
        return all(each.is_harmless for each in self.not_compared)

    def not_read(self, error: TwinlogError, *, goal: int) -> None:
        """Note that the rest of the source, up to the offset `goal`, could not be read."""
        self.not_compared.append(
            NotCompared(
                side=Side.SOURCE,
                from_offset=self.source_to,
                to_offset=max(self.source_to, goal),
                reason=error.reason,
                detail=str(error),
            )
        )
