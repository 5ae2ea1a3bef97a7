"""Which topics records may be sent to one by one, and that it is on the log before."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from twinlog.config import load
from twinlog.errors import StateError, TransientKafkaError
from twinlog.kafka.deadline import pause
from twinlog.model import Flow, TopicPartition
from twinlog.service.feeds.registry import Decisions
from twinlog.service.feeds.replicated_topics import ReplicatedTopic, StoredRoute, TopicState
from twinlog.service.feeds.routes import routes_of
from twinlog.testing.fakes.cluster import Call, FakeCluster
from twinlog.testing.virtual_time import FakeClock
from twinlog.transforms.chain import MOST_ROUTES
from twinlog_source.config import source_flows
from twinlog_source.topics.routes import RouteBook
from unit.decided import told
from unit.source.flow_rig import FlowRig

FLOW = Flow("A", "B")
ORDERS = TopicPartition("orders", 1)


class Word:
    """configsync's."""

    def __init__(self) -> None:
        self.known: dict[str, ReplicatedTopic] = {}

    def topics(self, _flow: Flow) -> dict[str, ReplicatedTopic]:
        return {name: each for name, each in self.known.items() if not each.routed_from}

    def routes(self, _flow: Flow) -> dict[str, ReplicatedTopic]:
        return {name: each for name, each in self.known.items() if each.routed_from}

    def ever_routed(self, flow: Flow) -> dict[str, ReplicatedTopic]:
        return self.routes(flow)

    def add(self, name: str, routed_from: str = "", partitions: int = 2) -> None:
        self.known[name] = ReplicatedTopic(
            source_topic=name,
            target_topic=f"A.{name}",
            target_topic_id=f"id of {name}",
            partition_count=2,
            target_partition_count=partitions,
            state=TopicState.READY,
            routed_from=routed_from,
        )


@pytest.fixture
def book(tmp_path: Path) -> RouteBook:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topics = orders, users\n"
    )
    (flow,) = source_flows(load(file, environ={}))
    word = Word()
    for name in ("orders", "users"):
        word.add(name)
    table = routes_of(FLOW, FakeCluster("B", clock=FakeClock()))
    return RouteBook(flow=flow, decisions=cast("Decisions", word), table=table)


async def test_a_new_route_is_on_the_log_and_has_no_topic_before_configsync_says_so(book: RouteBook) -> None:
    (route,) = await book.want(ORDERS, ["eu"])
    assert route == ("eu", "A.eu", 0)
    assert await routes_of(FLOW, book.table.cluster).load() == {"eu": StoredRoute("orders")}
    assert isinstance(book.decisions, Word)
    book.decisions.add("eu", "orders")
    assert list(await book.want(ORDERS, ["eu"])) == [("eu", "A.eu", 2)]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("users", "is a topic of the source"),
        ("taken", "records of users go there"),
        ("heartbeats", "for heartbeats"),
        ("checkpoints.internal", "internal topic"),
        ("__consumer_offsets", "internal topic"),
        ("B.orders", "came through cluster B"),
        ("a/b", "no name of a topic"),
        ("x" * 248, "no name of a topic"),
    ],
)
async def test_a_topic_that_records_must_not_have_is_refused_by_name(
    book: RouteBook, name: str, why: str
) -> None:
    await book.table.put({"taken": StoredRoute("users")})
    with pytest.raises(StateError, match=why) as refused:
        await book.want(ORDERS, [name])
    assert refused.value.reason == "ROUTE_REFUSED"
    assert await book.table.load() == {"taken": StoredRoute("users")}


async def test_of_two_topics_that_want_one_new_route_at_once_one_is_refused(book: RouteBook) -> None:
    cluster = book.table.cluster
    assert isinstance(cluster, FakeCluster)

    async def wait(_: Call) -> None:
        await pause(1)

    for operation in ("describe_topics", "append"):
        cluster.hooks.add(operation, wait, after=False)
    refused: list[StateError] = []

    async def want(topic: str) -> None:
        try:
            await book.want(TopicPartition(topic, 0), ["eu"])
        except StateError as error:
            refused.append(error)

    async with asyncio.TaskGroup() as group:
        for topic in ("orders", "users"):
            group.create_task(want(topic))
    assert [error.reason for error in refused] == ["ROUTE_REFUSED"]
    assert (await book.table.load())["eu"].source_topic in str(refused[0])


async def test_a_route_that_could_not_be_written_down_is_free_for_another_topic(book: RouteBook) -> None:
    cluster = book.table.cluster
    assert isinstance(cluster, FakeCluster)

    def fail(_: Call) -> None:
        raise TransientKafkaError("no answer in time", reason="KAFKA_TIMEOUT")

    undo = cluster.intercept("append", fail)
    with pytest.raises(TransientKafkaError):
        await book.want(ORDERS, ["eu"])
    undo()
    await book.want(TopicPartition("users", 0), ["eu"])
    assert await book.table.load() == {"eu": StoredRoute("users")}


async def test_a_wrong_expression_creates_no_more_than_so_many_topics(book: RouteBook) -> None:
    await book.table.put({f"r{n}": StoredRoute("orders") for n in range(MOST_ROUTES - 1)})
    await book.want(ORDERS, ["last"])
    await book.want(TopicPartition("users", 0), ["more"])
    with pytest.raises(StateError, match="has 1000 routes already"):
        await book.want(ORDERS, ["more-yet"])
    assert await book.want(ORDERS, ["r5"])
    # Of topics that were deleted on the target none counts, until records take the route again.
    assert isinstance(book.decisions, Word)
    book.decisions.add("r7", "orders", partitions=0)
    await book.want(ORDERS, ["more-yet"])
    with pytest.raises(StateError, match="has 1000 routes already"):
        await book.want(ORDERS, ["r7"])


async def test_a_name_is_that_of_a_route_until_a_topic_of_the_source_has_it(rig: FlowRig) -> None:
    decisions = (await rig.process()).decisions
    eu = ReplicatedTopic(source_topic="eu", target_topic="A.eu", partition_count=1, routed_from="orders")
    for entry, now, ever in (
        (eu, {"eu"}, {"eu"}),
        (replace(eu, selected=False), set[str](), {"eu"}),
        (replace(eu, routed_from=""), set[str](), set[str]()),
    ):
        await told(decisions, rig.target, FLOW, entry)
        assert (set(decisions.routes(FLOW)), set(decisions.ever_routed(FLOW))) == (now, ever)


async def test_a_record_brings_back_a_topic_that_was_deleted_on_the_target(book: RouteBook) -> None:
    assert isinstance(book.decisions, Word)
    await book.want(ORDERS, ["eu"])
    book.decisions.add("eu", "orders", partitions=0)
    assert list(await book.want(ORDERS, ["eu"])) == [("eu", "A.eu", 0)]
    assert await book.table.load() == {"eu": StoredRoute("orders", instead_of="id of eu")}
