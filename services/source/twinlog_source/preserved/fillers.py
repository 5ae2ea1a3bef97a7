"""Chooses how holes are filled: by markers written at the leader if the target allows it, otherwise by
transactions (docs/adr/0014)."""

from collections.abc import Callable, Mapping
from typing import Protocol

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog_source.preserved.fill_limits import MOST_AT_LEADER, FillLimit

Holes = Mapping[TopicPartition, tuple[int, int]]
"""First offset and count, by partition."""
Ended = Callable[[TopicPartition, bool], None]
"""Called for a partition when the attempt has ended there, with whether its hole is filled for certain."""
LeftOut = Callable[[TopicPartition, KafkaError], None]
"""Called for a partition that cannot be filled now, for instance without a leader; the others do not wait for
it."""

More = Callable[[], Holes]
"""Returns the holes that have to be filled since the last call, so that they do not wait for longer ones."""


def nothing_more() -> Holes:
    return {}


class HoleFiller(Protocol):
    """Call `open` before `fill`. For one asyncio task at a time."""

    most_markers: int
    """The longest hole that can be filled without any record visible to consumers; known once it is open."""

    @property
    def is_open(self) -> bool:
        """Whether it may fill, and nothing of an earlier attempt can arrive late."""
        ...

    def note_limit(self, partition: TopicPartition, limit: FillLimit) -> None:
        """Set the limits of a partition; Kafka's defaults apply to others."""
        ...

    async def open(self) -> None:
        """Get ready, also after a failure. Transactions that the former owner was ending have ended when this
        returns. Raises KafkaError."""
        ...

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        """Fill `count` offsets from `first` on, at the end of each log, and then what `more` returns. Each
        hole is reported once. After an error, which applies to the holes that were not reported, it has to be
        opened again.

        Raises KafkaError (PRODUCER_FENCED when another owner has taken over; FILL_REFUSED when a leader
        accepts no empty records, with the partition in the metadata).
        """
        ...


class LeaderMarkers(Protocol):
    """Fills holes by markers that leaders write."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_allowed(self) -> bool:
        """Whether the target allowed it when the task began; known once it is open."""
        ...

    async def open(self) -> None: ...

    async def fill(
        self, holes: Holes, ended: Ended, left_out: LeftOut
    ) -> dict[TopicPartition, tuple[int, int]]:
        """As `HoleFiller.fill`. Returns the rest of the holes, for transactions."""
        ...


class ChosenFiller:
    """Fills by markers where they are allowed, and by transactions otherwise. If a hole was promised to be
    filled invisibly because of markers, it is filled invisibly without them too: by one transaction for each
    offset, however long that takes."""

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

    async def fill(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        rest = await self._markers.fill(holes, ended, left_out)
        if rest:
            # Other holes wait for these, if leaders write their markers: that is faster.
            more = nothing_more if self._markers.is_allowed else more
            await self._transactions.fill(rest, ended, left_out, more)
