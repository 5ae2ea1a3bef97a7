"""How tests make a broker leave the end of a transaction out: the only replica of a partition is away while
the transaction's coordinator is not."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest

from twinlog.errors import KafkaError
from twinlog.kafka.raw import DataClientPool, OpenTransaction, open_transactions
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.model import TopicPartition
from twinlog.testing.brokers import eventually
from twinlog.testing.raw_copying import open_session

_TRANSACTION = 1
_TELLING = (" WARN ", " ERROR ", "Raft", "Shrinking", "Expanding", "transaction metadata")
_NOISE = ("(NetworkClient)", "Recorded new KRaft controller")
_LOG_LINES = 40
_LINE_CHARACTERS = 300


async def coordinator_of(session: DataClientPool, transactional_id: str) -> int:
    """Broker id of the coordinator of a transactional id."""

    async def found() -> int:
        node = await session.any_node("look")
        response = await session.send(node, FindCoordinatorRequest(transactional_id, _TRANSACTION), "look")
        assert response.error_code == 0
        return int(response.coordinator_id)

    return await eventually(found)


async def open_on(session: DataClientPool, partition: TopicPartition) -> list[OpenTransaction]:
    """What is open there; fails where nothing is."""
    opened = (await open_transactions(session, [partition]))[partition]
    if isinstance(opened, KafkaError):
        raise opened
    assert opened
    return opened


def print_logs(cluster: BlockingCluster) -> None:
    """What each broker wrote last about its quorum, its partitions and what went wrong: for the report of a
    test that failed."""
    for broker in cluster.broker_ids:
        lines = cluster.log_file(broker).read_text(errors="replace").splitlines()
        telling = [
            line[:_LINE_CHARACTERS]
            for line in lines
            if any(word in line for word in _TELLING) and not any(word in line for word in _NOISE)
        ]
        sys.stdout.write("\n  ".join([f"broker {broker}:", *telling[-_LOG_LINES:]]) + "\n")


async def until_in_sync(cluster: BlockingCluster) -> None:
    """Wait until every replica of every partition is in sync, those of Kafka's own topics too: before that,
    the loss of one broker may leave a partition without a leader until this very broker is back."""
    async with open_session("X", cluster.client_properties()) as session:

        async def look() -> bool:
            node = await session.any_node("look")
            response = await session.send(node, MetadataRequest(), "look")
            described = response.to_object()
            return len(described["brokers"]) == len(cluster.broker_ids) and all(
                len(partition["isr"]) == len(partition["replicas"])
                for topic in described["topics"]
                for partition in topic["partitions"]
            )

        await eventually(look, 90.0)


@asynccontextmanager
async def down(cluster: BlockingCluster, broker: int) -> AsyncIterator[None]:
    """A broker is killed, and serves again at the end."""
    await until_in_sync(cluster)
    cluster.kill_broker(broker)
    try:
        yield
    except BaseException:
        print_logs(cluster)
        raise
    finally:
        await asyncio.get_running_loop().run_in_executor(None, cluster.restart_broker, broker)
