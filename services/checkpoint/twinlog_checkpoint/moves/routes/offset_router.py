"""Maps a group's partitions to the other cluster: a topic to its copy, a copy to its original."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.model import TopicPartition
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.translation.history import Pairs, ReversedPairs
from twinlog_checkpoint.translation.translation import LogBounds, SourcePosition, Translation

NOT_KNOWN = 1 << 62
"""Of a record behind everything that is known to be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRouter:
    """The two flows between the clusters, as seen from the cluster that groups leave."""

    away: FlowParts | None
    """The flow from this cluster to the other one; None when this process has no such flow."""
    home: FlowParts | None
    """The flow that writes the copies on this cluster."""
    home_first: bool
    """Ask `home` first: if copies keep the names, a topic may match both flows."""

    def destination(self, partition: TopicPartition) -> TopicPartition | None:
        """Return the partition of the other cluster where the group continues; None when there is none."""
        if self.home is not None and self._goes_home(partition):
            return self.home.had_origin_of(partition)
        return self.away.copy_of(partition) if self._goes_away(partition) and self.away is not None else None

    async def translate(self, positions: Collection[SourcePosition]) -> Mapping[SourcePosition, Translation]:
        """Translate the positions of the partitions that have a destination."""
        home = [position for position in positions if self._goes_home(position.partition)]
        away = [position for position in positions if not self._goes_home(position.partition)]
        answers: dict[SourcePosition, Translation] = {}
        if self.home is not None and home:
            answers.update(await self.home.back.translate(home))
        if self.away is not None and away:
            answers.update(await self.away.forward.translate(away))
        return answers

    async def first_left(self, logs: Mapping[TopicPartition, LogBounds]) -> Mapping[TopicPartition, int]:
        """Where the records of this cluster lie with which the logs there begin, at the latest. `logs` has
        the logs there, by partition of this cluster. What is not known is left out."""
        there = {
            SourcePosition(partition=destination, next_offset=log.start): partition
            for partition, log in logs.items()
            if (destination := self.destination(partition)) is not None
        }
        home = [position for position, here in there.items() if self._goes_home(here)]
        away = [position for position, here in there.items() if not self._goes_home(here)]
        answers: dict[SourcePosition, Translation] = {}
        if self.home is not None and home:
            answers.update(await self.home.forward.translate(home))
        if self.away is not None and away:
            answers.update(await self.away.back.translate(away))
        return {
            there[position]: self._at_latest(there[position], position, answer, logs[there[position]])
            for position, answer in answers.items()
            if answer.downstream_offset is not None
        }

    def _at_latest(
        self, here: TopicPartition, there: SourcePosition, answer: Translation, log: LogBounds
    ) -> int:
        """An answer that was not compared may lie before the record; the next known pair does not. What only
        a copy here has, behind the answer, counts as written by others where the log there is empty. Of a
        topic that is copied both ways no pair tells that."""
        offset, known = answer.downstream_offset or 0, self._pairs_of(here, there.partition)
        if answer.is_certain or there.next_offset == 0 or known is None or answer.topic_ids is not None:
            return offset
        pair = known.above(there.next_offset - 1)
        if pair is not None:
            return max(offset, pair.downstream)
        return offset if self._goes_home(here) and log.start == log.end else NOT_KNOWN

    def _pairs_of(self, here: TopicPartition, there: TopicPartition) -> Pairs | None:
        """The known pairs, seen from there."""
        if self._goes_home(here):
            return None if self.home is None else self.home.pairs(there)
        known = None if self.away is None else self.away.pairs(here)
        return None if known is None else ReversedPairs(known)

    def original(self, partition: TopicPartition) -> TopicPartition | None:
        """Return the original on the other cluster of a copy on this one that no flow copies back; None for
        other partitions."""
        if self.home is None or (self.away is not None and self.away.copies(partition.topic)):
            return None
        return self.home.had_origin_of(partition)

    async def copied_to(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Translation]:
        """Where the ends of originals lie in their copies. `ends` and the answer are by partition of this
        cluster, of those that have an `original`."""
        if self.home is None:
            return {}
        there = {
            partition: SourcePosition(partition=origin, next_offset=end)
            for partition, end in ends.items()
            if (origin := self.home.had_origin_of(partition)) is not None
        }
        answers = await self.home.forward.translate(set(there.values()))
        return {partition: answers[position] for partition, position in there.items()}

    def is_own(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        """Whether a group's offset on this cluster is its own. The flow that writes a copy may also have
        committed an offset on it (sync.group.offsets) for a group that lives on the other cluster."""
        if self.home is None or not self._goes_home(partition):
            return True
        return not self.home.history.committed(group, partition, next_offset)

    def may_be_synced(self, group: str, partition: TopicPartition, next_offset: int) -> bool:
        """Whether the flow that writes a copy may have committed this offset on it. After a restart only the
        last of its offsets is known, and earlier ones lie before it."""
        if self.home is None or not self._goes_home(partition):
            return False
        put = self.home.history.latest(group).get(partition)
        return put is not None and next_offset <= put.downstream_offset

    def _goes_away(self, partition: TopicPartition) -> bool:
        """By the rules, which select also what configsync has not noticed yet."""
        topic = partition.topic
        return self.away is not None and (
            self.away.copies(topic) or self.away.checkpointer.topics.refusal(topic) is None
        )

    def _goes_home(self, partition: TopicPartition) -> bool:
        if self.home is None or self.home.had_origin_of(partition) is None:
            return False
        return self.home_first or self.away is None or not self.away.copies(partition.topic)
