"""Where a finite copy ends, and what is gone before it does."""

from pathlib import Path

from simulated.clients import Applications
from twinlog.config import load
from twinlog.model import Flow, TopicPartition
from twinlog.testing.broker import FakeKafka
from twinlog_source.verify.ends import Until, find_ends, watched_topics
from unit.source.flow_rig import OneFile

FLOW, P = Flow("A", "B"), TopicPartition("orders", 0)


async def test_a_finite_copy_ends_behind_open_transactions_and_knows_which_topics_are_gone() -> None:
    async with FakeKafka(name="a") as a, FakeKafka(name="b") as b:
        servers = f"A.bootstrap.servers = {a.bootstrap}\nB.bootstrap.servers = {b.bootstrap}\n"
        file = OneFile(f"clusters = A, B\nA->B.enabled = true\nA->B.topics = orders.*\n{servers}")
        configuration = load(Path("mm2.properties"), environ={}, files=file)
        source = Applications(a.cluster)
        for topic in ("orders", "orders.deleted"):
            a.cluster.create_topic(topic)
            source.produce(topic, 0, b"first")
        source.open_transaction("orders", b"open")
        source.produce("orders", 0, b"acknowledged")
        found = await find_ends(configuration, FLOW, (), Until())
        assert found.ends == {P: 3, TopicPartition("orders.deleted", 0): 1}
        async with watched_topics(configuration, FLOW, found) as gone:
            assert await gone() == frozenset()
            a.cluster.delete_topic("orders.deleted")
            assert await gone() == {"orders.deleted"}
