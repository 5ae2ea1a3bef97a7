"""One replica's log of a partition."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

from twinlog.batches import BatchHeader


class LogSettings:
    """A topic's configs as its logs read them: the topic's own, then the brokers', then Kafka's defaults."""

    def __init__(self, configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
        self._configs = configs
        self._broker_configs = broker_configs

    def text(self, name: str, default: str) -> str:
        return self._configs.get(name, self._broker_configs.get(name, default))

    @property
    def max_message_bytes(self) -> int:
        return int(self.text("max.message.bytes", "1048588"))

    @property
    def is_log_append_time(self) -> bool:
        return self.text("message.timestamp.type", "CreateTime") == "LogAppendTime"

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.text("cleanup.policy", "delete").split(",")

    @property
    def min_insync_replicas(self) -> int:
        return int(self.text("min.insync.replicas", "1"))


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes


class PartitionLog:
    """Batches in the order of their offsets."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.epochs: list[tuple[int, int]] = []
        """Each leader epoch with the offset at which it began."""

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def append(self, batch: StoredBatch) -> None:
        """Take a batch whose offset and leader epoch are set."""
        epoch = batch.header.partition_leader_epoch
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, batch.header.base_offset))
        self.batches.append(batch)
        self.end_offset = batch.header.next_offset

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))

    def follow(self, leader: "PartitionLog") -> None:
        """Copy what the leader has beyond this log's end."""
        for batch in leader.batches[leader.index_of(self.end_offset) :]:
            self.append(batch)
        self.start_offset = leader.start_offset

    def index_of(self, offset: int) -> int:
        """The index of the batch that contains the offset, or of the next one."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.header.base_offset)
        if index and self.batches[index - 1].header.next_offset > offset:
            return index - 1
        return index
