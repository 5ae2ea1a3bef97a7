"""Batches that the leader refuses again and again: how often they are sent, and when they fail."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.kafka.listener_rig import PATIENT_SECONDS
from integration.kafka.request_log import RequestLog
from twinlog.batches import NewRecord, build_batch
from twinlog.config import load
from twinlog.errors import KafkaError
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.kafka.raw import RawProducer
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import ClusterSpec
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually, make_topics, unique_name
from twinlog.testing.raw_copying import open_session
from twinlog_source.task.writing.transport import producer_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinTopic:
    """Its leader takes no batch: a replica too few is in sync."""

    cluster: BlockingCluster
    name: str
    leader: int


@pytest.fixture
async def thin_topic(start_cluster: Callable[[ClusterSpec], BlockingCluster]) -> ThinTopic:
    cluster = start_cluster(ClusterSpec(name="thin", broker_count=3))
    name = unique_name("thin")
    async with open_cluster("thin", cluster.client_properties()) as admin:
        await make_topics(
            admin,
            NewTopic(
                name=name, partition_count=1, replication_factor=2, configs={"min.insync.replicas": "2"}
            ),
        )
    async with open_session("thin", cluster.client_properties()) as session:
        client = await session.client("look")

        async def replicas(count: int) -> list[int]:
            """The leader, and then the others that are in sync, when there are so many."""
            await session.leader(TopicPartition(name, 0), "look")
            await client.force_metadata_update()
            found = client.cluster._partitions[name][0]
            assert len(found.isr) == count, found
            return [found.leader, *(node for node in found.isr if node != found.leader)]

        leader, follower = await eventually(lambda: replicas(2))
        cluster.kill_broker(follower)
        assert await eventually(lambda: replicas(1)) == [leader]
    return ThinTopic(cluster=cluster, name=name, leader=leader)


@asynccontextmanager
async def refused_batches(
    topic: ThinTopic, directory: Path, **settings: Mapping[str, str]
) -> AsyncIterator[Mapping[str, "asyncio.Future[int]"]]:
    """A batch for each target, sent as the `settings` of its producer say. The broker never takes it."""
    file = directory / "mm2.properties"
    servers = topic.cluster.bootstrap_servers
    lines = [f"clusters = A, {', '.join(settings)}", f"A.bootstrap.servers = {servers}"]
    for alias, keys in settings.items():
        lines += [f"A->{alias}.enabled = true", f"{alias}.bootstrap.servers = {servers}"]
        lines += [f"{alias}.producer.{key} = {value}" for key, value in keys.items()]
    file.write_text("\n".join(lines))
    async with AsyncExitStack() as opened:
        sent = {}
        for flow in load(file, environ={}).enabled_flows:
            alias, properties = flow.flow.target, flow.clients.data_producer.properties
            session = await opened.enter_async_context(open_session(alias, dict(properties)))
            producer = RawProducer(session, producer_settings(properties, alias=alias))
            await opened.enter_async_context(producer)
            batch = build_batch([NewRecord(None, b"refused", 1)])
            sent[alias] = producer.send(TopicPartition(topic.name, 0), batch)
        yield sent


async def test_a_refused_record_is_sent_again_as_often_as_retry_backoff_ms_says(
    thin_topic: ThinTopic, tmp_path: Path
) -> None:
    log = RequestLog(cluster=thin_topic.cluster, broker_id=thin_topic.leader)
    await log.begin()
    names = {alias: unique_name(alias) for alias in ("quick", "slow")}
    settings = {
        alias: {
            "client.id": names[alias],
            "delivery.timeout.ms": "6000000",
            "retry.backoff.ms": "10" if alias == "quick" else "3000000",
        }
        for alias in names
    }
    async with refused_batches(thin_topic, tmp_path, **settings) as sent:
        await eventually(lambda: len(log.of("PRODUCE", names["quick"])) >= 10)
        # Ten of the other took less than its pause.
        assert len(log.of("PRODUCE", names["slow"])) <= 1
        assert not [each for each in sent.values() if each.done()]


async def test_a_batch_that_is_refused_again_and_again_fails_after_delivery_timeout_ms(
    thin_topic: ThinTopic, tmp_path: Path
) -> None:
    settings = {
        "hasty": {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000"},
        "patient": {"delivery.timeout.ms": "6000000"},
    }
    async with refused_batches(thin_topic, tmp_path, **settings) as sent:
        with pytest.raises(KafkaError):
            async with asyncio.timeout(PATIENT_SECONDS):
                await sent["hasty"]
        assert not sent["patient"].done()
