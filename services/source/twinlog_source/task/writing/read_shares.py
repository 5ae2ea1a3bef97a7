"""How much of each preserved copy may be read and not yet acknowledged. No I/O."""

from dataclasses import dataclass, field

from twinlog.model import TopicPartition

BUFFERED_BYTES = 64 << 20
"""The limit for all partitions: bytes that were read and not acknowledged."""
LEAST_SHARE_BYTES = 1 << 20
"""The least that one partition gets, however many there are: about one fetch."""


def share_bytes(active: int) -> int:
    """The buffer of each of this many partitions with unacknowledged records."""
    return max(BUFFERED_BYTES // max(active, 1), LEAST_SHARE_BYTES)


@dataclass(slots=True)
class ReadShares:
    """Partitions with unacknowledged bytes have equal shares of `BUFFERED_BYTES`."""

    _active: set[TopicPartition] = field(default_factory=set)

    def is_used_up(self, partition: TopicPartition, outstanding_bytes: int) -> bool:
        """Note how many bytes of the partition are unacknowledged; return whether that is its share."""
        if outstanding_bytes > 0:
            self._active.add(partition)
        else:
            self._active.discard(partition)
        return outstanding_bytes >= share_bytes(len(self._active))

    def leave(self, partition: TopicPartition) -> None:
        """Nothing more of it is read."""
        self._active.discard(partition)
