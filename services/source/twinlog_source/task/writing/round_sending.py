"""How what was fetched is sent in a round: joined where the target is far away, and without waiting long for
partitions that failed last time."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.batches import CopyPolicy, OutgoingBatch
from twinlog.batches.joining import join
from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.model import TopicPartition
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import PreparedChunk
from twinlog_source.task.writing.round import Round
from twinlog_source.task.writing.transport import Transport

FAR_SECONDS = 0.008
"""From so long an answer on the target is far away: a round trip costs more there than joining small
batches and keeping two transactions."""
FEW_BYTES = 128 << 10
"""A round of so few bytes takes as long as its round trips do."""
DOUBTFUL_SECONDS = 1.0
"""For partitions that failed last time, once the others are written; a slow way may take longer for what it
carries of them."""


def doubtful_seconds(others_took: float, *, doubtful_bytes: int, other_bytes: int) -> float:
    """How much longer than the others doubtful partitions may take: twice what the way took for as much."""
    return max(DOUBTFUL_SECONDS, 2 * others_took * doubtful_bytes / max(other_bytes, 1))


@dataclass(slots=True, kw_only=True)
class RoundSending:
    copies: Mapping[TopicPartition, PartitionCopy]
    policies: Mapping[TopicPartition, CopyPolicy]
    target_throttled: Callable[[], bool]
    """Whether a quota of the target holds requests back now."""
    clock: Clock
    late: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    """What the others of the present round did not wait for any longer."""
    _way_seconds: float = 0.0
    """How long the target took for a round of few bytes, without its commit."""

    @property
    def is_far(self) -> bool:
        # Rounds that overlap under a quota would only wait for it one behind the other.
        return self._way_seconds >= FAR_SECONDS and not self.target_throttled()

    def collect(self, current: Round, chunk: PreparedChunk) -> None:
        current.chunks.append(chunk)
        chunk.copy.sent = chunk.prepared.next_offset
        chunk.copy.rounds += 1
        current.size_bytes += sum([batch.size_bytes for batch in chunk.prepared.batches])

    def send(self, transport: Transport, current: Round) -> None:
        """Begins the transaction of the round when there is something to send."""
        for copy, batches in self._batches(current):
            target = TopicPartition(copy.target_topic, copy.partition.partition)
            for batch in batches:
                if current.transaction is None:
                    current.transaction = transport.begin()
                current.sent.append((copy, batch, current.transaction.send(target, batch)))

    async def await_doubtful(self, current: Round) -> None:
        """Partitions that failed last time may not hold up the others for as long as a delivery may take.
        Raises KafkaError when they would; `late` has it of each."""
        doubtful = [(copy, sent) for copy, _, sent in current.sent if copy.failures]
        others = [sent for copy, _, sent in current.sent if not copy.failures]
        if not doubtful or not others:
            return
        await asyncio.wait(others)  # bounded by the producer's deadline
        patience_seconds = doubtful_seconds(
            self.clock.monotonic() - current.began_at,
            doubtful_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if copy.failures),
            other_bytes=sum(batch.size_bytes for copy, batch, _ in current.sent if not copy.failures),
        )
        _, late = await asyncio.wait([sent for _, sent in doubtful], timeout=patience_seconds)
        for copy, sent in doubtful:
            if sent in late:
                reason = copy.reason_before or "KAFKA_TIMEOUT"
                error = TransientKafkaError(f"{copy.partition}: still not written", reason=reason)
                self.late[copy.partition] = error
        if self.late:
            raise next(iter(self.late.values()))

    def written(self, current: Round) -> None:
        """All of the round is acknowledged, and its positions are."""
        if current.size_bytes <= FEW_BYTES and not self.target_throttled():
            self._way_seconds = self.clock.monotonic() - current.began_at

    def _batches(self, current: Round) -> Iterator[tuple[PartitionCopy, Sequence[OutgoingBatch]]]:
        if not self.is_far:
            for chunk in current.chunks:
                yield chunk.copy, chunk.prepared.batches
            return
        # A request takes one batch of a partition: small ones that follow one another would wait in turn.
        by_copy: dict[TopicPartition, list[OutgoingBatch]] = {}
        for chunk in current.chunks:
            by_copy.setdefault(chunk.copy.partition, []).extend(chunk.prepared.batches)
        for partition, batches in by_copy.items():
            yield self.copies[partition], join(batches, target=self.policies[partition].target)
