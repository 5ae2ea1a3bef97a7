"""The plan of a pipe: what the expressions of a flow become in Spark.

Every row that goes in comes out, in order, with its place (`_row`): a record that is dropped only loses its
content. Negative rows are marks of ours. An expression that fails gives no error (that would end the job with
all records that are in it), but is named in `_outcome`.

Kept here and nowhere else: which plans are refused. What becomes of a record must not depend on other
records, nor on when and where it is computed: its copy is compared with its source later.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, MapType, StringType, TimestampType

from twinlog.errors import ConfigError
from twinlog.transforms.expressions import COLUMNS, PREFIX, PYTHON, TOPIC, WHERE, Expressions
from twinlog_source.records.frames import DROPPED, PASSED

ROWS = {
    "_row": "int",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What goes in, by column."""
_HEADERS = ROWS["headers"]
_NARROW = (
    "ArrowEvalPython",
    "BatchEvalPython",
    "BroadcastHashJoin",
    "BroadcastNestedLoopJoin",
    "ColumnarToRow",
    "Filter",
    "InputAdapter",
    "MapInArrow",
    "Project",
    "Range",
    "WholeStageCodegen",
)
"""Parts of a plan through which rows pass one by one and in order."""
_IN_BATCHES = ("ArrowEvalPython", "BatchEvalPython", "MapInArrow")
"""Those that hand rows to Python."""
_DIFFER_BY_TIME_OR_PLACE = frozenset(
    {
        "CurrentDate",
        "CurrentTime",
        "CurrentTimestamp",
        "CurrentUser",
        "LocalTimestamp",
        "Now",
    }
)
"""Spark counts these as deterministic, because they have one value in a job."""
_ALWAYS_THE_SAME = "a record must become the same whenever it is computed"
_TIME_OF_PARSING = re.compile(r"(?i)\b(date|timestamp\w*)\s*'\s*(now|today|tomorrow|yesterday)\s*'")
"""Literals: nothing in a plan tells them from others."""


def changed_rows(given: DataFrame, expressions: Expressions, *, strict: bool = False) -> DataFrame:
    """The rows (`ROWS`) after the transform: `_row`, `_outcome` (the step that failed, or PASSED or DROPPED),
    and those of `COLUMNS` that are changed, in their order. With `strict` an expression that fails ends the
    job, and its error says why.

    Raises ConfigError, beginning with the key, for what cannot be done to the records of a flow.
    """
    rows = _after_function(given, expressions.python)
    attempt = _unchanged if strict else _attempt
    where = _checked(rows, WHERE, expressions.where or "true")
    if where.schema[0].dataType.simpleString() != "boolean":
        raise ConfigError(f"{WHERE}: gives {where.schema[0].dataType.simpleString()}, and must give boolean")
    kept = attempt(f.coalesce(f.expr(expressions.where or "true"), f.lit(False)))
    rows = rows.withColumn("_kept", f.when(f.col("_row") >= 0, kept))
    computed = {name: _computed(rows, PREFIX + name, text) for name, text in expressions.columns}
    steps = {name: step for step, name in enumerate(computed, 1)}
    before = _ids(given)
    for name, column_id in _ids(rows).items():
        if name in COLUMNS and name not in computed and column_id != before[name]:
            computed[name] = _as_stored(PYTHON, name, rows.schema[name].dataType, f.col(name))
            steps[name] = 1 + len(expressions.columns)
    rows = rows.select(
        "*",
        *(
            f.when(f.col("_kept"), attempt(f.struct(column.alias("new")))).alias(f"_new_{name}")
            for name, column in computed.items()
        ),
    )
    failed = f.when((f.col("_row") >= 0) & f.col("_kept").isNull(), 0)
    for name, step in steps.items():
        failed = failed.when(f.col("_kept") & f.col(f"_new_{name}").isNull(), step)
    outcome = failed.when(f.col("_kept"), PASSED).otherwise(DROPPED)
    return rows.select(
        "_row",
        outcome.cast("tinyint").alias("_outcome"),
        *(f.col(f"_new_{name}.new").alias(name) for name in COLUMNS if name in computed),
    )


def used_columns(rows: DataFrame, given: DataFrame) -> frozenset[str]:
    """The columns of `given` that Spark reads to make `rows` of it."""
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (as below)
    above = (node for node in _walk(plan) if node.nodeName() != "MapInArrow")
    parts = (part for node in above for each in _each(node.expressions()) for part in _walk(each))
    found = {part.exprId().id() for part in parts if part.nodeName() == "AttributeReference"}
    return frozenset(name for name, column_id in _ids(given).items() if column_id in found)


def python_stages(rows: DataFrame) -> int:
    """How many parts of the plan hand rows to Python."""
    plan = rows._jdf.queryExecution().executedPlan()  # noqa: SLF001 (as below)
    return sum(node.nodeName().startswith(_IN_BATCHES) for node in _walk(plan, skip="BroadcastExchange"))


def _after_function(given: DataFrame, python: str) -> DataFrame:
    if not python:
        return given
    module, _, name = python.partition(":")
    try:
        function: Callable[[DataFrame], DataFrame] = getattr(importlib.import_module(module), name)
        rows = function(given)
    except Exception as error:
        # The function is the user's: whatever it raises is an answer to this key.
        raise ConfigError(
            f"{PYTHON}: {python} failed: {type(error).__name__}: {_first_line(error)}"
        ) from error
    if not isinstance(rows, DataFrame):
        raise ConfigError(f"{PYTHON}: {python} returned {type(rows).__name__}, and must return a DataFrame")
    ids, before = _ids(rows), _ids(given)
    columns = [name.lower() for name in rows.columns]
    for column in before:
        if columns.count(column.lower()) > 1:
            raise ConfigError(f"{PYTHON}: {python} returns more than one column {column}")
        if column not in ids:
            raise ConfigError(f"{PYTHON}: {python} returns no column {column}")
        if (column not in COLUMNS or column == TOPIC) and ids[column] != before[column]:
            raise ConfigError(f"{PYTHON}: {python} changes the column {column}, which it must leave alone")
    _require_pure(rows, PYTHON)
    return rows.select(*before)


def _computed(rows: DataFrame, key: str, text: str) -> Column:
    kind = _checked(rows, key, text).schema[0].dataType
    return _as_stored(key, key.removeprefix(PREFIX), kind, f.expr(text))


def _as_stored(key: str, name: str, kind: DataType, column: Column) -> Column:
    """As the log stores it. Raises ConfigError for another type."""
    match name:
        case "key" | "value" if isinstance(kind, BinaryType | StringType):
            return column.cast("binary")
        case "topic" if isinstance(kind, StringType):
            return column
        case "timestamp" if isinstance(kind, TimestampType):
            return _not_null(f.unix_millis(column), column.isNull(), "a record has a timestamp")
        case "timestamp" if isinstance(kind, LongType):
            return _not_null(column, column.isNull(), "a record has a timestamp")
        case "headers" if isinstance(kind, MapType) and _are_headers(kind.keyType, kind.valueType):
            return f.map_entries(column).cast(_HEADERS)
        case "headers" if isinstance(kind, ArrayType) and _are_headers(
            *(field.dataType for field in getattr(kind.elementType, "fields", ()))
        ):
            written = column.cast(_HEADERS)
            lacks_key = f.exists(written, lambda header: header["key"].isNull())
            return _not_null(written, lacks_key, "a header has a key")
    wanted = {
        "headers": f"{_HEADERS} or map<string,binary>",
        "timestamp": "timestamp or bigint (ms)",
        TOPIC: "string",
    }
    raise ConfigError(
        f"{key}: gives {kind.simpleString()} for the column {name}, and must give"
        f" {wanted.get(name, 'binary or string')}"
    )


def _not_null(column: Column, is_null: Column, why: str) -> Column:
    return f.when(is_null, f.raise_error(f.lit(f"is null, and {why}"))).otherwise(column)


def _are_headers(*kinds: DataType) -> bool:
    return (
        len(kinds) == 2 and isinstance(kinds[0], StringType) and isinstance(kinds[1], BinaryType | StringType)
    )


def _checked(rows: DataFrame, key: str, text: str) -> DataFrame:
    """One expression alone, so that an error names its key."""
    if (found := _TIME_OF_PARSING.search(text)) is not None:
        raise ConfigError(f"{key}: uses {found[0]}: {_ALWAYS_THE_SAME}")
    try:
        alone = rows.select(f.expr(text).alias("x"))
        _require_pure(alone, key)
    except PySparkException as error:
        raise ConfigError(f"{key}: {_first_line(error)}") from error
    return alone


def _require_pure(rows: DataFrame, key: str) -> None:
    query = rows._jdf.queryExecution()  # noqa: SLF001 (pyspark has no other way to a plan)
    analyzed = query.analyzed()
    parts = (part for plan in _walk(analyzed) for each in _each(plan.expressions()) for part in _walk(each))
    varying = sorted({part.nodeName() for part in parts if _differs(part)})
    if varying or not analyzed.deterministic():
        what = f"uses {varying[0]}" if varying else "is not deterministic"
        raise ConfigError(f"{key}: {what}: {_ALWAYS_THE_SAME}")
    for node in _walk(query.executedPlan(), skip="BroadcastExchange"):
        name = node.nodeName()
        if not name.startswith(_NARROW):
            raise ConfigError(
                f"{key}: needs {name} in Spark's plan: what becomes of a record must not depend on other"
                " records, and each gives at most one; a lookup table needs broadcast()"
            )


def _walk(plan: Any, skip: str = "") -> Iterator[Any]:
    yield plan
    for child in _each(plan.children()):
        if child.nodeName() != skip or not skip:
            yield from _walk(child, skip)


def _differs(expression: Any) -> bool:
    if expression.nodeName() != "AesEncrypt":
        return expression.nodeName() in _DIFFER_BY_TIME_OR_PLACE
    # Without an initialization vector it takes a random one, but for a mode that has none.
    return "''" in expression.iv().sql() and "ECB" not in expression.mode().sql().upper()


def _each(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _ids(rows: DataFrame) -> Mapping[str, int]:
    """The columns with what makes each the same column: an expression has another id."""
    output = rows._jdf.queryExecution().analyzed().output()  # noqa: SLF001
    return {each.name(): each.exprId().id() for each in _each(output)}


def _attempt(column: Column) -> Column:
    """Null where the column cannot be computed. Spark uses this for its `try_` functions."""
    jvm: Any = _jvm()
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expression = utils.expression(column._jc)  # noqa: SLF001
    return ClassicColumn(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression)))


def _unchanged(column: Column) -> Column:
    return column


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm  # noqa: SLF001


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
