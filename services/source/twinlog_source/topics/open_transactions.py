"""Finds partitions of the source that cannot be copied further because a transaction is open.

The last stable offset stands still there while the log grows behind it. The lag does not show it, because it
ends at the last stable offset.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from twinlog.backoff import Pace
from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.kafka.raw import OpenTransaction
from twinlog.model import TopicPartition
from twinlog_source.partitions.events import OpenTransactionsSeen
from twinlog_source.partitions.table import PartitionTable

LOOKS = Pace(shortest_seconds=15.0, per_second=2)
"""Each asks for the ends of all partitions."""
LONG_SECONDS = 60.0
"""Producers ask for a `transaction.timeout.ms` of a minute by default, and brokers abort what is open for
longer. So an open transaction is nothing special before; later it hangs, or its producer asked for more time:
then the copy stands still for longer than most expect."""
PARTITIONS_AT_ONCE = 100
"""The most partitions whose leaders are asked which transaction it is."""


@dataclass(slots=True, kw_only=True)
class OpenTransactions:
    """Those of one flow that copies committed records only."""

    source: LogAdmin
    ask: Callable[
        [Collection[TopicPartition]],
        Awaitable[Mapping[TopicPartition, Sequence[OpenTransaction] | KafkaError]],
    ]
    """Asks the leaders of partitions. Raises KafkaError."""
    table: PartitionTable
    clock: Clock
    _still: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """By partition with records behind it: the last stable offset, and since when it is this one."""

    async def look(self) -> None:
        """Tell the table which partitions stand still behind a transaction. Never raises KafkaError: what
        cannot be read stays as it was."""
        stable = {partition: row.end for partition, row in self.table.rows.items() if row.end is not None}
        try:
            written = await self.source.list_offsets(OffsetSpec.LATEST, stable) if stable else {}
        except KafkaError:
            return
        now = self.clock.monotonic()
        still = self._standing(stable, written, now)
        held = sorted(partition for partition, seconds in still.items() if seconds >= LONG_SECONDS)
        found: Mapping[TopicPartition, Sequence[OpenTransaction] | KafkaError] = {}
        if held:
            with suppress(KafkaError):  # Brokers before 2.8 do not tell.
                found = await self.ask(held[:PARTITIONS_AT_ONCE])
        words = {partition: _words(found.get(partition), stable[partition]) for partition in held}
        # One that was not seen before may have begun just now.
        waiting = {partition for partition, seconds in still.items() if 0 < seconds < LONG_SECONDS}
        self.table.apply(OpenTransactionsSeen(words=words, waiting=waiting), now)

    def _standing(
        self,
        stable: Mapping[TopicPartition, int],
        written: Mapping[TopicPartition, int | KafkaError],
        now: float,
    ) -> dict[TopicPartition, float]:
        """The partitions with records behind their last stable offset, and for how many seconds that has
        stood still."""
        before, self._still = self._still, {}
        for partition, offset in stable.items():
            end = written[partition]
            if isinstance(end, KafkaError):
                end = offset + 1 if partition in before else offset
            if end > offset:
                known, since = before.get(partition, (offset, now))
                self._still[partition] = offset, since if known == offset else now
        return {partition: now - since for partition, (_, since) in self._still.items()}


def _words(found: Sequence[OpenTransaction] | KafkaError | None, stable: int) -> str:
    if found is None or isinstance(found, KafkaError) or not found:
        return f"a transaction is open from offset {stable}: nothing behind it can be copied"
    first = min(found, key=lambda each: each.first_offset)
    return f"{first}: nothing behind it can be copied"
