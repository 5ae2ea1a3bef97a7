"""The facts of a flow that are stored next to its positions: who claimed and owns it, how many slots were
ever used, the identity of its topics; and for each partition what MM2's format cannot express: a position of
0, leader epochs, the kind of the copy, and how far it is proven.

Facts are records of `mm2-offsets.<A>.internal` under a connector name of Twinlog's own, which Connect
ignores. Each key names one fact, so compaction keeps the newest value of every fact; a tombstone deletes it.

How a writer of a flow learns that another process has taken the flow over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twinlog.model import TopicPartition

FENCED: Final = "PRODUCER_FENCED"
"""The reason of the error when ids are fenced, or a newer claim to the flow is found. It is final: the
target's log decides which position was reached."""


MOST_SLOTS = 1_024
MOST_FORMER_IDS = 16
"""The limit for a flow, whatever the file says: each slot has several transactional ids, which every new
owner has to fence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFact:
    """The process that claimed the flow last. Written before the ids of all earlier owners are fenced."""

    instance: str
    at_ms: int
    rules: str = ""
    """A fingerprint of its file's selection (`selection_fingerprint`); empty = unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerFact:
    """The process that copies the flow now."""

    instance: str
    slots: int
    """The most slots that any owner has used: the next owner fences their transactional ids."""
    renewed_at_ms: int
    keeps_offsets: bool = True
    """The owner knows preserved copies. A version that does not know them continues them as translated
    ones."""
    names_producers: bool = False
    """The owner recorded the producers of all positions that are its own (`ProducerFact`)."""
    left_at: tuple[int, ...] = ()
    """Of a release that recorded no producers, set by a clean stop: the ends of the positions topic by
    partition number; records behind them are foreign."""
    left_at_rest: bool = False
    """The owner has given the flow back, and no write of its tasks to preserved copies is in flight."""
    former_topics: tuple[str, ...] = ()
    """Positions topics, by Kafka's topic id, that were deleted, and of which the present one has all that was
    known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFact:
    """A source topic as it was when its positions began."""

    topic: str
    topic_id: str
    """Kafka's topic id. Another id means that the positions belong to a deleted topic."""
    known_partitions: int
    """The number of partitions when the flow first saw the topic; later partitions are copied from their
    earliest record."""
    target_topic_id: str = ""
    """The topic id of the copy. Another id means that the copied records are gone."""
    former_ids: tuple[str, ...] = ()
    """The ids of deleted topics of this name, the newest last. Kafka never uses an id twice, so who still
    reports one of these has not seen the present topic yet."""
    since_ms: int = 0
    """When the flow noticed that the topic had replaced a deleted one; 0 = it did not, or an earlier release
    noticed."""


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
    """0 and no name: set by a version that did not record them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroFact:
    """A partition that is copied from offset 0. MM2's format cannot express this position; without the fact,
    the partition would begin where auto.offset.reset says. The first position above 0 removes the fact."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class EpochStart:
    """From `offset` on, the copied records were written under `leader_epoch`."""

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochsFact:
    """The leader epochs of the copied records, oldest first. The last one always belongs to the record before
    the position, because both are written in one transaction."""

    partition: TopicPartition
    epochs: tuple[EpochStart, ...]


class CheckedEnd(NamedTuple):
    """Under this leader epoch the copy's log was seen to reach this offset. If the records of the epoch end
    earlier, the log has lost records, also if it has grown again since (KIP-320)."""

    leader_epoch: int
    end_offset: int
    position: int
    """The source position at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFact:
    """How far the copy reached when this was written. If the target's log ends earlier, it has lost
    records."""

    partition: TopicPartition
    topic_id: str
    end_offset: int
    """The target offset after the last record that was written; 0 = a preserved copy, which ends at its
    position."""
    position: int
    """The source position at that moment."""
    held_from: int | None = None
    """A source offset at or before the first record of the copy at that moment, if the source has no holes
    there; None = unknown, -1 on the log."""
    noted_at_ms: int | None = None
    """When this was written; None = a version that did not record it."""
    checked: CheckedEnd | None = None
    """None = not checked, or by a version that did not record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFact:
    """Whether a copy keeps the source's offsets. Decided once for a target topic; a preserved copy may become
    translated, but not the other way round."""

    partition: TopicPartition
    preserved: bool
    since: int
    """The source offset from which on this holds."""
    reason: str
    """Why the copy is translated; empty while it is preserved."""
    target_topic_id: str
    """The topic id of the copy; the decision is made again for another topic."""
    skip_from: int = 0
    """The first source offset of the newest range that a preserved copy does not contain."""
    skip_to: int = 0
    """The first offset after that range."""
    leader_epoch: int | None = None
    """The leader epoch of the target's log in which a preserved copy was checked up to the stored position.
    None = unknown."""
    common_until: int = 0
    """Below this offset the preserved copy contains records of the source that Twinlog did not write: from
    before the copy began, or while it was at rest."""

    @property
    def begins_at(self) -> int:
        """Where a preserved copy without a stored position continues."""
        return max(self.since, self.common_until)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFact:
    """The idempotent producer that writes all preserved copies of the flow, whichever process owns it."""

    producer_id: int
    producer_epoch: int


PRESERVED = "preserved"
JOURNAL = "journal"
FOUND = "found"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFact:
    """A producer id whose batches on the target are the flow's own (docs/adr/0015). It is on the log before
    anything is written with it, and stays there.

    The origin of a batch in a topic of the target, with this producer id: cluster `source_cluster_id`, and on
    it the topic of the `TopicFact` whose `target_topic_id` is the id of the topic with the batch: `topic_id`,
    or one of `former_ids` if the source topic was created again meanwhile. Without such a `TopicFact` the
    batch is in none of the flow's copies.
    """

    producer_id: int
    name: str
    """Who writes with it: a transactional id; empty = a task without transactions; `PRESERVED` = the writer
    of all preserved copies; `JOURNAL` = a driver or an import of state, which write to the positions topic
    only; `FOUND` = an owner of a release that recorded no ids."""
    cluster_id: str
    """The cluster that gave the id. On another one the same number is somebody else's."""
    source_cluster_id: str
    """The cluster that the flow copied from when this was written."""
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginFact:
    """Which records in a partition of a copy came from its source topic, beside the producer ids of the flow
    (docs/adr/0017). Written before the partition is first copied, under policies that keep names."""

    partition: TopicPartition
    target_topic_id: str
    topic_id: str
    """Kafka's id of the source topic."""
    since: int = 0
    """Target offset: what the flow wrote below it came from earlier source topics of this name."""
    unnamed_until: int = 0
    """Target offset: below it also lie copies whose producers are not known, of MirrorMaker 2 or a release
    that named none. Which records those are is not known, so all count as copies."""
    begins_at: int = 0
    """Target offset: what lies below it was there before the flow. Somebody who copies byte for byte may have
    left producer ids there that are the flow's here."""
    ids_topic_id: str = ""
    """The positions topic on the source, by Kafka's topic id, that said which batches of the partition are
    copies. If it is gone, nobody knows that of what is below the position."""


class TransformStart(NamedTuple):
    """From `offset` of the source on, records are changed as `digest` says (`TopicTransforms.digest`)."""

    digest: str
    """Empty = they are copied as they are."""
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformsFact:
    """By what the records of a copy were changed, the present transform last. Written before the first record
    is changed by it; what lies before the first start was copied as it is."""

    partition: TopicPartition
    target_topic_id: str
    """The topic id of the copy: another one begins anew."""
    starts: tuple[TransformStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFact:
    """What continuous verification has proven of a copy; the next owner continues from here."""

    partition: TopicPartition
    verdict: str
    proven_until: int
    """A source offset."""
    proven_at_ms: int
    checked_at_ms: int
    differences: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    reason: str = ""
    ranges: str = ""
    """The proven ranges of both sides, as `ProvenRanges` stores them; empty: verification begins at the
    start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFact:
    """What other producers wrote into a copy, as far as tasks have found it."""

    partition: TopicPartition
    topic_id: str
    """The topic id of the copy."""
    records: int
    """Those that nobody has acknowledged."""
    writes: tuple[tuple[int, ...], ...]
    """The fields of each `ForeignWrite`."""
    acknowledged_by: str = ""
    """Who acknowledged the others; empty = nobody, or an earlier release did not record it."""
    acknowledged_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFact:
    """An import of exported state is running or was interrupted: the state on the log is not complete."""

    import_id: str
    """Identifies the imported file."""
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
    | ProducerFact
    | OriginFact
    | TransformsFact
    | ProofFact
    | ForeignFact
    | RestoreFact
)
