"""Finds the leaders of partitions with holes."""

from collections.abc import Callable, Iterable, Mapping

from twinlog.errors import KafkaError
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.raw import DataClientPool
from twinlog.kafka.raw.errors import partition_error
from twinlog.kafka.raw.leaders import leader_of, refresh_metadata
from twinlog.model import TopicPartition

DOING = "fill offsets"

Holes = Mapping[TopicPartition, tuple[int, int]]
"""First offset and count, by partition."""
Ended = Callable[[TopicPartition, bool], None]
"""Called for a partition when the attempt has ended there, with whether its hole is filled for certain."""
LeftOut = Callable[[TopicPartition, KafkaError], None]
"""Called for a partition that cannot be filled now, for instance without a leader; the others do not wait for
it."""
More = Callable[[], Holes]
"""Returns the holes that have to be filled since the last call, so that they do not wait for longer ones."""


def nothing_more() -> Holes:
    return {}


class HoleLeaders:
    """A leader that did not answer is looked up again before the next hole."""

    def __init__(self, session: DataClientPool) -> None:
        self._session = session
        self._doubtful: set[TopicPartition] = set()

    def doubt(self, partitions: Iterable[TopicPartition]) -> None:
        """The leaders of these partitions did not answer."""
        self._doubtful.update(partitions)

    async def led(self, holes: Holes, left_out: LeftOut) -> dict[TopicPartition, tuple[int, int]]:
        """The holes that have a leader; the others are passed to `left_out`. Raises KafkaError."""
        client = await self._session.client(DOING)
        asked = {each for each in holes if each in self._doubtful or leader_of(client, each) is None}
        if asked:
            await refresh_metadata(self._session, client, {each.topic for each in asked})
        absent = {each for each in asked if leader_of(client, each) is None}
        self._doubtful -= asked - absent
        for partition in absent:
            left_out(partition, self.absent(partition, DOING))
        return {partition: hole for partition, hole in holes.items() if partition not in absent}

    def absent(self, partition: TopicPartition, doing: str) -> KafkaError:
        return partition_error(ErrorCode.LEADER_NOT_AVAILABLE, partition, doing, alias=self._session.alias)
