"""The input of a pass: every committed offset of every group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinlog.kafka.ports import CommittedOffset
from twinlog.model import TopicPartition
from twinlog_checkpoint.groups.directory import GroupOffsets
from twinlog_checkpoint.translation.translation import (
    SourcePosition,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One committed offset of one group."""

    group: str
    committed: CommittedOffset
    position: SourcePosition

    @property
    def source(self) -> TopicPartition:
        return self.position.partition


def candidates_of(offsets: Mapping[str, GroupOffsets]) -> Iterable[Candidate]:
    for group in sorted(offsets):
        for partition in sorted(offsets[group]):
            committed = offsets[group][partition]
            position = SourcePosition(partition=partition, next_offset=committed.next_offset)
            yield Candidate(group=group, committed=committed, position=position)
