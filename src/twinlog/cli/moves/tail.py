"""What only the source of a flow has when the flow is reversed."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.api.source.v1.source_service_pb2_grpc import SourceServiceStub
from twinlog.kafka.ports import KafkaCluster, NewTopic
from twinlog.kafka.reasons import KafkaReason
from twinlog.kafka.whole_logs import read_to
from twinlog.model import Record, TopicPartition


class LeftTail(StrEnum):
    """What becomes of records that the flow has not copied."""

    REFUSE = "refuse"
    GAP = "gap"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BothClusters:
    """Those of the flow, for what only its source has."""

    source: KafkaCluster
    target: KafkaCluster

    async def records(self, each: pb2.PartitionStatus, service: SourceServiceStub) -> AsyncIterator[Record]:
        """What the flow would still copy: no copies of what its target has. Raises KafkaError, and the
        service's error while these cannot be known."""
        partition, end = TopicPartition(each.source.topic, each.source.partition), each.source_end_offset
        echoes: dict[int, range] = {}
        async with self.source.reader(read_committed=True) as reader:
            async for fetched in read_to(reader, partition, each.position, end):
                if new := {record.producer_id for record in fetched.records} - echoes.keys():
                    asked = pb2.ListEchoesRequest(flow=each.flow, partition=each.source, producer_ids=new)
                    told = (await service.ListEchoes(asked)).echoes
                    echoes |= dict.fromkeys(new, range(0))
                    echoes |= {found.producer_id: range(found.from_offset, found.to_offset) for found in told}
                for record in fetched.records:
                    is_in = each.position <= record.offset < end
                    if is_in and record.offset not in echoes[record.producer_id]:
                        yield record

    async def copy(self, tail: Sequence[pb2.PartitionStatus], suffix: str, service: SourceServiceStub) -> int:
        """Copy it to topics of the target with this suffix, in one partition each. One that is interrupted
        copies again. Raises as `records`."""
        names = sorted({each.target_topic + suffix for each in tail})
        made = await self.target.create_topics(
            [NewTopic(name=name, partition_count=1, replication_factor=-1) for name in names]
        )
        for error in made.values():
            if error is not None and error.reason != KafkaReason.TOPIC_EXISTS:
                raise error
        count = 0
        async with self.target.writer() as writer:
            for each in tail:
                async for record in self.records(each, service):
                    await writer.append(
                        TopicPartition(each.target_topic + suffix, 0),
                        key=record.key,
                        value=record.value,
                        timestamp_ms=record.timestamp_ms,
                        headers=record.headers,
                    )
                    count += 1
        return count
