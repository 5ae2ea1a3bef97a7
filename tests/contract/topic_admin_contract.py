"""What every `TopicAdmin` does."""

import re

from contract.workbench import Workbench, append_values, failure, new_topic, read_all, success
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, unique_name


class TopicAdminContract:
    async def test_a_created_topic_is_listed_and_described(self, bench: Workbench) -> None:
        name = await new_topic(bench.cluster, "described", partition_count=3)
        assert await eventually(lambda: _listed(bench, name))
        topic = success((await bench.cluster.describe_topics([name]))[name])
        assert (topic.name, topic.partition_count, topic.replication_factor) == (name, 3, 1)
        assert not topic.internal
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", topic.topic_id), topic.topic_id

    async def test_an_unknown_topic_is_an_error_that_hides_no_other(self, bench: Workbench) -> None:
        name = await new_topic(bench.cluster, "known")
        described = await bench.cluster.describe_topics([name, "no-such-topic"])
        assert success(described[name]).name == name
        missing = failure(described["no-such-topic"])
        assert (missing.reason, missing.code, missing.retriable) == ("TOPIC_UNKNOWN", 3, False)

    async def test_creating_what_exists_is_an_error_that_hides_no_other(self, bench: Workbench) -> None:
        name = await new_topic(bench.cluster, "exists")
        other = unique_name("other")
        made = await bench.cluster.create_topics(
            [NewTopic(name=one, partition_count=1, replication_factor=1) for one in (name, other)]
        )
        assert failure(made[name]).reason == "TOPIC_EXISTS"
        assert made[other] is None

    async def test_the_broker_chooses_the_replication_factor(self, bench: Workbench) -> None:
        name = unique_name("default-replication")
        made = await bench.cluster.create_topics(
            [NewTopic(name=name, partition_count=1, replication_factor=-1)]
        )
        assert made == {name: None}
        assert success((await bench.cluster.describe_topics([name]))[name]).replication_factor == 1

    async def test_impossible_topics_are_refused_with_their_reason(self, bench: Workbench) -> None:
        wanted = {
            "TOPIC_INVALID": NewTopic(name="not a name", partition_count=1, replication_factor=1),
            "PARTITIONS_INVALID": NewTopic(name=unique_name("none"), partition_count=0, replication_factor=1),
            "REPLICATION_FACTOR_INVALID": NewTopic(
                name=unique_name("many"), partition_count=1, replication_factor=9
            ),
            "CONFIG_REFUSED": NewTopic(
                name=unique_name("odd"), partition_count=1, replication_factor=1, configs={"no.such": "1"}
            ),
        }
        made = await bench.cluster.create_topics(wanted.values())
        assert {reason: failure(made[topic.name]).reason for reason, topic in wanted.items()} == {
            reason: reason for reason in wanted
        }

    async def test_partitions_grow_and_never_shrink(self, bench: Workbench) -> None:
        name = await new_topic(bench.cluster, "grows", partition_count=2)
        grown = await bench.cluster.create_partitions({name: 4, "no-such-topic": 4})
        assert grown[name] is None
        assert failure(grown["no-such-topic"]).reason == "TOPIC_UNKNOWN"
        shrunk = await bench.cluster.create_partitions({name: 3})
        assert failure(shrunk[name]).reason == "PARTITIONS_INVALID"
        assert await eventually(lambda: _has_partitions(bench, name, 4))

    async def test_a_topic_created_again_has_another_id_and_an_empty_log(self, bench: Workbench) -> None:
        name = await new_topic(bench.cluster, "again")
        before = success((await bench.cluster.describe_topics([name]))[name])
        await append_values(bench.cluster, TopicPartition(name, 0), [b"old"])
        assert await bench.cluster.delete_topics([name]) == {name: None}
        assert await eventually(lambda: _gone(bench, name))
        made = await bench.cluster.create_topics(
            [NewTopic(name=name, partition_count=1, replication_factor=1)]
        )
        assert made == {name: None}
        after = success((await bench.cluster.describe_topics([name]))[name])
        assert after.topic_id != before.topic_id
        assert await read_all(bench.cluster, TopicPartition(name, 0)) == []

    async def test_deleting_an_unknown_topic_is_an_error(self, bench: Workbench) -> None:
        deleted = await bench.cluster.delete_topics(["no-such-topic"])
        assert failure(deleted["no-such-topic"]).reason == "TOPIC_UNKNOWN"

    async def test_kafkas_internal_topics_are_not_listed(self, bench: Workbench) -> None:
        topic = await new_topic(bench.cluster, "makes-transactions")
        # On a real broker this makes __transaction_state.
        async with bench.open_transaction(TopicPartition(topic, 0), [b"one"]):
            assert not [name for name in await bench.cluster.list_topics() if name.startswith("__")]

    async def test_the_cluster_has_one_id_and_its_brokers(self, bench: Workbench) -> None:
        cluster_id = await bench.cluster.cluster_id()
        assert cluster_id
        assert cluster_id == await bench.cluster.cluster_id()
        (broker,) = await bench.cluster.brokers()
        assert broker.node_id == 1
        assert broker.host
        assert broker.port > 0
        assert broker.rack is None

    async def test_nothing_asked_is_nothing_answered(self, bench: Workbench) -> None:
        assert await bench.cluster.describe_topics([]) == {}
        assert await bench.cluster.create_topics([]) == {}
        assert await bench.cluster.create_partitions({}) == {}
        assert await bench.cluster.delete_topics([]) == {}


async def _listed(bench: Workbench, name: str) -> bool:
    return name in await bench.cluster.list_topics()


async def _gone(bench: Workbench, name: str) -> bool:
    return name not in await bench.cluster.list_topics()


async def _has_partitions(bench: Workbench, name: str, count: int) -> bool:
    return success((await bench.cluster.describe_topics([name]))[name]).partition_count == count
