"""Records through a real Spark: what comes out of the pipe for each, and what happens to those that fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from twinlog.batches.bodies import OpenRecord, decode_record, encode_body
from twinlog.clock import SystemClock
from twinlog.errors import TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.transforms.expressions import Expressions, OnError
from twinlog_source.pipeline.runner import SparkRunner, own_spark
from twinlog_source.records.changing import Changed, Changing, changing_with

pytestmark = [pytest.mark.java, pytest.mark.asyncio(loop_scope="module")]

FLOW = Flow("A", "B")
ORDERS = TopicPartition("orders", 3)
MASKED = Expressions(
    topics=("orders",),
    where="NOT exists(headers, h -> h.key = 'internal')",
    columns=(("value", r"regexp_replace(CAST(value AS string), '\"card\":\"\\d+\"', '\"card\":\"x\"')"),),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spark() -> AsyncIterator[SparkRunner]:
    async with own_spark({}, SystemClock()) as runner:
        yield runner


def _changing(spark: SparkRunner, expressions: Expressions) -> AbstractAsyncContextManager[Changing]:
    return changing_with(partial(spark.run_pipe, FLOW, expressions), expressions)


def _records(*bodies: bytes, first: int = 10) -> list[OpenRecord]:
    return [(first + n, 1_700_000_000_123 + n, body) for n, body in enumerate(bodies)]


def _values(changed: Changed) -> dict[int, bytes | None]:
    return {offset: decode_record(record).value for offset, record in changed.passed.items()}


async def test_records_are_masked_and_filtered_and_the_rest_of_them_stays(spark: SparkRunner) -> None:
    odd = ((b"\xff", None), (b"a", b"\x00\xff"), (b"a", b""))
    async with _changing(spark, MASKED) as changing:
        records = _records(
            encode_body(b"k", b'{"card":"4111","n":1}', odd),
            encode_body(None, None),
            encode_body(b"", b"", ((b"internal", b"1"),)),
            encode_body(b"\xff\x00", b"no card", ((b"x", b"1"),)),
        )
        changed = await changing.change(ORDERS, records)
        assert changed.passed == {
            10: (10, 1_700_000_000_123, encode_body(b"k", b'{"card":"x","n":1}', odd)),
            11: records[1],
            13: records[3],
        }
        assert (changed.dropped, changed.failed) == ([12], {})
        many = _records(*(encode_body(None, b"%d" % n) for n in range(1_000)), first=0)
        async with asyncio.TaskGroup() as group:
            several = [
                group.create_task(changing.change(TopicPartition("orders", n), many[: 100 * n]), name=str(n))
                for n in range(10)
            ]
        assert [len(each.result().passed) for each in several] == [100 * n for n in range(10)]


async def test_a_record_whose_expression_fails_is_named_with_sparks_words(spark: SparkRunner) -> None:
    doubled = Expressions(
        topics=("orders",), columns=(("value", "CAST(CAST(CAST(value AS string) AS int) * 2 AS string)"),)
    )
    records = _records(*(encode_body(None, value) for value in (b"1", b"2", b"three", b"4")))
    async with _changing(spark, doubled) as changing:
        changed = await changing.change(ORDERS, records)
        assert changed.stops
        assert changed.failed[12].startswith("twinlog.transform.value fails for it: [CAST_INVALID_INPUT]")
    async with _changing(spark, replace(doubled, on_error=OnError.SKIP)) as changing:
        changed = await changing.change(ORDERS, records)
        assert _values(changed) == {10: b"2", 11: b"4", 13: b"8"}
        assert (changed.dropped, list(changed.failed), changed.stops) == ([], [12], False)


@pytest.mark.parametrize(
    ("key", "expressions"),
    [
        ("where", Expressions(topics=("orders",), where="amount > 3")),
        ("where", Expressions(topics=("orders",), where="offset + 1")),
        ("where", Expressions(topics=("orders",), where="rand() > 0.5")),
        ("value", Expressions(topics=("orders",), columns=(("value", "offset"),))),
        ("value", Expressions(topics=("orders",), columns=(("value", "string(max(offset))"),))),
        ("value", Expressions(topics=("orders",), columns=(("value", "explode(array(value, key))"),))),
        ("timestamp", Expressions(topics=("orders",), columns=(("timestamp", "now()"),))),
        ("python", Expressions(topics=("orders",), python="no_such_module:function")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:without_the_key")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_other_places")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_a_lookup_that_is_missing")),
    ],
)
async def test_an_expression_that_may_not_be_used_is_refused_by_its_key(
    spark: SparkRunner, key: str, expressions: Expressions
) -> None:
    with pytest.raises(TwinlogError, match=rf"^twinlog\.transform\.{key}: ") as refused:
        await spark.check_expressions(FLOW, expressions)
    assert refused.value.reason == "TRANSFORM_REFUSED"
    assert expressions.written[f"twinlog.transform.{key}"] in str(refused.value)


def without_the_key(records: DataFrame) -> DataFrame:
    return records.drop("key")


def with_other_places(records: DataFrame) -> DataFrame:
    return records.withColumn("_row", f.col("_row") + 1)


def with_a_lookup_that_is_missing(records: DataFrame) -> DataFrame:
    names = records.sparkSession.read.csv("/no/such/file.csv", schema="id string, name string")
    return records.join(f.broadcast(names), f.col("id") == f.col("topic"), "left")


def without_a_timestamp(records: DataFrame) -> DataFrame:
    return records.withColumn("timestamp", f.expr("nullif(timestamp, timestamp)"))


@pytest.mark.parametrize(
    ("key", "expressions"),
    [
        (
            "timestamp",
            Expressions(topics=("orders",), columns=(("timestamp", "nullif(timestamp, timestamp)"),)),
        ),
        (
            "headers",
            Expressions(
                topics=("orders",),
                columns=(("headers", "array(named_struct('key', string(null), 'value', key))"),),
            ),
        ),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:without_a_timestamp")),
    ],
)
async def test_what_a_record_must_have_is_null(
    spark: SparkRunner, key: str, expressions: Expressions
) -> None:
    async with _changing(spark, expressions) as changing:
        changed = await changing.change(ORDERS, _records(encode_body(None, b"1")))
    assert changed.failed[10].startswith(
        f"twinlog.transform.{key} fails for it: [USER_RAISED_EXCEPTION] is null"
    )
