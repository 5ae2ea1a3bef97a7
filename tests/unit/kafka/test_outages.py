"""Which brokers do not answer while others do: by what partitions say of them, and by asking each. What the
metadata still says of a broker that does not answer counts for nothing."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import cast

import pytest

from twinlog.errors import FatalKafkaError, TransientKafkaError
from twinlog.kafka.cluster import BrokerAdminMixin, open_cluster
from twinlog.kafka.outage import Outage
from twinlog.kafka.ports import NO_BROKERS, KafkaCluster, Presence
from twinlog.kafka.protocol.client_pool import DataClientPool
from twinlog.kafka.protocol.requests import API_KEYS
from twinlog.testing.broker import FakeKafka
from twinlog.testing.broker.calls import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3, Release

TIMEOUT_SECONDS = 5.0


async def missed(cluster: KafkaCluster, whole: Mapping[int, str] = NO_BROKERS) -> Outage:
    return await cluster.outage(await cluster.presence(), whole)


@pytest.mark.parametrize("brokers", [1, 3])
async def test_each_broker_is_asked_once_while_all_answer(brokers: int) -> None:
    """In each process every few seconds: most requests of many idle flows were these."""
    async with (
        FakeKafka(node_count=brokers) as kafka,
        open_cluster("B", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS) as cluster,
    ):
        every = (await cluster.presence()).brokers
        await missed(cluster, every)  # Connects.
        asked: list[int] = []
        kafka.on_request = lambda node, _: asked.append(node.node_id)
        assert not (await missed(cluster, every)).brokers
        assert len(asked) == brokers
        assert set(asked) == every.keys()


@pytest.mark.parametrize("release", [KAFKA_4_3, KAFKA_3_9, KAFKA_2_8], ids=lambda each: each.name)
async def test_a_dead_broker_is_missed_for_as_long_as_partitions_have_replicas_on_it(
    release: Release,
) -> None:
    async with FakeKafka(node_count=3, release=release) as kafka:
        for name, factor in (("orders", 3), ("single", 1)):
            kafka.cluster.create_topic(name, partition_count=3, replication_factor=factor)
        async with open_cluster(
            "B", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS
        ) as cluster:
            every = (await cluster.presence()).brokers
            assert len(every) == 3
            assert not (await missed(cluster)).brokers
            dead = kafka.cluster.topics["single"].partitions[0].leader
            await kafka.stop_node(dead)
            present = await cluster.presence()
            assert present.brokers.keys() == every.keys() - {dead}
            assert await cluster.outage(present, every) == Outage(
                brokers={dead: every[dead]}, without_leader=1, under_replicated=4, in_sync={2: 3}
            )
            assert every[dead] in kafka.bootstrap.split(",")
            place = "" if release.is_before_4 else every[dead]
            assert (await missed(cluster)).brokers == {dead: place}, "who never saw it asks where it was"
            for name in ("orders", "single"):
                kafka.cluster.delete_topic(name)
            assert not (await missed(cluster, every)).brokers


async def test_a_broker_that_the_metadata_names_is_missed_when_it_answers_nothing() -> None:
    async with FakeKafka(node_count=3) as kafka:
        kafka.cluster.create_topic("orders", partition_count=3, replication_factor=3)
        async with open_cluster(
            "B", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS
        ) as cluster:
            every = (await cluster.presence()).brokers
            hung = min(every)
            fault = kafka.faults.begin(node_id=hung, hangs=True)
            assert await missed(cluster, every) == Outage(
                brokers={hung: every[hung]}, without_leader=1, under_replicated=3, in_sync={2: 2}
            )
            kafka.faults.end(fault)
            assert not (await missed(cluster, every)).brokers


async def test_a_broker_that_missed_one_request_is_not_named() -> None:
    async with (
        FakeKafka(node_count=3) as kafka,
        open_cluster("B", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS) as cluster,
    ):
        every = (await cluster.presence()).brokers
        kafka.faults.begin(api="metadata", node_id=max(every), swallows_unseen=True, times=1)
        assert not (await missed(cluster, every)).brokers


class RotatedPassword:
    """Brokers that answer on the connection that is open, and refuse the login on each new one."""

    alias, timeout_seconds = "B", TIMEOUT_SECONDS

    def throttled_seconds(self, _node_id: int, _api_key: int) -> float:
        return 0.0

    async def make_known(self, node_ids: Collection[int], doing: str) -> None: ...

    async def send(self, _node_id: int, _request: object, doing: str) -> None:
        raise FatalKafkaError(f"{doing}: refused", reason="AUTHENTICATION_FAILED")


class Admin(BrokerAdminMixin):
    def __init__(self) -> None:
        self._wire = cast("DataClientPool", RotatedPassword())


async def test_a_login_that_is_refused_meanwhile_is_an_error_of_kafka() -> None:
    with pytest.raises(TransientKafkaError, match="no broker answers"):
        await Admin().outage(Presence("id", {1: "b1:9092", 2: "b2:9092"}))


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_a_dead_coordinator_is_not_looked_for_all_the_time(is_noticed: bool) -> None:
    """All services ask for groups, owners and transactions, each over connections of its own."""
    async with (
        FakeKafka(node_count=3) as kafka,
        open_cluster("B", {"bootstrap.servers": kafka.bootstrap}, timeout_seconds=TIMEOUT_SECONDS) as cluster,
    ):
        kafka.cluster.moved_coordinators[0, "away"] = 3
        await cluster.group_offsets(["away"])
        await kafka.stop_node(3, is_noticed=is_noticed)
        asked: Counter[int] = Counter()
        kafka.on_request = lambda _node, request: asked.update((request.api_key,))
        assert not isinstance((await cluster.group_offsets(["away"]))["away"], dict)
        assert asked[API_KEYS["metadata"]] < 3 * TIMEOUT_SECONDS
        assert 0 < asked[API_KEYS["find_coordinator"]] < 3 * TIMEOUT_SECONDS
