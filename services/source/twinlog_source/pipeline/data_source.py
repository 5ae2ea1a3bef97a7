"""`spark.read.format("twinlog")`: the records of a range of a log, as the copy reads them, for audits in a
notebook. There is no writer."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twinlog.config import load
from twinlog.errors import ConfigError, required
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import OffsetSpec
from twinlog.kafka.whole_logs import log_bounds, read_to
from twinlog.model import Flow, Record, TopicPartition

SCHEMA = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)
_FETCH_BYTES = 4 << 20


class TwinlogDataSource(DataSource):  # type: ignore[misc]
    """Options: `config` (the properties file), `flow` (A->B), `topic`; `cluster` (an alias of the flow,
    default: its source), `partition`, `fromOffset`, `toOffset` (not included; default: the present end)."""

    @classmethod
    def name(cls) -> str:
        return "twinlog"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:
        """Raises ConfigError."""
        del schema
        return _Reader(self.options)


@dataclass(frozen=True, slots=True)
class _Range(InputPartition):  # type: ignore[misc]
    partition: TopicPartition
    begin: int
    end: int


class _Reader(DataSourceReader):  # type: ignore[misc]
    """Pickled to the workers, with the logins of the client."""

    def __init__(self, options: Mapping[str, str]) -> None:
        missing = [name for name in ("config", "flow", "topic") if not options.get(name)]
        if missing:
            raise ConfigError(f"option {missing[0]!r} is missing")
        flow = Flow.parse(options["flow"])
        config = load(Path(options["config"]), environ=os.environ).flow(flow)
        self._topic = options["topic"]
        self._alias = options.get("cluster", flow.source)
        ends = {flow.source: config.clients.source_consumer, flow.target: config.clients.target_consumer}
        if self._alias not in ends:
            raise ConfigError(f"option 'cluster': {flow} does not join {self._alias}")
        self._client = dict(ends[self._alias].properties)
        self._read_committed = self._alias == flow.target or config.source.read_committed
        self._only = options.get("partition")
        self._from, self._to = options.get("fromoffset"), options.get("tooffset")

    def partitions(self) -> list[InputPartition]:
        """Raises KafkaError."""
        return asyncio.run(self._ranges())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Raises KafkaError."""
        assert isinstance(partition, _Range)
        with asyncio.Runner() as runner:
            fetches = self._fetches(partition)
            try:
                while (rows := runner.run(anext(fetches, None))) is not None:
                    yield from rows
            finally:
                runner.run(fetches.aclose())

    async def _ranges(self) -> list[InputPartition]:
        end_spec = OffsetSpec.LAST_STABLE if self._read_committed else OffsetSpec.LATEST
        async with open_cluster(self._alias, self._client) as cluster:
            found = required((await cluster.describe_topics([self._topic]))[self._topic])
            numbers = range(found.partition_count) if self._only is None else [int(self._only)]
            ranges: list[InputPartition] = []
            for at in (TopicPartition(self._topic, number) for number in numbers):
                start, end = await log_bounds(cluster, at, end_spec)
                begin = start if self._from is None else max(start, int(self._from))
                ranges.append(_Range(at, begin, end if self._to is None else min(end, int(self._to))))
            return ranges

    async def _fetches(self, part: _Range) -> AsyncGenerator[list[tuple[Any, ...]], None]:
        if part.begin >= part.end:
            return
        async with (
            open_cluster(self._alias, self._client) as cluster,
            cluster.reader(read_committed=self._read_committed) as reader,
        ):
            async for fetched in read_to(
                reader, part.partition, part.begin, part.end, max_bytes=_FETCH_BYTES
            ):
                yield [
                    _row(part.partition, record)
                    for record in fetched.records
                    if part.begin <= record.offset < part.end
                ]


def _row(partition: TopicPartition, record: Record) -> tuple[Any, ...]:
    known = record.timestamp_ms >= 0
    return (
        partition.topic,
        partition.partition,
        record.offset,
        datetime.fromtimestamp(record.timestamp_ms / 1000, UTC) if known else None,
        record.key,
        record.value,
        [*record.headers],
    )
