"""Which batches of the source are copies that the flow leaves out."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from twinlog.batches.header import HIGHEST_OFFSET
from twinlog.batches.prepared import NOT_YET
from twinlog.config import load
from twinlog.errors import FatalKafkaError, KafkaError, TwinlogError, WireFormatError
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, TopicState
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.wire.source_offset import encode_source_offset, source_offset_key
from twinlog_source.config import source_flows
from twinlog_source.log.fact_records import fact_record
from twinlog_source.log.facts import Fact, OriginFact, ProducerFact, TopicFact
from twinlog_source.log.journal import Journal
from twinlog_source.log.positions import PositionsLog
from twinlog_source.partitions.rows import PartitionRow
from twinlog_source.topics.id_tables import IdTables
from twinlog_source.topics.origins import Origins
from unit.source.flow_rig import OneFile

FILE = """\
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
topics = orders
A->B.enabled = true
B->A.enabled = true
"""
MESH = "C->B.enabled = true\nC->A.enabled = true\n"
OF_A, OF_B = "mm2-offsets.A.internal", "mm2-offsets.B.internal"
P = TopicPartition("orders", 0)
EVERYWHERE, NOWHERE = (0, HIGHEST_OFFSET), (0, 0)
WRITER, STRANGER = 7, 8


def of(producer_id: int, source_cluster_id: str) -> ProducerFact:
    return ProducerFact(
        producer_id=producer_id,
        name="",
        cluster_id="cluster B",
        source_cluster_id=source_cluster_id,
        at_ms=1,
    )


@dataclass(slots=True, kw_only=True)
class Sides:
    """Flow B->A, and what A->B has stored on B."""

    stack: AsyncExitStack
    more: str = ""
    clock: FakeClock = field(default_factory=FakeClock)
    a: FakeCluster = field(init=False)
    b: FakeCluster = field(init=False)

    def __post_init__(self) -> None:
        self.a, self.b = FakeCluster("A", clock=self.clock), FakeCluster("B", clock=self.clock)
        for cluster in (self.a, self.b):
            cluster.add_topic("orders")
        self.a.add_topic(OF_B)
        self.b.add_topic(OF_A)

    def topic(self) -> ReplicatedTopic:
        return ReplicatedTopic(
            source_topic="orders",
            target_topic="orders",
            partition_count=1,
            target_partition_count=1,
            source_topic_id=self.b.topic_id("orders"),
            target_topic_id=self.a.topic_id("orders"),
            generation=1,
            created_after_start=False,
            state=TopicState.READY,
            source_cleanup_policy="delete",
        )

    async def origins(self) -> Origins:
        (flow,) = [
            each
            for each in source_flows(
                load(Path("mm2.properties"), environ={}, files=OneFile(FILE + self.more))
            )
            if each.flow == Flow("B", "A")
        ]
        positions = PositionsLog(
            list_offsets=self.a.list_offsets,
            reader=await self.stack.enter_async_context(self.a.reader()),
            topic=OF_B,
            partition_count=1,
            source_alias="B",
            clock=self.clock,
        )
        await positions.refresh()
        tables = IdTables(
            flow=flow,
            source=self.b,
            reader=await self.stack.enter_async_context(self.b.reader(read_committed=False)),
            target=self.a,
            target_reader=await self.stack.enter_async_context(self.a.reader(read_committed=False)),
            cluster_id=lambda alias: f"cluster {alias}",
            clock=self.clock,
            pace_seconds=0.0,
        )
        return Origins(ids=tables, target=self.a, positions=positions)

    async def note(self, origins: Origins, position: int) -> None:
        """As the driver does before it assigns the partition."""

        async def confirm() -> None:
            return

        row, topics = (
            PartitionRow(partition=P, target_topic="orders", position=position),
            {"orders": self.topic()},
        )
        await self.with_journal(lambda journal: origins.note([row], topics, journal=journal, confirm=confirm))

    async def with_journal(self, do: Callable[[Journal], Awaitable[None]]) -> None:
        async with self.a.writer() as writer:
            journal = Journal(
                flow=Flow("B", "A"),
                connector_name="MirrorSourceConnector",
                topic=OF_B,
                writer=writer,
                clock=self.clock,
                partition_count=1,
            )
            await do(journal)

    async def stored(self, *facts: Fact) -> None:
        """By A->B, on B."""
        for fact in facts:
            await self.tell("A", fact)

    async def write(self, cluster: FakeCluster, topic: str, key: bytes, value: bytes | None) -> None:
        async with cluster.writer() as writer:
            await writer.append(TopicPartition(topic, 0), key=key, value=value)

    async def tell(self, alias: str, fact: Fact, *, on: FakeCluster | None = None) -> None:
        """By a flow from this cluster to B, or another one, whose writer names itself first."""
        place = TopicPartition(f"mm2-offsets.{alias}.internal", 0)
        named = getattr(fact, "source_cluster_id", f"cluster {alias}")

        def introduce(producer_id: int) -> tuple[TopicPartition, bytes, bytes]:
            return place, *fact_record(alias, of(producer_id, named))

        key, value = fact_record(alias, fact)
        async with (on or self.b).writer(introduce=introduce) as writer:
            await writer.append(place, key=key, value=value)

    async def begun(self, *, since: int = 0, unnamed_until: int = 0, begins_at: int = 0) -> None:
        """A->B has named a producer and where its copy begins."""
        here, there = self.a.topic_id("orders"), self.b.topic_id("orders")
        await self.stored(
            TopicFact(topic="orders", topic_id=here, known_partitions=1, target_topic_id=there),
            OriginFact(
                partition=P,
                target_topic_id=there,
                topic_id=here,
                since=since,
                unnamed_until=unnamed_until,
                begins_at=begins_at,
            ),
            of(WRITER, "cluster A"),
        )


async def asked(origins: Origins, sides: Sides, producer_id: int) -> tuple[int, int]:
    found = await origins.judge({P: [producer_id]}, {"orders": sides.topic()})
    return found[P, producer_id]


async def why_unknown(origins: Origins, sides: Sides) -> TwinlogError:
    with pytest.raises((KafkaError, WireFormatError)) as refused:
        await asked(origins, sides, STRANGER)
    return refused.value


@pytest.fixture
async def sides() -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        yield Sides(stack=stack)


async def test_only_batches_of_the_flow_back_are_echoes(sides: Sides) -> None:
    await sides.begun()
    origins = await sides.origins()
    assert await asked(origins, sides, WRITER) == EVERYWHERE
    assert await asked(origins, sides, STRANGER) == NOWHERE
    assert await asked(origins, sides, -1) == NOWHERE
    assert origins.is_both_ways(sides.topic())


async def test_an_id_that_was_stored_since_the_last_question_is_known(sides: Sides) -> None:
    await sides.begun()
    origins = await sides.origins()
    await asked(origins, sides, WRITER)
    await sides.stored(of(9, "cluster A"))
    assert await asked(origins, sides, 9) == EVERYWHERE


async def test_ids_of_another_cluster_and_of_another_source_are_no_echoes(sides: Sides) -> None:
    await sides.begun()
    await sides.stored(
        ProducerFact(producer_id=1, name="", cluster_id="cluster X", source_cluster_id="cluster A", at_ms=1),
        of(2, "cluster C"),
    )
    origins = await sides.origins()
    assert [await asked(origins, sides, each) for each in (1, 2)] == [NOWHERE, NOWHERE]


async def test_what_a_third_cluster_also_copies_to_the_target_is_left_out() -> None:
    async with AsyncExitStack() as stack:
        sides = Sides(stack=stack, more=MESH)
        sides.b.add_topic("mm2-offsets.C.internal")
        await sides.begun()
        of_c = of(3, "cluster C")
        await sides.tell("C", of_c)
        origins = await sides.origins()
        assert await asked(origins, sides, 3) == EVERYWHERE
        origins.ids.cluster_id = lambda alias: (
            None if alias == "C" else f"cluster {alias}"
        )  # Not reached yet.
        assert await asked(origins, sides, 3) == EVERYWHERE


async def test_what_a_flow_of_another_file_also_copies_to_the_target_waits(
    sides: Sides,
) -> None:
    """C->A, C->B and A->B are known by what they have stored, and B->A does not know that C->A goes on."""
    await sides.begun()
    for cluster in (sides.a, sides.b):
        cluster.add_topic("mm2-offsets.C.internal")
    await sides.tell("C", of(3, "cluster C"))
    origins = await sides.origins()
    assert await asked(origins, sides, 3) == NOWHERE
    copied = TopicFact(
        topic="orders",
        topic_id="of C",
        known_partitions=1,
        target_topic_id=sides.a.topic_id("orders"),
    )
    await sides.tell("C", replace(copied, target_topic_id="another"), on=sides.a)
    assert await asked(origins, sides, 3) == NOWHERE
    await sides.tell("C", copied, on=sides.a)
    with pytest.raises(KafkaError, match="a flow of another file copies orders to A, too"):
        await asked(origins, sides, 3)
    assert await asked(origins, sides, WRITER) == EVERYWHERE
    del sides.a.topics["mm2-offsets.C.internal"]
    assert await asked(origins, sides, 3) == NOWHERE


async def test_a_target_that_was_created_again_gets_what_came_from_the_earlier_one(sides: Sides) -> None:
    await sides.begun()
    del sides.a.topics["orders"]
    sides.a.add_topic("orders")
    origins = await sides.origins()
    # The flow back may write with the same id again.
    assert await asked(origins, sides, WRITER) == NOT_YET
    await sides.begun(since=5)
    assert await asked(origins, sides, WRITER) == (5, HIGHEST_OFFSET)


async def test_a_target_of_which_the_flow_back_knows_more_is_waited_for(sides: Sides) -> None:
    await sides.begun()
    await sides.stored(
        TopicFact(
            topic="orders",
            topic_id="newer",
            known_partitions=1,
            target_topic_id=sides.b.topic_id("orders"),
            former_ids=(sides.a.topic_id("orders"),),
        )
    )
    with pytest.raises(KafkaError, match="created again"):
        await asked(await sides.origins(), sides, WRITER)


async def test_nothing_is_copied_back_from_below_the_boundary_of_unnamed_copies(sides: Sides) -> None:
    await sides.begun(unnamed_until=40)
    origins = await sides.origins()
    assert [await asked(origins, sides, each) for each in (STRANGER, -1)] == [(0, 40), (0, 40)]
    assert await asked(origins, sides, WRITER) == EVERYWHERE


async def test_a_flow_back_of_another_file_is_known_before_it_has_seen_a_new_topic(sides: Sides) -> None:
    """Both topics are created again within seconds: it has stored the former ids of both."""
    sides.more = "A->B.enabled = false\n"
    await sides.begun()
    former = sides.b.topic_id("orders")
    own = TopicFact(topic="orders", topic_id=former, known_partitions=1)
    await sides.with_journal(lambda journal: journal.record(own))
    for cluster in (sides.a, sides.b):
        cluster.add_topic("orders")
    origins = await sides.origins()
    await origins.read()
    assert origins.is_both_ways(sides.topic())
    seen = replace(own, topic_id=sides.b.topic_id("orders"), former_ids=(former,))
    await sides.with_journal(lambda journal: journal.record(seen))
    origins = await sides.origins()
    await origins.read()
    assert origins.is_both_ways(sides.topic())
    assert not origins.is_both_ways(replace(sides.topic(), target_topic="others"))


async def test_the_boundary_holds_also_where_the_flow_back_is_in_another_file(sides: Sides) -> None:
    sides.more = "A->B.enabled = false\n"
    await sides.begun(unnamed_until=40)
    origins = await sides.origins()
    assert not origins.is_both_ways(sides.topic())
    assert [await asked(origins, sides, each) for each in (STRANGER, -1)] == [(0, 40), (0, 40)]
    assert await asked(origins, sides, WRITER) == EVERYWHERE


async def test_ids_below_the_beginning_of_a_copy_are_those_of_somebody_who_copied_byte_for_byte() -> None:
    async with AsyncExitStack() as stack:
        sides = Sides(stack=stack, more=MESH)
        sides.b.add_topic("mm2-offsets.C.internal")
        await sides.begun(begins_at=30)
        origins = await sides.origins()
        assert await asked(origins, sides, WRITER) == (30, HIGHEST_OFFSET)
        sides.b.add_topic("mirrored")
        mirrored = replace(sides.topic(), source_topic="mirrored", source_topic_id="another")
        alone = TopicPartition("mirrored", 0)
        found = await origins.judge({alone: [WRITER, STRANGER]}, {"mirrored": mirrored})
        assert found == {(alone, WRITER): NOWHERE, (alone, STRANGER): NOWHERE}
        newer = {"orders": replace(sides.topic(), source_topic_id="newer")}
        with pytest.raises(KafkaError, match="does not say yet what is copied to orders"):
            await origins.judge({P: [WRITER]}, newer)


async def test_copies_of_others_are_not_judged_before_their_boundary_is_known(sides: Sides) -> None:
    await sides.write(sides.b, OF_A, source_offset_key("A", P), encode_source_offset(5))
    refused = await why_unknown(await sides.origins(), sides)
    assert refused.reason == "ORIGIN_UNKNOWN"
    assert "A->B has copied orders before it named its producers" in str(refused)


async def test_who_owns_the_flow_no_more_records_nothing_of_what_was_judged(sides: Sides) -> None:
    async def lost() -> None:
        raise FatalKafkaError("another process has claimed the flow", reason="PRODUCER_FENCED")

    await sides.begun()
    await sides.note(origins := await sides.origins(), 0)
    await asked(origins, sides, WRITER)
    topics = {"orders": sides.topic()}
    with pytest.raises(FatalKafkaError, match="claimed"):
        await sides.with_journal(lambda journal: origins.remember([P], topics, journal, lost))
    assert not origins.control.origins[P].ids_topic_id
    await sides.with_journal(lambda journal: origins.remember([P], topics, journal, owned))
    with pytest.raises(FatalKafkaError, match="claimed"):
        await sides.with_journal(lambda journal: origins.forget([P], journal, lost))
    assert origins.control.origins[P].ids_topic_id


async def test_what_was_judged_of_a_topic_hides_nothing_of_the_one_that_replaces_it_meanwhile(
    sides: Sides,
) -> None:
    """A task is answered while the driver notes where the copy of the new topic begins."""

    async def replaced() -> None:
        del sides.b.topics["orders"]
        sides.b.add_topic("orders")
        await sides.note(origins, 0)

    await sides.begun()
    await sides.note(origins := await sides.origins(), 0)
    await asked(origins, sides, WRITER)
    topics = {"orders": sides.topic()}
    await sides.with_journal(lambda journal: origins.remember([P], topics, journal, replaced))
    assert origins.control.origins[P].topic_id == sides.b.topic_id("orders")


async def owned() -> None:
    """Nobody else has claimed the flow."""


async def test_the_end_of_the_log_is_the_boundary_where_others_have_copied(sides: Sides) -> None:
    await sides.write(sides.a, OF_B, source_offset_key("B", P), encode_source_offset(5))
    for _ in range(3):
        await sides.write(sides.a, "orders", b"k", b"v")
    origins = await sides.origins()
    await sides.note(origins, 6)
    assert origins.control.origins[P].unnamed_until == 3
    await sides.write(sides.a, "orders", b"k", b"v")
    await sides.note(origins, 6)
    assert origins.control.origins[P].unnamed_until == 3


async def test_a_copy_that_begins_has_no_boundary(sides: Sides) -> None:
    await sides.write(sides.a, "orders", b"k", b"of an application")
    origins = await sides.origins()
    await sides.note(origins, 0)
    fact = origins.control.origins[P]
    assert (fact.unnamed_until, fact.since, fact.begins_at) == (0, 0, 1)
    del sides.b.topics["orders"]
    sides.b.add_topic("orders")
    await sides.note(origins, 0)
    assert (origins.control.origins[P].unnamed_until, origins.control.origins[P].since) == (0, 1)


async def test_where_topics_have_no_ids_a_copy_is_known_by_its_name(sides: Sides) -> None:
    here = sides.a.topic_id("orders")
    for name, topic_id, boundary in (("other", "of another", 9), ("orders", here, 0)):
        await sides.stored(
            TopicFact(topic=name, topic_id=topic_id, known_partitions=1),
            OriginFact(
                partition=TopicPartition(name, 0),
                target_topic_id="",
                topic_id=topic_id,
                unnamed_until=boundary,
            ),
            of(WRITER, "cluster A"),
        )
    topics = {"orders": replace(sides.topic(), source_topic_id="")}
    found = await (await sides.origins()).judge({P: [WRITER, STRANGER]}, topics)
    assert found == {(P, WRITER): EVERYWHERE, (P, STRANGER): NOWHERE}


async def test_only_a_flow_back_of_the_present_topics_tells_that_a_positions_topic_was_lost() -> None:
    """In a mesh a flow from a third cluster names a positions topic that lies there."""
    async with AsyncExitStack() as stack:
        sides = Sides(stack=stack, more=MESH)
        sides.b.add_topic("mm2-offsets.C.internal")
        topic = sides.topic()
        named = OriginFact(
            partition=P,
            target_topic_id=topic.source_topic_id,
            topic_id=topic.target_topic_id,
            ids_topic_id="gone",
        )
        origins = await sides.origins()
        await sides.tell("C", of(3, "cluster C"))
        await sides.tell("C", replace(named, topic_id="of C"))
        await sides.begun()
        await sides.stored(replace(named, topic_id="deleted"))
        await origins.read()
        assert origins.former_positions(P, topic) == frozenset()
        await sides.stored(named)
        await origins.read()
        assert origins.former_positions(P, topic) == {"gone"}
