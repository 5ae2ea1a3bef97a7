"""Records through a real Spark: what comes out of the pipe for each, and what happens to those that fail."""

import asyncio
import random
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import pytest_asyncio
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from twinlog.batches.bodies import DecodedRecord, OpenRecord, decode_record, encode_body
from twinlog.clock import SystemClock
from twinlog.errors import StateError, TwinlogError
from twinlog.model import Flow, TopicPartition
from twinlog.transforms.expressions import TOPICS, Expressions, OnError, expressions_of
from twinlog_source.pipeline.runner import SparkRunner, own_spark
from twinlog_source.records.changing import Changed, Changing, kept_pipes

pytestmark = [pytest.mark.java, pytest.mark.asyncio(loop_scope="module")]

_Record = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
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


@asynccontextmanager
async def _changing(spark: SparkRunner, expressions: Expressions) -> AsyncIterator[Changing]:
    async with kept_pipes(spark.run_pipe) as changing:
        yield changing(FLOW, expressions)


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
        assert not changed.failed
        many = _records(*(encode_body(None, b"%d" % n) for n in range(1_000)), first=0)
        async with asyncio.TaskGroup() as group:
            several = [
                group.create_task(changing.change(TopicPartition("orders", n), many[: 100 * n]), name=str(n))
                for n in range(10)
            ]
        assert [len(each.result().passed) for each in several] == [100 * n for n in range(10)]


def _random_record(dice: random.Random) -> _Record:
    def some() -> bytes | None:
        return None if dice.random() < 0.2 else dice.randbytes(dice.choice((0, 1, 7, 64, 3_000)))

    headers = ((dice.choice((b"", b"a", b"\xc3\xa4", b"\xff")), some()) for _ in range(dice.randrange(4)))
    return some(), some(), tuple(headers)


def _as_text(name: bytes) -> bytes:
    return name.decode(errors="replace").encode()


def _swapped(record: DecodedRecord) -> DecodedRecord | str | None:
    offset, ms, key, value, headers = record
    if offset % 5 == 1:
        return None
    if not 0 <= ms < 2**62:
        return "has no timestamp"
    turned = tuple((_as_text(name), told) for name, told in reversed(headers))
    return DecodedRecord(offset, ms + 1_000, value, key, turned)


def _shortened(record: DecodedRecord) -> DecodedRecord | str | None:
    offset, ms, key, value, headers = record
    if value is None:
        return None
    if len(value) == 64:
        return "is as long as none may be"
    kept = tuple((_as_text(name), told) for name, told in headers if told is not None)
    return DecodedRecord(offset, ms, None if key is None else key + value, value[1:4], kept)


@pytest.mark.parametrize("seed", [20, 21])
@pytest.mark.parametrize(
    ("expressions", "row_by_row"),
    [
        (
            Expressions(
                topics=("orders",),
                where="offset % 5 != 1 AND partition = 3 AND topic = 'orders'",
                columns=(
                    ("key", "value"),
                    ("value", "key"),
                    ("headers", "reverse(headers)"),
                    ("timestamp", "timestamp + INTERVAL 1 SECOND"),
                ),
                on_error=OnError.SKIP,
            ),
            _swapped,
        ),
        (
            Expressions(
                topics=("orders",),
                where="value IS NOT NULL",
                columns=(
                    ("key", "concat(key, value)"),
                    ("value", "if(length(value) = 64, raise_error('too long'), substring(value, 2, 3))"),
                    ("headers", "filter(headers, h -> h.value IS NOT NULL)"),
                ),
                on_error=OnError.SKIP,
            ),
            _shortened,
        ),
    ],
)
async def test_random_records_become_what_they_become_row_by_row(
    spark: SparkRunner,
    expressions: Expressions,
    row_by_row: Callable[[DecodedRecord], DecodedRecord | str | None],
    seed: int,
) -> None:
    dice = random.Random(seed)
    records = [
        (3 * n, dice.choice((-1, 0, 1_700_000_000_123, 2**63 - 1)), encode_body(*_random_record(dice)))
        for n in range(1_000)
    ]
    expected = {record[0]: row_by_row(decode_record(record)) for record in records}
    async with _changing(spark, expressions) as changing:
        changed = await changing.change(ORDERS, records)
    assert {offset: decode_record(each) for offset, each in changed.passed.items()} == {
        offset: each for offset, each in expected.items() if isinstance(each, DecodedRecord)
    }
    assert changed.failed.keys() == {offset for offset, each in expected.items() if isinstance(each, str)}


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
        assert (list(changed.failed), changed.stops) == ([12], False)


@pytest.mark.parametrize(
    ("key", "expressions"),
    [
        ("where", Expressions(topics=("orders",), where="amount > 3")),
        ("where", Expressions(topics=("orders",), where="offset + 1")),
        ("where", Expressions(topics=("orders",), where="rand() > 0.5")),
        (
            "value",
            Expressions(topics=("orders",), columns=(("value", "aes_encrypt(value, repeat('k', 16))"),)),
        ),
        ("value", Expressions(topics=("orders",), columns=(("value", "offset"),))),
        # Its jar is not there.
        (
            "value",
            Expressions(
                topics=("orders",), columns=(("value", "string(from_avro(value, '\"string\"', map()))"),)
            ),
        ),
        ("value", Expressions(topics=("orders",), columns=(("value", "string(max(offset))"),))),
        ("value", Expressions(topics=("orders",), columns=(("value", "explode(array(value, key))"),))),
        ("value", Expressions(topics=("orders",), columns=(("value", "lag(value) OVER (ORDER BY offset)"),))),
        ("timestamp", Expressions(topics=("orders",), columns=(("timestamp", "now()"),))),
        ("where", Expressions(topics=("orders",), where="timestamp > TIMESTAMP 'now'")),
        ("python", Expressions(topics=("orders",), python="no_such_module:function")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:without_the_key")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_other_places")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_the_key_of_a_lookup")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_a_lookup_that_is_missing")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:with_a_large_lookup_without_a_hint")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:on_two_partitions")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:in_another_order")),
        ("python", Expressions(topics=("orders",), python=f"{__name__}:without_what_was_there")),
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


def with_the_key_of_a_lookup(records: DataFrame) -> DataFrame:
    names = records.sparkSession.createDataFrame([(b"1", "one")], "Key binary, name string")
    return records.join(f.broadcast(names), records.key == names.Key, "left")


def with_a_lookup_that_is_missing(records: DataFrame) -> DataFrame:
    names = records.sparkSession.read.csv("/no/such/file.csv", schema="id string, name string")
    return records.join(f.broadcast(names), f.col("id") == f.col("topic"), "left")


def with_a_large_lookup_without_a_hint(records: DataFrame) -> DataFrame:
    names = records.sparkSession.range(100_000_000)
    return records.join(names, records.offset == names.id, "left")


def on_two_partitions(records: DataFrame) -> DataFrame:
    return records.repartition(2)


def in_another_order(records: DataFrame) -> DataFrame:
    return records.orderBy("timestamp")


def without_what_was_there(records: DataFrame) -> DataFrame:
    return records.dropDuplicates(["key"])


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


def _recipes() -> Mapping[str, tuple[Mapping[str, str], str]]:
    """By the sentence before it: the keys of a recipe of the page, and its module."""
    page = (Path(__file__).parents[3] / "docs" / "transforms.md").read_text().split("## With Spark")[1]
    found, module = {}, ""
    for words, language, text in re.findall(r"([^\n]*)\n\n```(properties|python)\n(.*?)```", page, re.DOTALL):
        if language == "python":
            module = text
            continue
        lines = [line.removeprefix("A->B.").split(" = ", 1) for line in text.splitlines() if line[:1] == "A"]
        found[words] = {TOPICS: "orders", **dict(lines)}, module
    return found


_CH, _DE = b'{"country":"CH","card":"4111"}', b'{"country":"DE","card":"4222"}'
_BOTH = ((b"trace", b"1"), (b"internal", b"1"))


@pytest.mark.parametrize(
    ("recipe", "before", "after"),
    [
        ("some topics", [(b"1", _CH, ())], [(b"1", b'{"country":"CH","card":"xxxx"}', ())]),
        ("some topics", [(b"1", _CH, _BOTH)], []),
        (
            "one country",
            [(b"1", _CH, ()), (b"1", _DE, ()), (None, None, ()), (b"", b"\xff{", ())],
            [(b"1", _CH, ())],
        ),
        ("Without one header", [(b"1", None, _BOTH)], [(b"1", None, _BOTH[1:])]),
        (
            "naming its origin",
            [(b"1", b"", _BOTH)],
            [(b"1", b"", (*_BOTH, (b"twinlog.origin", b"A/orders/3/10/1700000000123")))],
        ),
        (
            "pseudonym",
            [(b"1", None, ()), (None, b"", ())],
            [(sha256(b"1").hexdigest().encode(), None, ()), (None, b"", ())],
        ),
        ("country in a topic", [(b"1", _CH, ()), (b"2", b"{}", ())], [(b"1", _CH, ()), (b"2", b"{}", ())]),
        ("", [(b"2", _CH, ()), (b"7", _CH, ())], [(b"2", b"two", ()), (b"7", _CH, ())]),
    ],
)
async def test_each_recipe_of_the_page_does_what_it_says(
    spark: SparkRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recipe: str,
    before: list[_Record],
    after: list[_Record],
) -> None:
    found = _recipes()
    assert len(found) == 7
    (values, module), *_ = (each for words, each in found.items() if (recipe in words if recipe else each[1]))
    expressions = expressions_of(values)
    assert expressions is not None
    (tmp_path / f"{expressions.python.partition(':')[0] or 'unused'}.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    async with _changing(spark, expressions) as changing:
        changed = await changing.change(ORDERS, _records(*(encode_body(*each) for each in before)))
    assert [decode_record(record)[2:] for record in changed.passed.values()] == after
    assert changed.routes == ({10: "orders-CH"} if recipe == "country in a topic" else {})
    assert not changed.failed


def with_functions_one_after_the_other(records: DataFrame) -> DataFrame:
    value = records.value
    for number in range(3):
        suffix = str(number).encode()
        append = f.udf(lambda value, suffix=suffix: value and value + suffix, "binary", useArrow=number > 0)
        value = append(value)
    return records.withColumn("value", value).filter("offset IS NULL OR key IS NULL")


async def test_records_come_out_of_python_functions_as_soon_as_they_are_in(spark: SparkRunner) -> None:
    function = f"{__name__}:{with_functions_one_after_the_other.__name__}"
    expressions = Expressions(topics=("orders",), python=function, timeout_seconds=30)
    async with _changing(spark, expressions) as changing:
        for count in (1, 2, 199, 200, 201, 450):
            values = [(b"left out" if n % 3 == 1 else None, b"%d " % n) for n in range(count)]
            changed = await changing.change(ORDERS, _records(*(encode_body(*each) for each in values)))
            assert [*_values(changed).values()] == [b"%d 012" % n for n in range(count) if n % 3 != 1]


def waits_for_ever(records: DataFrame) -> DataFrame:
    return records.withColumn("value", f.udf(lambda value: _wait(value), "binary")("value"))


def _wait(value: bytes | None) -> bytes | None:
    if value == b"for ever":
        threading.Event().wait()
    return value


def raises(records: DataFrame) -> DataFrame:
    return records.withColumn("value", f.udf(lambda value: _raise(value), "binary")("value"))


def _raise(value: bytes | None) -> bytes | None:
    if value == b"for ever":
        raise LookupError("no such customer")
    return value


@pytest.mark.parametrize(
    ("function", "why"),
    [("waits_for_ever", "took longer than 10 s"), ("raises", "LookupError: no such customer")],
)
async def test_a_function_that_fails_for_one_record_stops_no_other(
    spark: SparkRunner, function: str, why: str
) -> None:
    expressions = Expressions(
        topics=("orders",), python=f"{__name__}:{function}", on_error=OnError.SKIP, timeout_seconds=10
    )
    values = [b"a", b"for ever"]
    async with _changing(spark, expressions) as changing:
        changed = await changing.change(ORDERS, _records(*(encode_body(None, each) for each in values)))
    assert _values(changed) == {10: b"a"}
    assert list(changed.failed) == [11]
    assert changed.failed[11].startswith("twinlog.transform.python: ")
    assert why in changed.failed[11]


def fails_for_null(records: DataFrame) -> DataFrame:
    return records.withColumn("value", f.udf(lambda value: value.upper(), "binary")("value"))


def only_some_countries(records: DataFrame) -> DataFrame:
    return records.filter("value != 'XX'")


@pytest.mark.parametrize(
    ("function", "timeout_seconds", "why"),
    [
        ("fails_for_null", 120, "AttributeError: 'NoneType'"),
        ("only_some_countries", 5, "took longer than 5 s"),
    ],
)
async def test_a_function_that_needs_a_record_is_refused_and_no_record_left_out(
    spark: SparkRunner, function: str, timeout_seconds: int, why: str
) -> None:
    expressions = Expressions(
        topics=("orders",),
        python=f"{__name__}:{function}",
        on_error=OnError.SKIP,
        timeout_seconds=timeout_seconds,
    )
    records = _records(*(encode_body(None, value) for value in (b"a", b"b")))
    async with _changing(spark, expressions) as changing:
        with pytest.raises(StateError, match=f"fails without a record.*{why}") as refused:
            await changing.change(ORDERS, records)
    assert refused.value.reason == "TRANSFORM_REFUSED"


async def test_bytes_that_are_no_text_and_large_ones_are_records_like_others(spark: SparkRunner) -> None:
    large = b"x" * (50 << 20)
    bodies = [
        encode_body(None, None),
        encode_body(b"\xff", b"\xff\xfe", ((b"\xff", None),)),
        encode_body(b"", b"{"),
        encode_body(None, large + b'"card":"1"'),
    ]
    async with _changing(spark, MASKED) as changing:
        changed = await changing.change(ORDERS, _records(*bodies))
    assert [*_values(changed).values()] == [None, b"\xef\xbf\xbd" * 2, b"{", large + b'"card":"x"']
