"""The facts of a flow that are in force, as read from the log or written to it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog_source.log.facts import (
    ClaimFact,
    CopyFact,
    EpochStart,
    Fact,
    ForeignFact,
    LeaderEpochsFact,
    OriginFact,
    OwnerFact,
    PauseFact,
    ProducerFact,
    ProofFact,
    RestoreFact,
    TargetFact,
    ThrottleFact,
    TopicFact,
    WriterFact,
    ZeroFact,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record: a fact and its value (None = withdrawn)."""

    kind: str
    topic: str | None
    partition: int | None
    fact: Fact | None


@dataclass(slots=True, kw_only=True)
class ControlState:
    """The newest value of each fact read so far. Changed only by `record` and `retract`, after the log."""

    claim: ClaimFact | None = None
    former_claim: ClaimFact | None = None
    """The newest claim of another process, if the log still has it."""
    owner: OwnerFact | None = None
    topics: dict[str, TopicFact] = field(default_factory=dict)
    pauses: dict[tuple[str | None, int | None], PauseFact] = field(default_factory=dict)
    throttles: dict[str | None, ThrottleFact] = field(default_factory=dict)
    zeros: set[TopicPartition] = field(default_factory=set)
    leader_epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    targets: dict[TopicPartition, TargetFact] = field(default_factory=dict)
    copies: dict[TopicPartition, CopyFact] = field(default_factory=dict)
    writer: WriterFact | None = None
    producers: dict[int, ProducerFact] = field(default_factory=dict)
    restoring: RestoreFact | None = None
    proofs: dict[TopicPartition, ProofFact] = field(default_factory=dict)
    foreign: dict[TopicPartition, ForeignFact] = field(default_factory=dict)
    origins: dict[TopicPartition, OriginFact] = field(default_factory=dict)

    def pause_of(self, partition: TopicPartition) -> PauseFact | None:
        """The widest operator's pause that includes a partition: of its flow, its topic or itself."""
        scopes = ((None, None), (partition.topic, None), (partition.topic, partition.partition))
        return next((self.pauses[scope] for scope in scopes if scope in self.pauses), None)

    def is_paused(self, partition: TopicPartition) -> bool:
        return self.pause_of(partition) is not None

    def paused(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of them that an operator's pause includes."""
        return frozenset(filter(self.is_paused, partitions)) if self.pauses else frozenset()

    def is_own(self, producer_id: int, cluster_id: str) -> bool:
        """Whether batches of this producer on the target, which has this cluster id, are the flow's."""
        known = self.producers.get(producer_id)
        return known is not None and known.cluster_id == cluster_id

    def forget(self) -> None:
        """Forget everything that others may have removed from the log: it is read again."""
        self.zeros.clear()
        for facts in (
            self.topics,
            self.pauses,
            self.throttles,
            self.leader_epochs,
            self.targets,
            self.copies,
            self.proofs,
            self.foreign,
            self.origins,
        ):
            facts.clear()
        self.writer = self.restoring = None

    def apply(self, record: ControlRecord) -> None:
        """Apply a record of the log."""
        if record.fact is None:
            self.retract(record.kind, record.topic, record.partition)
        else:
            self.record(record.fact)

    def record(self, fact: Fact) -> None:
        """The fact is on the log."""
        match fact:
            case ClaimFact() as claim:
                if self.claim is not None and self.claim.instance != claim.instance:
                    self.former_claim = self.claim
                self.claim = claim
            case OwnerFact() as owner:
                self.owner = owner
            case TopicFact() as topic:
                self.topics[topic.topic] = topic
            case PauseFact() as pause:
                self.pauses[pause.topic, pause.partition] = pause
            case ThrottleFact() as throttle:
                self.throttles[throttle.topic] = throttle
            case WriterFact() as writer:
                self.writer = writer
            case ProducerFact() as producer:
                self.producers[producer.producer_id] = producer
            case RestoreFact() as restoring:
                self.restoring = restoring
            case _:
                self._record_of_partition(fact)

    def _record_of_partition(
        self,
        fact: ZeroFact | LeaderEpochsFact | TargetFact | CopyFact | OriginFact | ProofFact | ForeignFact,
    ) -> None:
        match fact:
            case ZeroFact() as zero:
                self.zeros.add(zero.partition)
            case LeaderEpochsFact() as epochs:
                self.leader_epochs[epochs.partition] = epochs.epochs
            case TargetFact() as target:
                self.targets[target.partition] = target
            case CopyFact() as copy:
                self.copies[copy.partition] = copy
            case OriginFact() as origin:
                self.origins[origin.partition] = origin
            case ProofFact() as proof:
                self.proofs[proof.partition] = proof
            case ForeignFact() as foreign:
                self.foreign[foreign.partition] = foreign

    def retract(self, kind: str, topic: str | None = None, number: int | None = None) -> None:
        """The fact was removed from the log."""
        if kind == "pause":
            self.pauses.pop((topic, number), None)
        elif kind == "throttle":
            self.throttles.pop(topic, None)
        elif kind == "restore":
            self.restoring = None
        elif topic is not None and number is not None:
            self._retract_of_partition(kind, TopicPartition(topic, number))

    def _retract_of_partition(self, kind: str, partition: TopicPartition) -> None:
        match kind:
            case "zero":
                self.zeros.discard(partition)
            case "epochs":
                self.leader_epochs.pop(partition, None)
            case "target":
                self.targets.pop(partition, None)
            case "copy":
                self.copies.pop(partition, None)
            case "origin":
                self.origins.pop(partition, None)
            case "proof":
                self.proofs.pop(partition, None)
            case "foreign":
                self.foreign.pop(partition, None)
            case _:
                pass
