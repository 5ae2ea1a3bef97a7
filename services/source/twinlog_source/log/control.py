"""The facts of a flow that are in force, as read from the log or written to it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog_source.log.fact_records import KIND_OF, ControlRecord
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
    TransformsFact,
    WriterFact,
    ZeroFact,
)

_OF_PARTITION = {
    "zero": "zeros",
    "epochs": "leader_epochs",
    "target": "targets",
    "copy": "copies",
    "origin": "origins",
    "transforms": "transforms",
    "proof": "proofs",
    "foreign": "foreign",
}
"""By kind: where `ControlState` has such facts."""


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
    zeros: dict[TopicPartition, ZeroFact] = field(default_factory=dict)
    leader_epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    targets: dict[TopicPartition, TargetFact] = field(default_factory=dict)
    copies: dict[TopicPartition, CopyFact] = field(default_factory=dict)
    writer: WriterFact | None = None
    producers: dict[int, ProducerFact] = field(default_factory=dict)
    restoring: RestoreFact | None = None
    proofs: dict[TopicPartition, ProofFact] = field(default_factory=dict)
    foreign: dict[TopicPartition, ForeignFact] = field(default_factory=dict)
    origins: dict[TopicPartition, OriginFact] = field(default_factory=dict)
    transforms: dict[TopicPartition, TransformsFact] = field(default_factory=dict)

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
        for name in ("topics", "pauses", "throttles", *_OF_PARTITION.values()):
            getattr(self, name).clear()
        self.writer = self.restoring = None

    def to_write_again(self) -> Iterator[Fact]:
        """All but producers, the owner and the claim."""
        for name in ("topics", "pauses", "throttles", *_OF_PARTITION.values()):
            if name != "leader_epochs":
                yield from getattr(self, name).values()
        for partition, epochs in self.leader_epochs.items():
            yield LeaderEpochsFact(partition=partition, epochs=epochs)
        if self.writer is not None:
            yield self.writer

    def apply(self, record: ControlRecord) -> None:
        """Apply a record of the log."""
        if record.fact is None:
            self.retract(record.kind, record.topic, record.partition)
        else:
            self.record(record.fact)

    def record(self, fact: Fact) -> None:
        """The fact is on the log."""
        match fact:
            case ClaimFact():
                if self.claim is not None and self.claim.instance != fact.instance:
                    self.former_claim = self.claim
                self.claim = fact
            case OwnerFact():
                self.owner = fact
            case WriterFact():
                self.writer = fact
            case RestoreFact():
                self.restoring = fact
            case TopicFact():
                self.topics[fact.topic] = fact
            case PauseFact():
                self.pauses[fact.topic, fact.partition] = fact
            case ThrottleFact():
                self.throttles[fact.topic] = fact
            case ProducerFact():
                self.producers[fact.producer_id] = fact
            case LeaderEpochsFact():
                self.leader_epochs[fact.partition] = fact.epochs
            case _:
                getattr(self, _OF_PARTITION[KIND_OF[type(fact)]])[fact.partition] = fact

    def retract(self, kind: str, topic: str | None = None, number: int | None = None) -> None:
        """The fact was removed from the log."""
        if kind == "pause":
            self.pauses.pop((topic, number), None)
        elif kind == "throttle":
            self.throttles.pop(topic, None)
        elif kind == "restore":
            self.restoring = None
        elif topic is not None and number is not None and kind in _OF_PARTITION:
            getattr(self, _OF_PARTITION[kind]).pop(TopicPartition(topic, number), None)
