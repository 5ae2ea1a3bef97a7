"""What every `TopicAdmin` does."""

import re

from contract.cluster.cluster_rig import ClusterRig, append_values, failure, new_topic, read_all, success
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, unique_name


class TopicAdminContract:
    async def test_a_created_topic_is_listed_and_described(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "described", partition_count=3)
        assert await eventually(lambda: _listed(rig, name))
        topic = success((await rig.cluster.describe_topics([name]))[name])
        assert (topic.name, topic.partition_count, topic.replication_factor) == (name, 3, 1)
        assert not topic.internal
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", topic.topic_id), topic.topic_id

    async def test_an_unknown_topic_is_an_error_that_hides_no_other(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "known")
        described = await rig.cluster.describe_topics([name, "no-such-topic"])
        assert success(described[name]).name == name
        missing = failure(described["no-such-topic"])
        assert (missing.reason, missing.code, missing.retriable) == ("TOPIC_UNKNOWN", 3, False)

    async def test_creating_what_exists_is_an_error_that_hides_no_other(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "exists")
        other = unique_name("other")
        made = await rig.cluster.create_topics(
            [NewTopic(name=one, partition_count=1, replication_factor=1) for one in (name, other)]
        )
        assert failure(made[name]).reason == "TOPIC_EXISTS"
        assert made[other] is None
        made = await rig.cluster.create_topics([NewTopic(name=name, partition_count=1, replication_factor=1)])
        assert f"create topic {name}: " in str(failure(made[name]))

    async def test_the_broker_chooses_the_replication_factor(self, rig: ClusterRig) -> None:
        name = unique_name("default-replication")
        made = await rig.cluster.create_topics(
            [NewTopic(name=name, partition_count=1, replication_factor=-1)]
        )
        assert made == {name: None}
        assert success((await rig.cluster.describe_topics([name]))[name]).replication_factor == 1

    async def test_impossible_topics_are_refused_with_their_reason(self, rig: ClusterRig) -> None:
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
        made = await rig.cluster.create_topics(wanted.values())
        assert {reason: failure(made[topic.name]).reason for reason, topic in wanted.items()} == {
            reason: reason for reason in wanted
        }

    async def test_partitions_grow_and_never_shrink(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "grows", partition_count=2)
        grown = await rig.cluster.create_partitions({name: 4, "no-such-topic": 4})
        assert grown[name] is None
        assert failure(grown["no-such-topic"]).reason == "TOPIC_UNKNOWN"
        shrunk = await rig.cluster.create_partitions({name: 3})
        assert failure(shrunk[name]).reason == "PARTITIONS_INVALID"
        assert await eventually(lambda: _has_partitions(rig, name, 4))

    async def test_a_topic_created_again_has_another_id_and_an_empty_log(self, rig: ClusterRig) -> None:
        name = await new_topic(rig.cluster, "again")
        before = success((await rig.cluster.describe_topics([name]))[name])
        await append_values(rig.cluster, TopicPartition(name, 0), [b"old"])
        assert await rig.cluster.delete_topics([name]) == {name: None}
        assert await eventually(lambda: _gone(rig, name))
        again = NewTopic(name=name, partition_count=1, replication_factor=1)

        async def made() -> bool:
            return await rig.cluster.create_topics([again]) == {name: None}

        assert await eventually(made)  # A controller with ZooKeeper deletes what nobody sees any more.
        after = success((await rig.cluster.describe_topics([name]))[name])
        assert after.topic_id != before.topic_id
        assert await read_all(rig.cluster, TopicPartition(name, 0)) == []

    async def test_deleting_an_unknown_topic_is_an_error(self, rig: ClusterRig) -> None:
        deleted = await rig.cluster.delete_topics(["no-such-topic"])
        assert failure(deleted["no-such-topic"]).reason == "TOPIC_UNKNOWN"

    async def test_kafkas_internal_topics_are_not_listed(self, rig: ClusterRig) -> None:
        topic = await new_topic(rig.cluster, "makes-transactions")
        # On a real broker this makes __transaction_state.
        async with rig.open_transaction(TopicPartition(topic, 0), [b"one"]):
            assert not [name for name in await rig.cluster.list_topics() if name.startswith("__")]

    async def test_the_cluster_has_one_id_and_its_brokers(self, rig: ClusterRig) -> None:
        cluster_id = await rig.cluster.cluster_id()
        assert cluster_id
        assert cluster_id == await rig.cluster.cluster_id()
        present = await rig.cluster.presence()
        assert present.cluster_id == cluster_id
        ((node_id, address),) = present.brokers.items()
        host, _, port = address.rpartition(":")
        assert (node_id, bool(host), int(port) > 0) == (1, True, True)
        assert present.told_by in (1, None)

    async def test_nothing_asked_is_nothing_answered(self, rig: ClusterRig) -> None:
        assert await rig.cluster.describe_topics([]) == {}
        assert await rig.cluster.create_topics([]) == {}
        assert await rig.cluster.create_partitions({}) == {}
        assert await rig.cluster.delete_topics([]) == {}


async def _listed(rig: ClusterRig, name: str) -> bool:
    return name in await rig.cluster.list_topics()


async def _gone(rig: ClusterRig, name: str) -> bool:
    return name not in await rig.cluster.list_topics()


async def _has_partitions(rig: ClusterRig, name: str, count: int) -> bool:
    return success((await rig.cluster.describe_topics([name]))[name]).partition_count == count
