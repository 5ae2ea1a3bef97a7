"""A flow's transactions whose end a broker has left out: each copy ends as its position did."""

from collections import Counter
from functools import partial

from integration.kafka.hanging_rig import coordinator_of, down, open_on
from integration.kafka.raw_producer_rig import a_batch, committed_values, create_topic, open_target
from twinlog.errors import KafkaError
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.raw import DataClientPool, RawProducer, fence, list_offsets
from twinlog.kafka.reader import KafkaLogReader
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.raw_copying import QUICK
from twinlog_source.log.hanging import TakeOver
from twinlog_source.log.positions import PositionsLog
from twinlog_source.task.writing.positions_topic import PositionsTopic

PARTITIONS = 60
CANDIDATES = 84
ONE_REPLICA = {"min.insync.replicas": "1"}


async def test_each_hanging_copy_ends_as_its_position_did(
    three_brokers: BlockingCluster,
) -> None:
    positions_topic = "mm2-offsets.A.internal"
    for topic in ("A.t", positions_topic):
        await create_topic(three_brokers, topic, ONE_REPLICA, PARTITIONS, replication_factor=1)
    async with open_target(three_brokers) as session:
        rig = Rig(session, positions_topic)
        await rig.look_around()
        *ids, another_id = rig.ids_coordinated_elsewhere(7)
        copy_commits = rig.find(copy_is_away=True, position_is_away=False)
        copy_aborts = rig.find(copy_is_away=True, position_is_away=False)
        position_commits = rig.find(copy_is_away=False, position_is_away=True)
        position_aborts = rig.find(copy_is_away=False, position_is_away=True)
        both = rig.find(copy_is_away=True, position_is_away=True)
        cases = {copy_commits: True, copy_aborts: False, position_commits: True, position_aborts: False}
        surpassed = rig.find(copy_is_away=True, position_is_away=True)
        cases |= {both: True, surpassed: True}
        producers = [RawProducer(session, QUICK, transactional_id=each) for each in ids]
        for producer, (partition, _) in zip(producers, cases.items(), strict=True):
            await producer.__aenter__()
            await rig.copy(producer, partition, b"first", position=1)
            await producer.commit()
            await rig.copy(producer, partition, b"second", position=2)
        async with down(three_brokers, rig.away):
            for producer, commits in zip(producers, cases.values(), strict=True):
                if commits:
                    await producer.commit()
                await producer.__aexit__(None, None, None)
            # Answered when the coordinators are done with the transactions before.
            outcomes = await fence(session, ids, timeout_seconds=60, transaction_timeout_seconds=60)
            assert not [each for each in outcomes.values() if isinstance(each, KafkaError)]
        async with RawProducer(session, QUICK, transactional_id=another_id) as another:
            await rig.copy(another, surpassed, b"third", position=3)
            await another.commit()
        for partition in (copy_commits, copy_aborts, both, surpassed):
            await eventually(partial(open_on, session, rig.copy_of(partition)))
        for partition in (position_commits, position_aborts, both, surpassed):
            await eventually(partial(open_on, session, rig.place_of(partition)))
        positions = rig.positions_log()
        take_over = TakeOver(
            session=session,
            positions=positions,
            target_topic=lambda topic: f"A.{topic}",
            timeout_seconds=30,
            transaction_timeout_seconds=60,
        )
        await take_over.take(ids, {rig.copy_of(partition): partition for partition in cases})
        assert await positions.refresh() == {
            copy_commits: 2,
            copy_aborts: 1,
            position_commits: 2,
            position_aborts: 1,
            both: 1,
            surpassed: 3,
        }
    for partition, values in {
        copy_commits: [b"first", b"second"],
        copy_aborts: [b"first"],
        position_commits: [b"first", b"second"],
        position_aborts: [b"first"],
        both: [b"first"],
        surpassed: [b"first", b"second", b"third"],
    }.items():
        assert await committed_values(three_brokers, rig.copy_of(partition)) == values


class Rig:
    """Copies of topic `t` of cluster A and their positions, some of whose brokers will be away."""

    def __init__(self, session: DataClientPool, topic: str) -> None:
        self.away = -1
        self._session = session
        self._positions = PositionsTopic(
            topic=topic, partition_count=PARTITIONS, source_alias="A", connector_name="MirrorSourceConnector"
        )
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[str, int] = {}
        self._found: set[TopicPartition] = set()

    async def look_around(self) -> None:
        for topic in ("A.t", self._positions.topic):
            for number in range(PARTITIONS):
                partition = TopicPartition(topic, number)
                self._leaders[partition] = await self._session.leader(partition, "look")
        names = [f"id-{number}" for number in range(CANDIDATES)]
        self._coordinators = {each: await coordinator_of(self._session, each) for each in names}
        # After an outage one broker may coordinate everything until the leaders are balanced again.
        coordinates = Counter(self._coordinators.values())
        self.away = min(self._leaders.values(), key=lambda broker: (coordinates[broker], broker))

    def ids_coordinated_elsewhere(self, count: int) -> list[str]:
        """Transactional ids whose coordinators stay."""
        return [name for name, broker in self._coordinators.items() if broker != self.away][:count]

    def find(self, *, copy_is_away: bool, position_is_away: bool) -> TopicPartition:
        """A source partition whose copy and position are where they should be; another one each time."""
        for number in range(PARTITIONS):
            partition = TopicPartition("t", number)
            places = (self._is_away(self.copy_of(partition)), self._is_away(self.place_of(partition)))
            if partition not in self._found and places == (copy_is_away, position_is_away):
                self._found.add(partition)
                return partition
        raise AssertionError("no partition lies like that")

    def copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(f"A.{partition.topic}", partition.partition)

    def place_of(self, partition: TopicPartition) -> TopicPartition:
        (place,) = self._positions.batches({partition: 1}, [], now_ms=0)
        return place

    async def copy(
        self, producer: RawProducer, partition: TopicPartition, value: bytes, *, position: int
    ) -> None:
        """Begin a transaction, and have everything of it acknowledged."""
        producer.begin()
        producer.send(self.copy_of(partition), a_batch(value))
        for place, batch in self._positions.batches({partition: position}, [], now_ms=0).items():
            producer.send(place, batch)
        await producer.flush()

    def positions_log(self) -> PositionsLog:
        options = fetch_options({}, alias="B")
        return PositionsLog(
            list_offsets=lambda spec, partitions: list_offsets(self._session, spec, partitions),
            reader=KafkaLogReader(self._session, options, read_committed=True, timeout_seconds=30),
            topic=self._positions.topic,
            partition_count=PARTITIONS,
            source_alias="A",
        )

    def _is_away(self, partition: TopicPartition) -> bool:
        return self._leaders[partition] == self.away
