"""The producer ids of a flow, stored on the positions topic before their first use, and whose positions are
the flow's own by them (docs/adr/0015).

No id is removed, because a log of the flow may hold batches of it: a compacted copy for ever. There are few:
who initialises a transactional id again keeps its producer id, and so does who goes on after a failure in the
same process. A new one comes with each process, with each task of a flow without transactions, and every
32,767 transactions of version 2: some fifty a day for a slot that commits twenty times a second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twinlog.clock import Clock
from twinlog.model import TopicPartition
from twinlog_source.log.control import ControlState
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import FOUND, JOURNAL, OwnerFact, ProducerFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog

FOREIGN_AFTER_MS = 60_000
"""For a release that recorded no producers: a position that was written this long after the last signature of
a killed owner was not written by that owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    journal: Journal
    control: ControlState
    cluster_id: Callable[[str], str | None]
    """By alias; known before the flow is taken over."""
    clock: Clock

    @property
    def target_id(self) -> str:
        return self.cluster_id(self.journal.flow.target) or ""

    async def store(self, names: Mapping[int, str]) -> None:
        """Store ids that are not known, with the names of those who write with them. Raises KafkaError."""
        facts = [self._fact(producer_id, name) for producer_id, name in names.items()]
        new = [fact for fact in facts if not self._is_stored(fact)]
        await self.journal.record_all(new)
        for fact in new:
            self.control.record(fact)

    def _is_stored(self, fact: ProducerFact) -> bool:
        known = self.control.producers.get(fact.producer_id)
        return known is not None and (known.cluster_id, known.source_cluster_id) == (
            fact.cluster_id,
            fact.source_cluster_id,
        )

    def introduction(self, producer_id: int) -> tuple[TopicPartition, bytes, bytes]:
        """The first record of a producer of the journal."""
        key, value = fact_record(self.journal.flow.source, self._fact(producer_id, JOURNAL))
        return self.journal.place_of(key), key, value

    def _fact(self, producer_id: int, name: str) -> ProducerFact:
        return ProducerFact(
            producer_id=producer_id,
            name=name,
            cluster_id=self.target_id,
            source_cluster_id=self.cluster_id(self.journal.flow.source) or "",
            at_ms=self.clock.now_ms(),
        )


def foreign_positions(log: PositionsLog, cluster_id: str) -> set[TopicPartition]:
    """The partitions whose newest position was not written by the flow: MirrorMaker 2 copied meanwhile, or
    somebody set positions. `cluster_id` is the target's.

    Where the last owner was of a release that recorded no producers, its positions are recognised by time:
    see `found_producers`.
    """
    owner = log.control.owner
    unknown = {
        partition: producer_id
        for partition, producer_id in log.written_by.items()
        if not log.control.is_own(producer_id, cluster_id)
    }
    if owner is None or owner.names_producers:
        return set(unknown)
    others = {unknown[partition] for partition in unknown if _is_behind(log, partition, owner)}
    return {partition for partition, producer_id in unknown.items() if producer_id in others}


def found_producers(log: PositionsLog, foreign: set[TopicPartition], cluster_id: str) -> dict[int, str]:
    """The unknown producers of positions that are not foreign, and that have something of the flow's beside
    them. That shows that the flow has copied there: others may be older than the flow, of MirrorMaker 2,
    which keeps its producer ids. They are known from then on."""
    control = log.control
    copied = control.leader_epochs.keys() | {each for each, copy in control.copies.items() if copy.preserved}
    return {
        producer_id: FOUND
        for partition in copied - foreign
        if (producer_id := log.written_by.get(partition, -1)) >= 0
        and not control.is_own(producer_id, cluster_id)
    }


def _is_behind(log: PositionsLog, partition: TopicPartition, owner: OwnerFact) -> bool:
    """Whether a position was written after its last owner had left, or was killed."""
    if owner.left_at:
        number, offset = log.written_at[partition]
        return number >= len(owner.left_at) or offset >= owner.left_at[number]
    return log.written_at_ms[partition] > owner.renewed_at_ms + FOREIGN_AFTER_MS
