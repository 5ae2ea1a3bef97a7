"""The rows of the table that show the progress of each group on both clusters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from twinlog.clock import Clock
from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster
from twinlog.model import Flow, TopicPartition
from twinlog_checkpoint.groups.directory import Candidate, GroupOffsets
from twinlog_checkpoint.groups.progress import GroupProgress
from twinlog_checkpoint.side_by_side import in_turns
from twinlog_checkpoint.translation.log_bounds import log_ends
from twinlog_checkpoint.translation.translation import (
    SourcePosition,
    Translation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRows:
    flow: Flow
    source: KafkaCluster
    target: KafkaCluster
    target_of: Callable[[TopicPartition], TopicPartition]
    """Return the copy of a partition."""
    clock: Clock

    async def of(
        self, candidates: Sequence[Candidate], translations: Mapping[SourcePosition, Translation]
    ) -> list[GroupProgress]:
        """Add each group's committed offset on the target and the lags on both clusters."""
        groups = {candidate.group for candidate in candidates}
        on_target = await self.target.group_offsets(groups) if groups else {}
        source_ends = await log_ends(self.source, {candidate.source for candidate in candidates})
        target_ends = await log_ends(
            self.target,
            {
                self.target_of(candidate.source)
                for candidate in candidates
                if translations[candidate.position].downstream_offset is not None
            },
        )
        now_ms = self.clock.now_ms()
        rows: list[GroupProgress] = []
        async for candidate in in_turns(candidates):
            translation = translations[candidate.position]
            end = source_ends.get(candidate.source)
            if end is not None and candidate.committed.next_offset > end:
                message = f"the offset is past the end {end} of its log: {translation.message}"
                translation = replace(translation, message=message)
            target = self.target_of(candidate.source)
            rows.append(
                GroupProgress(
                    flow=self.flow,
                    group=candidate.group,
                    source=candidate.source,
                    target=target,
                    upstream_offset=candidate.committed.next_offset,
                    translation=translation,
                    as_of_ms=now_ms,
                    offset_on_target=_committed(on_target.get(candidate.group), target),
                    source_lag=_lag(source_ends.get(candidate.source), candidate.committed.next_offset),
                    target_lag=_lag(target_ends.get(target), translation.downstream_offset),
                )
            )
        return rows


def _committed(held: GroupOffsets | KafkaError | None, partition: TopicPartition) -> int | None:
    if held is None or isinstance(held, KafkaError):
        return None
    committed = held.get(partition)
    return None if committed is None else committed.next_offset


def _lag(end: int | None, next_offset: int | None) -> int | None:
    return None if end is None or next_offset is None else max(0, end - next_offset)
