"""The two clusters everything runs on, and what the benchmark itself does with their topics."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rich.console import Console

from bench.distance import distance
from twinlog.batches import VisibleCounter, read_batches
from twinlog.kafka.clients import fetch_options
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster, NewTopic, OffsetSpec
from twinlog.kafka.raw import DataClientPool, FetchFailure, RawFetcher, list_offsets
from twinlog.local.blocking_cluster import BlockingCluster, start_clusters, stop_clusters
from twinlog.local.port_lease import PortLease
from twinlog.local.spec import ADDRESS, ClusterSpec, FarListener
from twinlog.model import TopicPartition
from twinlog.testing.raw_copying import open_session

_BROKER_HEAP_MEGABYTES = 1024
_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One cluster."""

    brokers: BlockingCluster
    admin: KafkaCluster
    session: DataClientPool

    async def create_topic(self, topic: str, partition_count: int) -> None:
        """Raises KafkaError."""
        new = NewTopic(name=topic, partition_count=partition_count, replication_factor=1)
        error = (await self.admin.create_topics([new]))[topic]
        if error is not None:
            raise error

    async def delete_topic(self, topic: str) -> None:
        """So that the disk does not fill; a topic that does not exist is no error."""
        await self.admin.delete_topics([topic])

    async def ends(self, topic: str, partition_count: int) -> Sequence[int]:
        """Where a read_committed consumer stands at the end of each partition; 0 where there is none yet."""
        partitions = [TopicPartition(topic, number) for number in range(partition_count)]
        found = await list_offsets(self.session, OffsetSpec.LAST_STABLE, partitions)
        return [end if isinstance(end := found.get(each), int) else 0 for each in partitions]

    async def count_records(self, topic: str, ends: Sequence[int]) -> Sequence[int]:
        """Visible records below `ends` in each partition: transaction markers take offsets, too.

        Reads everything. Raises KafkaError.
        """
        counters = {
            TopicPartition(topic, number): VisibleCounter(next_offset=0, stop_offset=end)
            for number, end in enumerate(ends)
        }
        async with RawFetcher(self.session, fetch_options({})) as fetcher:
            while unread := {each: done.next_offset for each, done in counters.items() if not done.is_done}:
                answers = await fetcher.poll(unread, max_wait_seconds=_POLL_SECONDS)
                for partition, answer in answers.items():
                    if isinstance(answer, FetchFailure):
                        raise answer.error
                    counters[partition].feed(read_batches(answer.records), answer.aborted)
        return [counter.records for counter in counters.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    source: Side
    target: Side

    @asynccontextmanager
    async def way_to_target(
        self, round_trip_ms: float, *, lost_every_seconds: float = 0.0
    ) -> AsyncIterator[dict[str, str]]:
        """Client properties of a target that is so far away, while this lasts; its clients lose a connection
        so often (0 = none). Raises StateError."""
        brokers = self.target.brokers
        far = brokers.spec.far
        if not round_trip_ms or far is None:
            yield brokers.client_properties()
            return
        async with distance(
            far.advertised_port,
            far.port,
            round_trip_ms=round_trip_ms,
            lost_every_seconds=lost_every_seconds,
        ):
            yield {
                **brokers.client_properties(),
                "bootstrap.servers": f"{ADDRESS}:{far.advertised_port}",
            }


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """Two clusters of one broker each, with the JVM's optimising compiler on. Raises TwinlogError."""
    lease = PortLease(2)
    port, advertised_port = lease.ports
    specs = [
        ClusterSpec(name="source", quick_start=False, heap_megabytes=_BROKER_HEAP_MEGABYTES),
        ClusterSpec(
            name="target",
            quick_start=False,
            heap_megabytes=_BROKER_HEAP_MEGABYTES,
            far=FarListener(port=port, advertised_port=advertised_port),
        ),
    ]
    clusters = await asyncio.to_thread(start_clusters, *specs)
    try:
        async with _side(clusters[0]) as source, _side(clusters[1]) as target:
            yield Stage(source=source, target=target)
    finally:
        await asyncio.to_thread(stop_clusters, clusters)
        lease.release()


@asynccontextmanager
async def _side(brokers: BlockingCluster) -> AsyncIterator[Side]:
    name, properties = brokers.spec.name, brokers.client_properties()
    async with open_cluster(name, properties) as admin, open_session(name, properties) as session:
        yield Side(brokers=brokers, admin=admin, session=session)


# What is seen while the benchmark runs: a line per step. On stderr.


class Display:
    def __init__(self) -> None:
        self.console = Console(file=sys.stderr)

    def step(self, text: str) -> None:
        self.console.print(f"[bold cyan]▸[/] {text}")

    def fact(self, text: str) -> None:
        self.console.print(f"  [dim]{text}[/]", highlight=False)

    def failure(self, text: str) -> None:
        self.console.print(f"  [bold red]{text}[/]", highlight=False)
