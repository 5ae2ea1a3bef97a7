"""Where a partition begins that has no stored position: MM2's reset policy, except for what came after the
flow began."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.config import AutoOffsetReset
from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.model import TopicPartition
from twinlog.service.feeds.topics import ReplicatedTopic
from twinlog_source.log.facts import TopicFact


def begins_at(
    partition: TopicPartition, topic: ReplicatedTopic, mark: TopicFact | None, policy: AutoOffsetReset
) -> AutoOffsetReset:
    """The reset that holds for a partition. Topics and partitions that appeared after the flow had started
    are copied from their earliest record always: nothing of them was ever meant to be left out."""
    later_partition = mark is not None and partition.partition >= mark.known_partitions
    return AutoOffsetReset.EARLIEST if topic.created_after_start or later_partition else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    source: LogAdmin
    read_committed: bool

    async def resolve(
        self, resets: Mapping[TopicPartition, AutoOffsetReset]
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """The offset each reset means now. `none` is answered by no entry. Raises KafkaError."""
        latest = OffsetSpec.LAST_STABLE if self.read_committed else OffsetSpec.LATEST
        found: dict[TopicPartition, int | KafkaError] = {}
        for reset, spec in (
            (AutoOffsetReset.EARLIEST, OffsetSpec.EARLIEST),
            (AutoOffsetReset.LATEST, latest),
        ):
            asked: Collection[TopicPartition] = [p for p, wanted in resets.items() if wanted is reset]
            if asked:
                found.update(await self.source.list_offsets(spec, asked))
        return found
