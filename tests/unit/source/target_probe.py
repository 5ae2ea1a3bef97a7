"""A target probe that asks a fake cluster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twinlog.errors import KafkaError
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import FakeCluster
from twinlog_source.log.facts import WriterFact


@dataclass(slots=True)
class FakeTargetProbe:
    target: FakeCluster
    known: dict[TopicPartition, Collection[int] | KafkaError] = field(default_factory=dict)
    """Producers that leaders remember; of other partitions they remember none."""
    last: dict[TopicPartition, int | KafkaError | None] = field(default_factory=dict)
    """Producer of the last records; that of others is not idempotent."""
    no_writer: KafkaError | None = None
    """Why the target gives no producer identity."""

    async def new_writer(self) -> WriterFact:
        if self.no_writer is not None:
            raise self.no_writer
        return WriterFact(producer_id=self.target.kafka.transactions.new_producer_id(), producer_epoch=0)

    async def producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[int] | KafkaError]:
        return {partition: self.known.get(partition, ()) for partition in partitions}

    async def last_producers(
        self, ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        return {partition: self.last.get(partition, -1) for partition in ends}

    async def may_have_committed(
        self, producers: Collection[int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, bool | KafkaError]:
        return dict.fromkeys(ends, True)
