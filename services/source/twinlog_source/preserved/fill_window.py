"""In which order transactions fill the holes of several partitions.

Each transaction writes one marker to each of its partitions. A hole joins the next transaction after it was
added, and leaves with its own last marker. So it waits for no longer hole of another partition, and for no
leader that is slow to show a marker.
"""

import asyncio
from asyncio import FIRST_COMPLETED
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog_source.log.fencing import FENCED
from twinlog_source.preserved.fillers import Ended, Holes, LeftOut, More, nothing_more

MORE_SECONDS = 0.02
"""How soon added holes are noticed while markers are looked for and nothing is written."""


@dataclass(slots=True)
class _Writing:
    """What is left to write of one hole."""

    empty: int
    """Empty records of the next transaction."""
    markers: int
    last: int
    """The last offset of the hole."""


@dataclass(slots=True, kw_only=True)
class FillWindow:
    """For one run. All callables but `markers_of` raise KafkaError."""

    led: Callable[[Holes, LeftOut], Awaitable[Holes]]
    """Returns the holes whose partitions have a leader, and passes the others on."""
    markers_of: Callable[[int], int]
    """How many markers a hole of this length gets; the rest are empty records of its first transaction."""
    prepare: Callable[[TopicPartition, int], Awaitable[None]]
    """Called before a partition gets this many empty records."""
    write: Callable[[Mapping[TopicPartition, int]], Awaitable[int]]
    """Runs a transaction with this many empty records, and returns its producer id."""
    is_filled: Callable[[TopicPartition, int, int], Awaitable[bool]]
    """Looks for the marker at this offset of this producer, and tells whether the log ends with it."""
    most_partitions: int
    """Of one transaction."""
    _waiting: deque[tuple[TopicPartition, tuple[int, int]]] = field(default_factory=deque)
    _writing: dict[TopicPartition, _Writing] = field(default_factory=dict)
    _failures: list[KafkaError] = field(default_factory=list)

    async def run(self, holes: Holes, ended: Ended, left_out: LeftOut, more: More = nothing_more) -> None:
        """As `HoleFiller.fill`. Ends when nothing is left to do, or after the first failure."""
        await self._add(holes, left_out)
        looks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while (self._waiting or self._writing or looks) and not self._failures:
                try:
                    if self._waiting or self._writing:
                        for partition, last, producer_id in await self._transaction():
                            look = self._look(partition, last, producer_id, ended)
                            name = f"wait for the marker at {partition}"
                            looks.add(group.create_task(look, name=name))
                    else:
                        await asyncio.wait(looks, timeout=MORE_SECONDS, return_when=FIRST_COMPLETED)
                    looks = {each for each in looks if not each.done()}
                    await self._add(more(), left_out)
                except KafkaError as error:
                    self._failures.append(error)
        if self._failures:
            raise first_to_tell(self._failures)

    async def _add(self, holes: Holes, left_out: LeftOut) -> None:
        """The shortest of them come first."""
        led = await self.led(holes, left_out) if holes else {}
        self._waiting.extend(sorted(led.items(), key=lambda item: self.markers_of(item[1][1])))

    async def _transaction(self) -> list[tuple[TopicPartition, int, int]]:
        """Run the next one; return the partitions whose last marker it wrote, its offset and its producer."""
        while self._waiting and len(self._writing) < self.most_partitions:
            partition, (first, count) = self._waiting.popleft()
            markers = self.markers_of(count)
            await self.prepare(partition, count - markers)
            self._writing[partition] = _Writing(count - markers, markers, first + count - 1)
        producer_id = await self.write({partition: each.empty for partition, each in self._writing.items()})
        for each in self._writing.values():
            each.empty = 0
            each.markers -= 1
        written = [partition for partition, each in self._writing.items() if not each.markers]
        return [(partition, self._writing.pop(partition).last, producer_id) for partition in written]

    async def _look(self, partition: TopicPartition, last: int, producer_id: int, ended: Ended) -> None:
        """The marker is in the log soon after the coordinator has answered."""
        try:
            ended(partition, await self.is_filled(partition, last, producer_id))
        except KafkaError as error:
            self._failures.append(error)


def first_to_tell(failures: Sequence[KafkaError]) -> KafkaError:
    """Of failures at the same time: that another owner has taken over counts before all others."""
    return next((error for error in failures if error.reason == FENCED), failures[0])
