"""The gap ledger while the flow runs: writes every gap to the log, counts it, logs it once, and bounds the
ledger."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from twinlog.model import Flow, TopicPartition
from twinlog_source.log.gaps import Gap, tidied
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
    """Partitions with new gaps since the ledger was last tidied."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Ranges that are being acknowledged; they are not joined meanwhile."""

    async def write(self, gap: Gap) -> None:
        """Write a gap that the driver found; an empty one is ignored. Raises KafkaError."""
        if gap.from_offset >= gap.to_offset:
            return
        await self.journal.gap(gap)
        self.enter(gap)

    def enter(self, gap: Gap) -> None:
        """Enter a gap that is already on the log."""
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

    async def acknowledge(
        self, is_meant: Callable[[Gap], bool], *, by: str, now_ms: int
    ) -> tuple[Gap, ...] | None:
        """Acknowledge these gaps; return those that were not acknowledged before, None when no gap matches.
        For the flow's owner. Raises KafkaError."""
        async with self._changing:
            held = self.positions.gaps
            meant = [gap for gap in held.values() if is_meant(gap)]
            new = [gap for gap in meant if not gap.acknowledged_by]
            acknowledged = tuple(replace(gap, acknowledged_by=by, acknowledged_at_ms=now_ms) for gap in new)
            await self.journal.gaps(acknowledged)
            for before, gap in zip(new, acknowledged, strict=True):
                # Not if the gap was found again meanwhile: nobody has seen the new one.
                if held.get(gap.identity) is before:
                    held[gap.identity] = gap
        return acknowledged if meant else None

    async def tidy(self, *, everything: bool = False) -> None:
        """Join ranges (see `tidied`) of partitions with new gaps, or of all. For the flow's owner. Raises
        KafkaError; the next call continues.

        A joined range is written before its parts are removed. A crash in between leaves both, and loses
        nothing.
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
        # Not those that were found again meanwhile: the next call joins them.
        unchanged = {identity for identity, gap in before.items() if gaps.get(identity) is gap}
        gaps.update((identity, gap) for identity, gap in joined.items() if identity in unchanged)
        for identity in held & unchanged:
            del gaps[identity]
