"""The gap ledger while the flow runs: every gap is on the log, counted, and said once; the ledger stays
bounded."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import structlog

from twinlog.model import Flow, TopicPartition
from twinlog_source.log.gaps import Gap, GapIdentity, tidied
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Ledger:
    flow: Flow
    journal: Journal
    positions: PositionsLog
    on_gap: Callable[[Gap], None]
    _grown: set[TopicPartition] = field(default_factory=set)
    """Partitions with gaps since the ledger was tidied."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A range that is being acknowledged is not joined with others meanwhile."""

    async def write(self, gap: Gap) -> None:
        """A gap that the driver found; one of no offsets is none. Raises KafkaError."""
        if gap.from_offset >= gap.to_offset:
            return
        await self.journal.gap(gap)
        self.enter(gap)

    def enter(self, gap: Gap) -> None:
        """A gap that is on the log already."""
        self.positions.gaps[gap.identity] = gap
        self._grown.add(gap.partition)
        self.on_gap(gap)
        log.warning(
            "data_gap",
            flow=str(self.flow),
            topic=gap.partition.topic,
            partition=gap.partition.partition,
            from_offset=gap.from_offset,
            to_offset=gap.to_offset,
            reason=gap.reason,
        )

    async def remove(self, identities: Collection[GapIdentity]) -> None:
        """Take out what turned out not to be left out. For the flow's owner. Raises KafkaError."""
        async with self._changing:
            await self.journal.remove_gaps(identities)
            for identity in identities:
                self.positions.gaps.pop(identity, None)

    async def acknowledge(
        self, is_meant: Callable[[Gap], bool], *, by: str, now_ms: int
    ) -> tuple[Gap, ...] | None:
        """Note who knows of these gaps; return those that were new to everybody, None when no gap is meant.
        For the flow's owner. Raises KafkaError.
        """
        async with self._changing:
            held = self.positions.gaps
            meant = [gap for gap in held.values() if is_meant(gap)]
            new = [gap for gap in meant if not gap.acknowledged_by]
            acknowledged = tuple(replace(gap, acknowledged_by=by, acknowledged_at_ms=now_ms) for gap in new)
            await self.journal.gaps(acknowledged)
            for before, gap in zip(new, acknowledged, strict=True):
                # Not one that was found again meanwhile: nobody has seen that.
                if held.get(gap.identity) is before:
                    held[gap.identity] = gap
        return acknowledged if meant else None

    async def tidy(self, *, everything: bool = False) -> None:
        """Join ranges (see `tidied`) of partitions with new gaps, or of all of them. For the flow's owner.
        Raises KafkaError; what is on the log then is tidied the next time.

        A joined range is written before those that it holds are removed: a crash between the two leaves them
        beside each other, and nothing is forgotten.
        """
        async with self._changing:
            await self._tidy(everything=everything)

    async def _tidy(self, *, everything: bool) -> None:
        grown, self._grown = self._grown, set()
        gaps = self.positions.gaps
        before = {identity: gap for identity, gap in gaps.items() if everything or gap.partition in grown}
        after = {gap.identity: gap for gap in tidied(before.values())}
        joined = {identity: gap for identity, gap in after.items() if before.get(identity) != gap}
        held = before.keys() - after.keys()
        try:
            await self.journal.gaps(joined.values())
            await self.journal.remove_gaps(held)
        except BaseException:
            self._grown |= grown
            raise
        # Not those that were found again meanwhile: they are tidied the next time.
        unchanged = {identity for identity, gap in before.items() if gaps.get(identity) is gap}
        gaps.update((identity, gap) for identity, gap in joined.items() if identity in unchanged)
        for identity in held & unchanged:
            del gaps[identity]
