"""What the contract suites need beyond the ports, made in two ways: on the fake and on a real broker."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol, TypeVar

from twinlog.errors import KafkaError
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.model import Record, TopicPartition
from twinlog.testing.broker.calls import Release
from twinlog.testing.brokers import make_topics, unique_name

Answer = TypeVar("Answer")


class Ending(Enum):
    COMMIT = "commit"
    ABORT = "abort"


class ClusterRig(Protocol):
    """One cluster, and other clients at work on it."""

    cluster: KafkaCluster
    release: Release
    """What its brokers can."""

    async def transaction(self, partition: TopicPartition, values: Sequence[bytes], ending: Ending) -> None:
        """Write records in a transaction and end it; its marker takes one offset."""
        ...

    def open_transaction(
        self, partition: TopicPartition, values: Sequence[bytes]
    ) -> AbstractAsyncContextManager[None]:
        """Write records in a transaction that stays open; aborted at the end."""
        ...

    def active_group(
        self, group_id: str, topic: str, *, group_type: str
    ) -> AbstractAsyncContextManager[None]:
        """A group with one member that is assigned the topic; the test is skipped if the release has no such
        groups."""
        ...


async def new_topic(
    cluster: KafkaCluster, hint: str, *, partition_count: int = 1, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic of its own for a test, and return its name once it is led."""
    name = unique_name(hint)
    await make_topics(
        cluster,
        NewTopic(name=name, partition_count=partition_count, replication_factor=1, configs=configs or {}),
    )
    return name


async def append_values(
    cluster: KafkaCluster, partition: TopicPartition, values: Sequence[bytes]
) -> list[int]:
    async with cluster.writer() as writer:
        return [await writer.append(partition, key=b"key", value=value) for value in values]


async def read_all(
    cluster: KafkaCluster, partition: TopicPartition, *, read_committed: bool = True
) -> list[Record]:
    """Every visible record from the log's start to what was its end."""
    records: list[Record] = []
    async with cluster.reader(read_committed=read_committed) as reader:
        offset = 0
        while True:
            fetched = await reader.fetch(partition, offset, max_wait_seconds=0)
            records += fetched.records
            if fetched.next_offset == offset:
                return records
            offset = fetched.next_offset


def failure(answer: object) -> KafkaError:
    """The error that an answer per resource is."""
    assert isinstance(answer, KafkaError), f"not an error: {answer!r}"
    return answer


def success(answer: Answer | KafkaError | None) -> Answer:
    """The answer that is no error."""
    assert answer is not None
    assert not isinstance(answer, KafkaError), answer
    return answer
