"""The content of one transaction of a task, from its first record until its commit is answered."""

import asyncio
from dataclasses import dataclass, field

from twinlog.batches import OutgoingBatch
from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog_source.log.facts import EpochStart
from twinlog_source.task.partition import PartitionCopy
from twinlog_source.task.reading.source_reader import PreparedChunk
from twinlog_source.task.writing.transport import Transaction


@dataclass(slots=True)
class Round:
    """The content of one transaction."""

    chunks: list[PreparedChunk] = field(default_factory=list)
    sent: list[tuple[PartitionCopy, OutgoingBatch, "asyncio.Future[int]"]] = field(default_factory=list)
    size_bytes: int = 0
    began_at: float = 0.0
    """Monotonic seconds."""
    transaction: Transaction | None = None
    epochs: dict[TopicPartition, tuple[EpochStart, ...]] = field(default_factory=dict)
    """The leader epochs after it, of partitions that continue under another leader."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The positions that it stores."""
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    """Those of them that moved without data."""
    extra_count: int = 0
    """The number of Twinlog's own records that it stores."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its commit was requested: only then may another round begin."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its commit succeeded or failed."""
    failure: KafkaError | None = None

    def stores(self, copy: PartitionCopy) -> bool:
        """Whether it stores the copy's present position. Not if the copy was moved again since: that position
        has to be stored in one transaction with the records that explain it."""
        stored, moved = self.positions.get(copy.partition), self.moved.get(copy.partition)
        return stored is not None and (stored != moved or moved == copy.committed)
