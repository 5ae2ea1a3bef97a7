"""A verification on Spark: parts of partitions are tasks, and their proofs are the rows of a DataFrame. It is
reduced to one row per partition, and can be stored as Parquet."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from twinlog.verify.model import PartitionProof
from twinlog.verify.report import state_of

Part = TypeVar("Part")
_NOT_NULL = False
PARTS = StructType(
    [
        StructField("topic", StringType(), _NOT_NULL),
        StructField("partition", IntegerType(), _NOT_NULL),
        StructField("source_from", LongType(), _NOT_NULL),
        StructField("source_to", LongType(), _NOT_NULL),
        StructField("target_from", LongType(), _NOT_NULL),
        StructField("target_to", LongType(), _NOT_NULL),
        StructField("records", LongType(), _NOT_NULL),
        StructField("unopened_records", LongType(), _NOT_NULL),
        StructField("source_hash", StringType(), _NOT_NULL),
        StructField("target_hash", StringType(), _NOT_NULL),
        StructField("bytes", LongType(), _NOT_NULL),
        StructField("differences", LongType(), _NOT_NULL),
        StructField("first_difference", LongType()),
        StructField("is_complete", BooleanType(), _NOT_NULL),
        StructField("verdict", StringType(), _NOT_NULL),
        StructField("proof", BinaryType(), _NOT_NULL),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """Spark's result for a partition, which is checked against the proofs themselves."""

    records: int
    differences: int
    first_difference: int | None
    source_hash: str
    """A hash over the hashes of the parts, in order."""
    target_hash: str


def run_verification(
    context: SparkContext,
    specs: Sequence[Part],
    prove: Callable[[Part], PartitionProof],
    kept: Sequence[PartitionProof] = (),
    *,
    parquet: str | None = None,
    mode: str = "overwrite",
) -> tuple[list[PartitionProof], Mapping[tuple[str, int], PartitionRow]]:
    """Return the proofs of these parts, and the reduction by partition, which includes earlier proofs
    (`kept`). Blocks until the last task has ended.

    `prove` runs in Spark's tasks, so it must be a module-level function, and a part must be picklable.
    `parquet` is a directory for the parts' rows, without the content of records; `mode` is Spark's mode for
    it. Raises pyspark's errors when the job failed.
    """
    session = SparkSession(context)
    rows = context.parallelize(specs, max(1, len(specs))).mapPartitions(partial(_rows, prove))
    proven = session.createDataFrame(rows, PARTS, verifySchema=False).persist()
    proofs = [_loaded(row.proof) for row in proven.select("proof").collect()]
    parts = proven.union(session.createDataFrame([_row(proof) for proof in kept], PARTS))
    if parquet is not None:
        parts.drop("proof").write.mode(mode).parquet(parquet)
    reduced = {
        (row.topic, row.partition): PartitionRow(
            records=row.records,
            differences=row.differences,
            first_difference=row.first_difference,
            source_hash=row.source_hash,
            target_hash=row.target_hash,
        )
        for row in reduced_by_partition(parts).collect()
    }
    proven.unpersist()
    return proofs, reduced


def reduced_by_partition(parts: DataFrame) -> DataFrame:
    """One row per partition: how much was compared, how much differs, and where first."""
    return parts.groupBy("topic", "partition").agg(
        f.sum("records").alias("records"),
        f.sum("differences").alias("differences"),
        f.min("first_difference").alias("first_difference"),
        _in_order("source_from", "source_hash"),
        _in_order("target_from", "target_hash"),
    )


def _in_order(place: str, value: str) -> Column:
    """One hash of the parts' hashes, in the order of the log."""
    parts = f.sort_array(f.collect_list(f.struct(place, value)))
    return f.sha2(f.to_json(f.transform(parts, lambda part: part[value])), 256).alias(value)


def _rows(prove: Callable[[Part], PartitionProof], specs: Iterable[Part]) -> Iterator[tuple[Any, ...]]:
    # Read the whole input first: Spark discards a worker with unread input after the job.
    for spec in list(specs):
        yield _row(prove(spec))


def _row(proof: PartitionProof) -> tuple[Any, ...]:
    places = [each.source_offset for each in proof.differences if each.source_offset is not None]
    return (
        proof.source.topic,
        proof.source.partition,
        proof.source_from,
        proof.source_to,
        proof.target_from,
        proof.target_to,
        proof.records,
        proof.unopened_records,
        proof.source_hash,
        proof.target_hash,
        proof.bytes,
        sum(each.count for each in proof.differences),
        min(places, default=None),
        proof.is_complete,
        str(state_of(proof)),
        bytearray(CPickleSerializer().dumps(proof)),
    )


def _loaded(content: bytes | bytearray) -> PartitionProof:
    proof = CPickleSerializer().loads(bytes(content))
    assert isinstance(proof, PartitionProof), json.dumps(str(type(proof)))
    return proof
