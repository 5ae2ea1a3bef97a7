"""Finds how much of the source is already on the target, at the same offsets, for copies that are about to
begin.

This happens after applications moved to the other cluster, and its topics are copied back under the same
names: the target is where the records came from. MirrorMaker 2 would copy all of them again.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog.errors import KafkaError, TransientKafkaError
from twinlog.kafka.deadline import deadline
from twinlog.kafka.ports import ConfigAdmin, KafkaCluster
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.partitions.copy_mode import CommonLog
from twinlog_source.reasons import PartitionReason
from twinlog_source.topics.common_search import CommonSearch, Logs, SearchStopped, Suspect

LOOK_SECONDS = 3.0
"""How long one call compares. The driver of the flow waits for it, with all its other work."""
LONGEST_LOOK_SECONDS = 15.0
"""The limit for one partition, also where a cluster does not answer a read."""
LOOKS_AT_ONCE = 16
_STAMPED_BY = "message.timestamp.type"


@dataclass(slots=True, kw_only=True)
class CommonLogs:
    source: KafkaCluster
    target: KafkaCluster
    read_committed: bool
    clock: Clock
    _begun: dict[TopicPartition, CommonSearch] = field(default_factory=dict)
    """Comparisons that have not ended, by source partition."""

    def forget(self) -> None:
        """Comparisons that have not ended begin again: the logs may be others by now."""
        self._begun.clear()

    async def find(
        self, suspects: Collection[Suspect]
    ) -> Mapping[TopicPartition, CommonLog | KafkaError | None]:
        """Return the result by source partition; None where the logs have nothing in common, or it is
        unknown. Where the search has not ended yet, the result is a TransientKafkaError (COMPARING), and
        the next call continues it. Takes `LOOK_SECONDS` and the time of one read. Raises KafkaError."""
        suspects = [each for each in suspects if each.begin < min(each.target_end, each.source_end)]
        if not suspects:
            return {}
        stamped = await _stamped_by_broker(self.source, {each.source.topic for each in suspects})
        stamped_there = await _stamped_by_broker(self.target, {each.target.topic for each in suspects})
        comparable = [
            each
            for each in suspects
            if each.source.topic not in stamped and each.target.topic not in stamped_there
        ]
        found: dict[TopicPartition, CommonLog | KafkaError | None] = {}
        until = self.clock.monotonic() + LOOK_SECONDS
        at_once = asyncio.Semaphore(LOOKS_AT_ONCE)
        async with (
            self.source.reader(read_committed=self.read_committed) as source,
            self.target.reader(read_committed=self.read_committed) as target,
            asyncio.TaskGroup() as group,
        ):
            logs = Logs(source, target, lambda: self.clock.monotonic() < until)

            async def look(suspect: Suspect) -> None:
                async with at_once:
                    found[suspect.source] = await self._look(suspect, logs)

            for each in comparable:
                group.create_task(look(each), name=f"compare {each.source} with its copy")
        return found

    async def _look(self, suspect: Suspect, logs: Logs) -> CommonLog | KafkaError | None:
        if suspect.readable_end <= suspect.begin:
            return _open_transaction(suspect)
        begun = self._begun.pop(suspect.source, None)
        search = begun if begun is not None and begun.suspect.is_also(suspect) else CommonSearch(suspect)
        try:
            logs.stop_in_time()
            async with deadline(LONGEST_LOOK_SECONDS, f"compare {suspect.target} with its source"):
                found = await search.common(logs)
                if found is not None and found.end == search.suspect.end < suspect.end:
                    # Both logs have grown since this search began.
                    search = CommonSearch(suspect, found.end)
                    found = await search.common(logs)
        except SearchStopped:
            self._begun[suspect.source] = search
            return _unfinished(suspect)
        except KafkaError as error:
            if error.reason == KafkaReason.OFFSET_OUT_OF_RANGE:
                # Retention has deleted the beginning meanwhile.
                return _unfinished(suspect)
            if not error.retriable:
                # A log that may not be read counts as one with nothing in common.
                return None
            self._begun[suspect.source] = search
            return error
        if found is not None and found.end == suspect.readable_end < suspect.target_end:
            # Also where the source ends there: a flow in the other direction copies no further for now.
            return _open_transaction(suspect)
        return found


def _unfinished(suspect: Suspect) -> TransientKafkaError:
    words = f"{suspect.target} has records already, and is being compared with its source"
    return TransientKafkaError(words, reason=PartitionReason.COMPARING)


def _open_transaction(suspect: Suspect) -> TransientKafkaError:
    """No read_committed reader sees what lies behind it, and the logs are equal up to there."""
    return TransientKafkaError(
        f"a transaction is open on {suspect.target} since offset {suspect.readable_end}: what lies behind it"
        " cannot be compared with the source before it ends",
        reason=PartitionReason.TARGET_OPEN_TRANSACTION,
    )


async def _stamped_by_broker(cluster: ConfigAdmin, topics: Collection[str]) -> set[str]:
    """Topics with the brokers' timestamps, and those whose configuration is unknown."""
    configs = await cluster.describe_topic_configs(sorted(topics), keys=[_STAMPED_BY])
    known = {
        name: {entry.name: entry.value for entry in entries}
        for name, entries in configs.items()
        if not isinstance(entries, KafkaError)
    }
    return {name for name in topics if known.get(name, {}).get(_STAMPED_BY) != "CreateTime"}
