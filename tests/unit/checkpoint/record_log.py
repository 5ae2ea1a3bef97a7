"""The log of a fake cluster, as a comparison reads it."""

from collections.abc import Collection
from typing import cast

from twinlog.comparison.sides import Chunk
from twinlog.kafka.ports import LogReader
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeReader


class RecordLog:
    def __init__(self, reader: LogReader) -> None:
        self._reader = cast("FakeReader", reader)

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """The reader finds each by itself."""

    async def read(self, partition: TopicPartition, offset: int, *, max_bytes: int) -> Chunk:
        fetched = await self._reader.fetch(partition, offset, max_wait_seconds=0, max_bytes=max_bytes)
        size = sum(len(each.key or b"") + len(each.value or b"") for each in fetched.records)
        return Chunk(
            batches=tuple(self._reader.batches(partition, offset, fetched.next_offset)),
            next_offset=fetched.next_offset,
            size_bytes=size or int(fetched.next_offset > offset),
        )
