"""Writes orders to one cluster, and makes the topic when it is not there.

python examples/logical_topic/producer.py HOST:PORT ORDER...
"""
# ruff: noqa: INP001

import asyncio
import sys
from collections.abc import Sequence

from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.model import TopicPartition

TOPIC = "orders"


async def main(bootstrap_servers: str, orders: Sequence[str]) -> None:
    async with open_cluster("local", {"bootstrap.servers": bootstrap_servers}) as cluster:
        if TOPIC not in await cluster.list_topics():
            await cluster.create_topics([NewTopic(name=TOPIC, partition_count=1, replication_factor=1)])
        async with cluster.writer() as writer:
            for order in orders:
                await writer.append(TopicPartition(TOPIC, 0), key=None, value=order.encode())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
