"""Finds the newest record of a key in a topic that was given more partitions.

A key's partition follows from its hash and the number of partitions. After that number has changed, old and
new records of a key are in different partitions, which are read one after the other: the record that is read
last need not be the newest. The same holds when a partition lost its tail and is read again from its start:
what was lost may be newer than what is there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from twinlog.wire.murmur2 import partition_for_key


@dataclass(slots=True)
class NewestRecords:
    """Within a partition the order of the log counts. Between two partitions the timestamp counts; for equal
    timestamps, the partition that the key has now. Records of a lost tail count as those of another
    partition."""

    _newest: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Key -> partition (its complement, ~n: read before it lost its tail) and timestamp of its newest
    record."""

    def is_superseded(
        self, key: bytes | None, partition: int, timestamp_ms: int, *, partition_count: int
    ) -> bool:
        """Whether a newer record of this key was already read; otherwise this one becomes the newest."""
        if key is None:
            return False
        before = self._newest.get(key)
        if before is not None and before[0] != partition and before[1] >= timestamp_ms:
            home = partition_for_key(key, partition_count)
            if (before[1], before[0] == home) >= (timestamp_ms, partition == home):
                return True
        self._newest[key] = partition, timestamp_ms
        return False

    def read_again(self, partition: int) -> None:
        """The partition has lost its tail and is read again from its start."""
        self._move(partition, ~partition)

    def was_read_again(self, partition: int) -> None:
        """All of the partition was read again: what follows is newer than what it has lost."""
        self._move(~partition, partition)

    def _move(self, before: int, after: int) -> None:
        for key, (partition, timestamp_ms) in self._newest.items():
            if partition == before:
                self._newest[key] = after, timestamp_ms

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget these keys: every partition was read to its end, so no older record of them will come; or
        the order of reading is to decide about them."""
        for key in keys:
            self._newest.pop(key, None)

    def __len__(self) -> int:
        return len(self._newest)
