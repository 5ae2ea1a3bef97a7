"""Shows what Spark makes of the last records of a topic, and writes nothing."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace

from twinlog.batches.bodies import OpenRecord, encode_body
from twinlog.errors import ConfigError, KafkaError, NotFoundError
from twinlog.kafka.ports import KafkaCluster, OffsetSpec
from twinlog.kafka.whole_logs import log_bounds, records_to
from twinlog.model import TopicPartition
from twinlog.policy.transformed import TopicTransforms
from twinlog.transforms.expressions import OnError
from twinlog_source.config import SourceFlow
from twinlog_source.records.changing import Changed, MakePipe, RunPipe, kept_pipes
from twinlog_source.records.pipe import record_pipe

OFFSETS_PER_RECORD = 10
"""So many offsets are looked at for a record: logs have holes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The records of one partition."""

    partition: TopicPartition
    records: Collection[OpenRecord]
    changed: Changed


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformTrial:
    flow: SourceFlow
    source: KafkaCluster
    """Reads as the copy does."""
    run_pipe: RunPipe
    make_pipe: MakePipe = record_pipe

    async def try_last(self, topic: str, partition: int | None, last: int) -> list[Tried]:
        """Raises KafkaError, ConfigError for a topic of which Spark changes nothing, and TwinlogError
        (TRANSFORM_REFUSED, SPARK_UNAVAILABLE)."""
        transforms = TopicTransforms(self.flow.transforms, self.flow.flow.source)
        expressions = transforms.expressions(topic)
        if expressions is None:
            raise ConfigError(
                f"twinlog.transform.topics of {self.flow.flow} does not match the topic {topic}: its records"
                " are copied as they are"
            )
        before = transforms.changes(topic)
        found = (await self.source.describe_topics([topic]))[topic]
        if isinstance(found, KafkaError):
            raise found
        numbers = range(found.partition_count) if partition is None else [partition]
        if partition is not None and partition >= found.partition_count:
            raise NotFoundError(f"{topic} has {found.partition_count} partitions", reason="PARTITION_UNKNOWN")
        tried = []
        expressions = replace(expressions, on_error=OnError.SKIP)
        async with kept_pipes(self.run_pipe, self.make_pipe) as changing_of:
            changing = changing_of(self.flow.flow, expressions)
            for at in (TopicPartition(topic, number) for number in numbers):
                records = await self._last(at, last)
                opened = records if before is None else before(records)
                changed = await changing.change(at, opened)
                first = next((each for each in opened if each[0] in changed.failed), None)
                if first is not None:
                    why = await changing.why(at, first, changed.failed[first[0]])
                    changed = replace(changed, failed={**changed.failed, first[0]: why})
                tried.append(Tried(partition=at, records=records, changed=changed))
        return tried

    async def _last(self, partition: TopicPartition, last: int) -> list[OpenRecord]:
        end_spec = OffsetSpec.LAST_STABLE if self.flow.settings.read_committed else OffsetSpec.LATEST
        start, end = await log_bounds(self.source, partition, end_spec)
        records: deque[OpenRecord] = deque(maxlen=last)
        async with self.source.reader(read_committed=self.flow.settings.read_committed) as reader:
            begin = max(start, end - OFFSETS_PER_RECORD * last)
            async for each in records_to(reader, partition, begin, end):
                headers = tuple((key.encode(), value) for key, value in each.headers)
                body = encode_body(each.key, each.value, headers)
                records.append((each.offset, each.timestamp_ms, body))
        return list(records)
