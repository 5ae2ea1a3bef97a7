"""The answers of partitions until they are taken, and what is remembered between fetches.

An answer only counts for the position that was requested last. Positions belong to the caller.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.protocol.connection import DataClient
from twinlog.kafka.raw.errors import partition_error
from twinlog.kafka.raw.fetch.results import FetchFailure
from twinlog.kafka.raw.fetch.wire import FetchedPartition, FetchPart
from twinlog.kafka.raw.leaders import leader_of
from twinlog.model import TopicPartition

_PREFERRED_REPLICA_SECONDS = 300.0
"""Java asks the leader again after metadata.max.age.ms."""
_LEADER_ONLY_SECONDS = 30.0
"""A leader that may name a replica does so at once and without records, again and again: while that replica
is not known or does not answer, nothing would be read."""
NO_REPLICA = -1


@dataclass(slots=True)
class Standing:
    """What is remembered of a partition between fetches. Losing it costs time, never correctness."""

    preferred_replica: int = NO_REPLICA
    preferred_until: float = 0.0
    leader_only_until: float = 0.0
    """Until then the leader must not name a replica."""
    served_at: int = 0
    is_busy: bool = False
    """Its last answer had records."""
    has_answered: bool = False
    group: int = 0
    """Partitions with another number than 0 are requested only together with those of the same number: one of
    their answers was too large to be read, and the cause is being searched."""


class FetchAnswers:
    """Use it on the loop on which it was created."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._standings: dict[TopicPartition, Standing] = {}
        self._asked: dict[TopicPartition, int] = {}
        self.ready: dict[TopicPartition, FetchedPartition | FetchFailure] = {}
        self._served = 0
        self._groups = 0
        self._loop = asyncio.get_running_loop()

    def is_asked(self, partition: TopicPartition) -> bool:
        """Its fetch is in flight, or was answered since the last poll: leaving it out of the next one would
        discard the answer."""
        return partition in self._asked or partition in self.ready

    def missing(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those with nothing in flight or answered for their position."""
        asked, ready = self._asked, self.ready
        return [
            partition
            for partition, offset in positions.items()
            if asked.get(partition) != offset
            and ((answer := ready.get(partition)) is None or answer.fetch_offset != offset)
        ]

    def ask(self, parts: Iterable[FetchPart]) -> None:
        """These are in flight now."""
        self._asked.update((part.partition, part.offset) for part in parts)

    def no_longer_asked(self, parts: Iterable[FetchPart]) -> None:
        """Their request has ended."""
        for partition, offset, _ in parts:
            if self._asked.get(partition) == offset:
                del self._asked[partition]

    def take(self, answer: FetchedPartition, offset: int, node: int) -> None:
        """What a broker said of a partition whose request asked for this offset."""
        partition = answer.partition
        standing = self.standing(partition)
        if answer.preferred_replica != NO_REPLICA and answer.preferred_replica != node:
            standing.preferred_replica = answer.preferred_replica
            standing.preferred_until = self._loop.time() + _PREFERRED_REPLICA_SECONDS
            return
        if answer.error_code:
            if self.avoid_replica(partition, node) and answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return  # The replica may only be behind; ask the leader.
            error = partition_error(
                answer.error_code, partition, f"fetch from offset {offset}", alias=self._alias
            )
            self.fail(partition, offset, error)
            return
        if self._asked.get(partition) != offset:
            return  # Another position was requested since.
        standing.has_answered = True
        standing.group = 0
        standing.is_busy = len(answer.records) > 0
        if standing.is_busy:
            self._served += 1
            standing.served_at = self._served
        self.ready[partition] = answer._replace(fetch_offset=offset)

    def fail(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        """Its fetch from this offset failed."""
        if self._asked.get(partition) != offset:
            return
        self.ready[partition] = FetchFailure(partition=partition, fetch_offset=offset, error=error)

    def collect(
        self, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FetchedPartition | FetchFailure]:
        """Return the answers for these positions, and discard all others."""
        ready, self.ready = self.ready, {}
        return {
            partition: answer
            for partition, answer in ready.items()
            if positions.get(partition) == answer.fetch_offset
        }

    def discard(self) -> None:
        """Discard all answers."""
        self.ready.clear()

    def ask_apart(self, partitions: list[TopicPartition]) -> None:
        """Request these in two groups from now on: the records of one of them cannot be read."""
        half = len(partitions) // 2
        for some in (partitions[:half], partitions[half:]):
            self._groups += 1
            for partition in some:
                self.standing(partition).group = self._groups

    def place_for(self, client: DataClient, partition: TopicPartition) -> tuple[int, bool] | None:
        """The broker to ask, and whether it may name another one: the replica that the leader named, else the
        leader; None when there is none."""
        standing, now = self.standing(partition), self._loop.time()
        preferred = standing.preferred_replica
        if preferred != NO_REPLICA and now < standing.preferred_until:
            if client.cluster.broker_metadata(preferred) is not None:
                return preferred, True
            self.avoid_replica(partition, preferred)
            client.force_metadata_update()
        leader = leader_of(client, partition)
        return None if leader is None else (leader, now >= standing.leader_only_until)

    def avoid_replica(self, partition: TopicPartition, node: int) -> bool:
        """A broker does not serve the partition: False if it is not the replica that the leader named;
        otherwise the leader alone is asked for a while."""
        standing = self.standing(partition)
        if standing.preferred_replica != node:
            return False
        standing.preferred_replica = NO_REPLICA
        standing.leader_only_until = self._loop.time() + _LEADER_ONLY_SECONDS
        return True

    def standing(self, partition: TopicPartition) -> Standing:
        standing = self._standings.get(partition)
        if standing is None:
            standing = self._standings[partition] = Standing()
        return standing
