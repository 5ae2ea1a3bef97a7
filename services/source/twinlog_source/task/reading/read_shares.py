"""How much of the preserved copies may be read and not yet acknowledged. No I/O."""

from dataclasses import dataclass

BUFFERED_BYTES = 64 << 20
"""The limit for all partitions: bytes that are held and not acknowledged."""
LEAST_SHARE_BYTES = 256 << 10
"""What one partition may have, and what one fetch asks of it, however many there are: for less than the usual
batch size a broker would send nothing."""
WHOLE_FETCH_BYTES = 1 << 20
"""What one fetch brings of a partition by default: with a larger share it is not limited."""
FEW = 8
"""While the buffer is full, this many partitions of which nothing is held are fetched at a time: what is held
may be waiting for a leader that does not answer."""
RESERVE_SHARE = 0.25
"""What those partitions may have together, as a share of the limit."""


@dataclass(slots=True)
class ReadShares:
    """Partitions with unacknowledged bytes have equal shares of the limit."""

    most_bytes: int = BUFFERED_BYTES
    held_bytes: int = 0
    """Of all partitions."""
    _active: int = 0
    """How many partitions have unacknowledged bytes."""

    def change(self, before_bytes: int, after_bytes: int) -> None:
        """Of one partition this much was held, and is held now."""
        self.held_bytes += after_bytes - before_bytes
        self._active += (after_bytes > 0) - (before_bytes > 0)

    @property
    def share_bytes(self) -> int:
        """What each partition with unacknowledged bytes may have."""
        return max(self.most_bytes // max(self._active, 1), LEAST_SHARE_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether only a few partitions may be fetched, and only those of which nothing is held."""
        return self.held_bytes >= self.most_bytes

    @property
    def few(self) -> int:
        """How many that are."""
        return FEW if self.held_bytes < self.most_bytes * (1 + RESERVE_SHARE) else 0

    @property
    def room_bytes(self) -> int:
        return self.most_bytes - self.held_bytes

    @property
    def is_overfull(self) -> bool:
        """Whether what was made of earlier answers of the same poll is so much more than was fetched that
        others have to be fetched again."""
        return self.held_bytes >= 2 * self.most_bytes
