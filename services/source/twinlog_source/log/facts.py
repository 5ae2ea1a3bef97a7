"""The flow's own state next to the positions: who claimed it, who owns it, how many slots it ever used, what
its topics were, and of each partition what MM2's format cannot express: a position of 0, what the copied
records prove, and up to where the copy is proven.

Records of `mm2-offsets.<A>.internal` under a connector name of our own, which Connect leaves alone. Each
key names one fact, so compaction keeps the newest of every fact; a tombstone deletes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.model import TopicPartition

MOST_SLOTS = 1_024
"""The limit for a flow, whatever the file says. Each slot has several transactional ids, which every new
owner fences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFact:
    """Who took the flow over last. Written before the ids of all earlier owners are fenced."""

    instance: str
    at_ms: int
    rules: str = ""
    """Fingerprint of what its file selects (`selection_fingerprint`); empty = not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFact:
    """The process that copies the flow now."""

    instance: str
    slots: int
    """The most slots that any owner used: their transactional ids are fenced by the next one."""
    renewed_at_ms: int
    keeps_offsets: bool = True
    """It writes preserved copies as such; a version that does not know of them continues them as
    translated ones."""
    left_at: tuple[int, ...] = ()
    """It stopped in order: the ends of the positions topic by partition number. What lies behind was written
    by others. Empty while it copies, and when it ended otherwise."""
    left_at_rest: bool = False
    """It has given the flow back, and no write of its tasks to preserved copies is on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFact:
    """A source topic as it was when its positions began."""

    topic: str
    topic_id: str
    """Kafka's id: another one means that the positions are of a topic that is gone."""
    known_partitions: int
    """Partitions it had when the flow first saw it: later ones are copied from their earliest record."""
    target_topic_id: str = ""
    """Id of the copy: another one means that what was copied is gone."""
    left: bool = False
    """configsync said that no rule selects it any more. While configsync is away that still holds: the rule
    may be newer than the file.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseFact:
    """An operator's pause of a flow (no topic), a topic (no partition) or a partition."""

    topic: str | None
    partition: int | None
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleFact:
    """A limit of a flow (no topic) or a topic."""

    topic: str | None
    bytes_per_second: int
    by: str = ""
    at_ms: int = 0
    """0 and no name: set by a version that did not note them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroFact:
    """A partition that is copied from offset 0. MM2's format has no value for that: without a record its
    reset policy decides. It stands until the first position above 0 takes it back."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class EpochStart:
    """From `offset` on, what was copied had been written under `leader_epoch`."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsFact:
    """The leader epochs of what was copied, oldest first. The last one is always that of the record before
    the position: both are written in one transaction."""

    partition: TopicPartition
    epochs: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFact:
    """How far the copy reached when this was written: a target log that ends earlier has lost records."""

    partition: TopicPartition
    topic_id: str
    end_offset: int
    """Target offset after the last record written."""
    position: int
    """The source position at that moment."""
    held_from: int | None = None
    """Source offset at or before the first record that the copy held then, if the source has no holes there;
    None = not known, -1 on the log."""
    noted_at_ms: int | None = None
    """When; None = a version that did not say wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFact:
    """Whether a copy keeps its source's offsets. Decided once for a target topic; a preserved copy may become
    translated, never the other way round."""

    partition: TopicPartition
    preserved: bool
    since: int
    """Source offset from which on that holds."""
    reason: str
    """Stable reason why it is translated; empty while it is preserved."""
    target_topic_id: str
    """Id of the copy it speaks of: for another one it is decided again."""
    skip_from: int = 0
    """First source offset of the newest range that a preserved copy does not hold."""
    skip_to: int = 0
    """First one after it."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which a preserved copy was checked up to the stored position.
    None = not known."""
    common_until: int = 0
    """Below this offset lie records of the source that others wrote to a preserved copy: before it began, or
    while it was at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFact:
    """The idempotent producer that writes all preserved copies of the flow, under every owner."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFact:
    """What the standing proof knows of a copy: the next owner continues from it."""

    partition: TopicPartition
    verdict: str
    proven_until: int
    """Source offset."""
    proven_at_ms: int
    checked_at_ms: int
    differences: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    reason: str = ""
    ranges: str = ""
    """The proven ranges of both sides, as `ProvenRanges` keeps them; empty: nothing is proven from the
    beginning on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFact:
    """An import of exported state is under way, or was cut off: what is on the log is not whole."""

    import_id: str
    """Which file."""
    at_ms: int


Fact = (
    ClaimFact
    | OwnerFact
    | TopicFact
    | PauseFact
    | ThrottleFact
    | ZeroFact
    | LeaderEpochsFact
    | TargetFact
    | CopyFact
    | WriterFact
    | ProofFact
    | RestoreFact
)
