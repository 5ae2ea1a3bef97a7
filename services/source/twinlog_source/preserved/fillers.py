"""Who fills holes: markers at the leader where the target allows them, transactions for the rest
(docs/adr/0014)."""

from collections.abc import Callable, Mapping
from typing import Protocol

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog_source.preserved.fill_limits import MOST_AT_LEADER, FillLimit

Holes = Mapping[TopicPartition, tuple[int, int]]
"""First offset and count, by partition."""
Ended = Callable[[TopicPartition, bool], None]
"""Told of a partition when what was done there has ended, and whether its hole is filled for certain."""
LeftOut = Callable[[TopicPartition, KafkaError], None]
"""Told of a partition that cannot be filled now, as of one without a leader: no other one waits for it."""


class HoleFiller(Protocol):
    """`open` before `fill`; used by one task of the event loop at a time."""

    most_markers: int
    """The longest hole that is filled so that no consumer sees anything of it; known once it is open."""

    @property
    def is_open(self) -> bool:
        """It may fill, and nothing of an earlier try can come late."""
        ...

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None:
        """What the partition takes; one that nothing is known of is filled as Kafka's defaults allow."""
        ...

    async def open(self) -> None:
        """Get ready, also after a failure: what its former owner was ending is written when this returns.
        Raises KafkaError."""
        ...

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut) -> None:
        """Fill `count` offsets from `first` on, at the end of each log. Each partition is told of once. After
        an error, which those met that were not told of, it has to be opened again.

        Raises KafkaError (PRODUCER_FENCED when another owner has taken over; FILL_REFUSED when a leader takes
        no empty records, with the partition in the metadata).
        """
        ...


class LeaderMarkers(Protocol):
    """Fills holes by markers that leaders write."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_allowed(self) -> bool:
        """Whether the target let us when the task began; known once it is open."""
        ...

    async def open(self) -> None: ...

    async def fill(
        self, holes: Holes, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """As `HoleFiller.fill`. Returns what of the holes is left to transactions."""
        ...


class ChosenFiller:
    """Markers where they are allowed, transactions for what they leave. What is promised to be filled unseen
    because of markers stays so without them: by as many transactions, however long that takes."""

    def __init__(self, transactions: HoleFiller, markers: LeaderMarkers) -> None:
        self._transactions = transactions
        self._markers = markers
        self.most_markers = transactions.most_markers

    @property
    def is_open(self) -> bool:
        return self._transactions.is_open and self._markers.is_open

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None:
        self._transactions.note_limit(partition, limit)

    async def open(self) -> None:
        if not self._transactions.is_open:
            await self._transactions.open()
        if not self._markers.is_open:
            await self._markers.open()
        if self._markers.is_allowed:
            self.most_markers = self._transactions.most_markers = MOST_AT_LEADER

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut) -> None:
        rest = await self._markers.fill(holes, ended, left_out)
        if rest:
            await self._transactions.fill(rest, ended, left_out)
