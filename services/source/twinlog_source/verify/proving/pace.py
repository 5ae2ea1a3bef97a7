"""The speed at which one side is read, all partitions together."""

import asyncio
from dataclasses import dataclass, field

from twinlog.service.waiting import wait_or_stop
from twinlog_source.task.reading.throttle import Bucket

_LEAST_FETCH_BYTES = 64 << 10
_SHORTEST_WAIT_SECONDS = 0.01


@dataclass(slots=True)
class Pace:
    """`bytes_per_second` 0 = no limit. The wait follows each fetch."""

    bytes_per_second: int
    read_bytes: int = 0
    _bucket: Bucket | None = field(init=False, default=None)
    _never: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.bytes_per_second > 0:
            self._bucket = Bucket(bytes_per_second=self.bytes_per_second)

    def most_bytes(self, wanted: int) -> int:
        """The size limit of a fetch."""
        if self._bucket is None:
            return wanted
        return max(_LEAST_FETCH_BYTES, min(wanted, int(self._bucket.burst_bytes)))

    async def wait(self) -> None:
        """Wait until the next fetch may begin."""
        loop = asyncio.get_running_loop()
        while self._bucket is not None and not self._bucket.allows(loop.time()):
            await wait_or_stop(self._never, max(_SHORTEST_WAIT_SECONDS, self._bucket.owed_seconds))

    def spend(self, size_bytes: int) -> None:
        self.read_bytes += size_bytes
        if self._bucket is not None:
            self._bucket.spend(size_bytes, asyncio.get_running_loop().time())
