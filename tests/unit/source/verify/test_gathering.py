"""What is known before records are compared: what cannot be known makes a proof incomplete, and accuses
nobody."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from twinlog.comparison.model import Bounds, NotComparedReason, Side
from twinlog.comparison.sides import EndsNow
from twinlog.config import FlowConfig, load
from twinlog.kafka.codes import ErrorCode
from twinlog.kafka.errors import from_code
from twinlog.kafka.ports import TopicDescription
from twinlog.model import Flow, Record, TopicPartition
from twinlog.selection_configured import topic_selector
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog_source.log.facts import TopicFact
from twinlog_source.log.gaps import Gap, GapReason
from twinlog_source.log.positions import PositionsLog
from twinlog_source.verify.gathering.flow import GatheredFlow
from twinlog_source.verify.request import VerifyRequest

FILE = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = orders, bills
"""


@pytest.fixture
def clusters() -> tuple[FakeCluster, FakeCluster]:
    source, target = FakeCluster("A", clock=FakeClock()), FakeCluster("B", clock=FakeClock())
    for topic in ("orders", "bills"):
        source.add_topic(topic, configs={"cleanup.policy": "compact"})
        target.add_topic(f"A.{topic}", configs={"cleanup.policy": "compact"})
    return source, target


@pytest.fixture
def flow(tmp_path: Path) -> FlowConfig:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    return load(file, environ={}).flow(Flow("A", "B"))


async def gather(
    source: FakeCluster,
    target: FakeCluster,
    flow: FlowConfig,
    *facts: TopicFact,
    topics: tuple[str, ...] = (),
) -> tuple[GatheredFlow, list[Bounds]]:
    """What is known, where the positions topic holds these facts."""
    async with AsyncExitStack() as stack:
        positions = PositionsLog(
            list_offsets=target.list_offsets,
            reader=await stack.enter_async_context(target.reader(read_committed=True)),
            topic=flow.source.offset_storage.topic,
            partition_count=0,
            source_alias="A",
            connector_name=flow.source.connector_name,
        )
        for fact in facts:
            positions.control.record(fact)
        gathered = GatheredFlow(
            flow=flow,
            request=VerifyRequest(flow=Flow("A", "B"), topics=frozenset(topics), wait_seconds=0.0),
            source=source,
            target=target,
            positions=positions,
            selector=topic_selector(flow),
        )
        bounds = await gathered.gather()
    assert {each.source.topic for each in bounds} == set(gathered.topics.pairs)
    assert all(
        each.source_compacted and each.target_compacted for each in bounds if not each.source.partition
    )
    return gathered, bounds


async def test_a_topic_whose_compaction_is_not_known_is_not_compared(
    clusters: tuple[FakeCluster, FakeCluster], flow: FlowConfig
) -> None:
    """What compaction took would be MISSING: nobody may be accused because a broker did not answer."""
    for number, name in ((0, "orders"), (1, "A.orders")):

        def refuse(call: Call, name: str = name) -> None:
            answers: dict[str, Any] = call.result
            answers[name] = from_code(
                ErrorCode.topic_authorization_failed, "describe topic configs", alias="A"
            )

        remove = clusters[number].hooks.add("describe_topic_configs", refuse, after=True)
        gathered, _ = await gather(*clusters, flow)
        remove()
        assert list(gathered.topics.pairs) == ["bills"]
        assert [(each.topic, each.reason) for each in gathered.topics.failures] == [
            ("orders", "TOPIC_UNAUTHORIZED")
        ]
    gathered, _ = await gather(*clusters, flow)
    assert list(gathered.topics.pairs) == ["bills", "orders"]


async def test_what_came_after_a_flow_began_is_expected_from_its_first_record_on(
    clusters: tuple[FakeCluster, FakeCluster], tmp_path: Path
) -> None:
    """`auto.offset.reset` is about what was there before: of the others nothing may be missing."""
    source, target = clusters
    for cluster, name in ((source, "orders"), (target, "A.orders")):
        await cluster.create_partitions({name: 3})
    file = tmp_path / "latest.properties"
    file.write_text(f"{FILE}A->B.consumer.auto.offset.reset = latest\n")
    latest = load(file, environ={}).flow(Flow("A", "B"))
    fact = TopicFact(topic="orders", topic_id="of A", known_partitions=1)
    _, bounds = await gather(source, target, latest, fact)
    begins_anywhere = {str(each.source): each.begins_anywhere for each in bounds}
    assert begins_anywhere == {"bills-0": True, "orders-0": True, "orders-1": False, "orders-2": False}


async def test_the_present_end_of_the_copy_is_taken_before_that_of_the_source(
    clusters: tuple[FakeCluster, FakeCluster], flow: FlowConfig
) -> None:
    """What the copy shows, the source has: only so is the last value of a key known."""
    asked: list[str] = []
    for name, cluster in zip("AB", clusters, strict=True):

        def note(call: Call, name: str = name) -> None:
            asked.append(name)

        cluster.intercept("list_offsets", note)
    gathered, _ = await gather(*clusters, flow)
    asked.clear()
    assert await gathered.ends_now(TopicPartition("orders", 0)) == EndsNow(source=0, target=0)
    assert asked == ["B", "A"]


def gap(begin: int, end: int, reason: str, at_ms: int, **changes: Any) -> Gap:
    return Gap(
        partition=TopicPartition("orders", 0),
        from_offset=begin,
        to_offset=end,
        reason=reason,
        found_at_ms=at_ms,
        **changes,
    )


async def test_losses_of_the_ledger_are_told_where_neither_cluster_has_the_records(
    clusters: tuple[FakeCluster, FakeCluster], flow: FlowConfig
) -> None:
    gathered, _ = await gather(*clusters, flow)
    for each in (
        gap(5, 9, "RETENTION", 1),
        gap(40, 60, "TOPIC_RECREATED", 2),
        gap(10, 30, "RETENTION", 3, lost_of_joined=12, acknowledged_by="ana"),
        gap(90, 120, "TARGET_TRUNCATED", 4),
        gap(30, 50, GapReason.SKIPPED_BY_OPERATOR, 5),
        gap(50, 60, "TRUNCATION", 6),
        gap(100, 110, "TARGET_TRUNCATED", 7),
    ):
        gathered.positions.gaps[each.identity] = each
    told = gathered.recorded.lost(TopicPartition("orders", 0), 100)
    assert all(
        (each.side, each.reason, each.is_harmless) == (Side.SOURCE, NotComparedReason.LOST, True)
        for each in told
    )
    assert [(each.from_offset, each.to_offset, each.detail) for each in told] == [
        (5, 9, "RETENTION, offsets of an earlier topic: see twinlog gaps"),
        (40, 60, "TOPIC_RECREATED, offsets of an earlier topic: see twinlog gaps"),
        (10, 30, "RETENTION, 12 of these offsets, acknowledged by ana: see twinlog gaps"),
        (90, 100, "TARGET_TRUNCATED: see twinlog gaps"),
    ]
    assert gathered.recorded.lost(TopicPartition("bills", 0), 100) == []


async def test_gaps_of_an_earlier_topic_excuse_nothing_of_the_present_one(
    clusters: tuple[FakeCluster, FakeCluster], flow: FlowConfig
) -> None:
    """Where all of the earlier one had been copied, no gap tells when it was created again. The clock of a
    task may be wrong."""
    found = (await clusters[0].describe_topics(["orders"]))["orders"]
    assert isinstance(found, TopicDescription)
    fact = TopicFact(topic="orders", topic_id=found.topic_id, known_partitions=0, since_ms=2)
    gathered, _ = await gather(*clusters, flow, fact)
    for each in (
        gap(5, 9, "RETENTION", 1),
        gap(20, 30, GapReason.SKIPPED_BY_OPERATOR, 1, acknowledged_by="ana"),
        gap(7, 8, "RETENTION", 3),
        gap(40, 41, "RETENTION", 1, topic_id=found.topic_id),
        gap(50, 51, "RETENTION", 3, topic_id="the one before"),
    ):
        gathered.positions.gaps[each.identity] = each
    known = gathered.recorded.known_gaps(TopicPartition("orders", 0))
    assert [(each.from_offset, each.to_offset) for each in known] == [(40, 41), (7, 8)]


@pytest.mark.parametrize(
    ("topic_id", "known_partitions", "reason"),
    [
        ("", 1, NotComparedReason.SOURCE_RETENTION),
        ("", 0, NotComparedReason.EARLIER_TOPIC),
        ("the one before", 1, NotComparedReason.EARLIER_TOPIC),
    ],
)
async def test_what_only_the_copy_has_is_of_an_earlier_topic_if_there_was_one(
    clusters: tuple[FakeCluster, FakeCluster],
    flow: FlowConfig,
    topic_id: str,
    known_partitions: int,
    reason: NotComparedReason,
) -> None:
    found = (await clusters[0].describe_topics(["orders"]))["orders"]
    assert isinstance(found, TopicDescription)
    fact = TopicFact(topic="orders", topic_id=topic_id or found.topic_id, known_partitions=known_partitions)
    await clusters[1].create_partitions({"A.orders": 2})
    earlier = Record(offset=0, timestamp_ms=1, key=b"k", value=b"v")
    clusters[1].append(TopicPartition("A.orders", 1), earlier)
    _, bounds = await gather(*clusters, flow, fact)
    assert {str(each.source): each.only_on_target for each in bounds} == {
        "bills-0": NotComparedReason.SOURCE_RETENTION,
        "orders-0": reason,
        "orders-1": reason,
    }
    (only_there,) = [each for each in bounds if each.source.partition == 1]
    assert (only_there.source_lost != ()) == (reason is NotComparedReason.EARLIER_TOPIC)


async def test_a_topic_is_meant_by_its_name_on_either_side(
    clusters: tuple[FakeCluster, FakeCluster], flow: FlowConfig
) -> None:
    gathered, _ = await gather(*clusters, flow, topics=("A.orders",))
    assert set(gathered.topics.pairs) == {"orders"}
