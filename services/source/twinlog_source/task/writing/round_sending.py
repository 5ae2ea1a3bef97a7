"""How a round is sent: small batches are joined for a distant target, and partitions that failed last time do
not delay the others for long."""

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
"""A target whose answers take this long is distant: a round trip costs more than joining small batches and
keeping two transactions."""
FEW_BYTES = 128 << 10
"""A round with this few bytes takes as long as its round trips."""
DOUBTFUL_SECONDS = 1.0
"""The time for partitions that failed last time, after the others are written; more on a slow way with much
data."""


def doubtful_seconds(others_took: float, *, doubtful_bytes: int, other_bytes: int) -> float:
    """How much longer than the others doubtful partitions may take: twice the time that the same amount
    took."""
    return max(DOUBTFUL_SECONDS, 2 * others_took * doubtful_bytes / max(other_bytes, 1))


@dataclass(slots=True, kw_only=True)
class RoundSending:
    copies: Mapping[TopicPartition, PartitionCopy]
    policies: Mapping[TopicPartition, CopyPolicy]
    target_throttled: Callable[[], bool]
    """Whether a quota of the target delays requests now."""
    clock: Clock
    dead_letters: TopicPartition | None = None
    """Where records go that could not be changed."""
    late: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    """Partitions of the present round that the others no longer wait for, with the error."""
    _way_seconds: float = 0.0
    """How long the target took for a round with few bytes, without its commit."""

    @property
    def is_far(self) -> bool:
        # Under a quota, overlapping rounds would only wait one behind the other.
        return self._way_seconds >= FAR_SECONDS and not self.target_throttled()

    def collect(self, current: Round, chunk: PreparedChunk) -> None:
        current.chunks.append(chunk)
        chunk.copy.send_to(chunk.prepared.next_offset, chunk.prepared.leader_epochs)
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
        for batch in [each for chunk in current.chunks for each in chunk.dead_letters]:
            assert self.dead_letters is not None
            if current.transaction is None:
                current.transaction = transport.begin()
            current.transaction.send(self.dead_letters, batch)

    async def await_doubtful(self, current: Round) -> None:
        """Partitions that failed last time must not delay the others for a whole delivery time-out. Raises
        KafkaError when they would; `late` has the error of each."""
        doubtful = [(copy, sent) for copy, _, sent in current.sent if copy.failures]
        others = [sent for copy, _, sent in current.sent if not copy.failures]
        if not doubtful or not others:
            return
        await asyncio.wait(others)  # Bounded by the producer's deadline.
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
        """Return when all of the round, and its positions, are acknowledged."""
        if current.size_bytes <= FEW_BYTES and not self.target_throttled():
            self._way_seconds = self.clock.monotonic() - current.began_at

    def _batches(self, current: Round) -> Iterator[tuple[PartitionCopy, Sequence[OutgoingBatch]]]:
        if not self.is_far:
            for chunk in current.chunks:
                yield chunk.copy, chunk.prepared.batches
            return
        # A request takes one batch of a partition: small consecutive ones would wait in turn.
        by_copy: dict[TopicPartition, list[OutgoingBatch]] = {}
        for chunk in current.chunks:
            by_copy.setdefault(chunk.copy.partition, []).extend(chunk.prepared.batches)
        for partition, batches in by_copy.items():
            yield self.copies[partition], join(batches, target=self.policies[partition].target)
