"""One pipe: a Spark job through whose plan records flow for as long as the task that uses it wants.

A worker takes chunks from the task's socket and feeds them to the plan; another one takes what comes out and
sends it back. Neither knows of Kafka: what is copied, and exactly once, stays with the task.

Spark hands rows to a worker only in batches of exactly so many, and Python keeps output back until a buffer
is full. So when nothing more is to come, marks fill the batch up: of each Python function that the plan has.
"""

import select
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from twinlog.batches.bodies import decode_record, encode_body, encode_field, headers_at
from twinlog.errors import ConfigError
from twinlog.transforms.expressions import Expressions
from twinlog_source.pipeline.record_plan import ROWS, changed_rows, python_stages
from twinlog_source.records.frames import (
    DRAIN,
    FEED,
    LENGTH,
    LOOPBACK,
    ChunkOut,
    Row,
    decode_chunk,
    encode_back,
)

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH = 200
SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    # What two expressions have in common would be computed outside of the attempt.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    # Otherwise a batch of large values would end earlier, and the fillers would not fit.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.sql.execution.python.udf.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    "spark.sql.execution.python.udf.buffer.size": "64",
}
CONNECT_SECONDS = 20.0
_END, _FILLER = -1, -2
"""Rows of ours: a chunk ends, or nothing."""
_LATEST_MS = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeSpec:
    flow_name: str
    expressions: Expressions
    port: int
    """Where the task listens, on loopback."""
    token: bytes = field(repr=False)
    strict: bool = False
    """An expression that fails ends the job, and its error says why."""

    @property
    def group(self) -> str:
        """The job group by which it is cancelled."""
        return f"{self.flow_name} records {self.port}"


def run_pipe(context: SparkContext, spec: PipeSpec) -> None:
    """Blocks until the task closes its side. Raises ConfigError for expressions that are refused, and
    pyspark's errors when the job failed."""
    out = _plan(context, spec)
    name = f"records of {spec.flow_name}: {', '.join(spec.expressions.topics)}"
    context.setJobGroup(spec.group, name, interruptOnCancel=False)
    _map_in_arrow(out, partial(_drain, spec), "rows long").collect()


def check_plan(context: SparkContext, spec: PipeSpec) -> None:
    """Raises as `run_pipe`; there is no job, and no record."""
    _plan(context, spec)


def _plan(context: SparkContext, spec: PipeSpec) -> DataFrame:
    session = _session(context)

    def plan(stages: int) -> DataFrame:
        rows = _map_in_arrow(session.range(0, 1, 1, 1), partial(_feed, spec, stages), ROWS)
        return changed_rows(rows, spec.expressions, strict=spec.strict)

    try:
        rows = plan(1)
        # The end of the pipe takes batches, and the feed does not.
        stages = python_stages(rows)
        return plan(stages) if stages > 1 else rows
    except ConfigError as error:
        written = spec.expressions.written.get(str(error).partition(":")[0], "")
        raise ConfigError(f"{error} ({spec.flow_name}: {written})") from error


def _session(context: SparkContext) -> SparkSession:
    """A session with the settings that a pipe needs."""
    session = SparkSession(context).newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def _map_in_arrow(rows: DataFrame, function: Any, schema: str) -> DataFrame:
    """As `DataFrame.mapInArrow`, which wants pandas for nothing."""
    over = UserDefinedFunction(
        function,
        returnType=schema,
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column: Any = over(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: SLF001


def _connect(spec: PipeSpec, end: bytes) -> socket.socket:
    connection = socket.create_connection((LOOPBACK, spec.port), timeout=CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(end + spec.token)
    connection.settimeout(None)
    return connection


def _feed(spec: PipeSpec, stages: int, once: Iterable[Any]) -> Iterator["pa.RecordBatch"]:
    list(once)
    with _connect(spec, FEED) as connection:
        sent = 0
        while (chunk := _next_chunk(connection)) is not None:
            yield _batch(chunk)
            sent += len(chunk.records) + 1
            if not select.select([connection], [], [], 0)[0]:
                # Spark looks whether there is one more row before it hands a full batch on. A function may
                # have dropped rows, so that it is not known how full the batch is.
                short = (1 - sent) % ROWS_PER_BATCH
                of_function = stages * (ROWS_PER_BATCH + 1)
                fillers = short if short and not spec.expressions.python else of_function
                yield _marks([(chunk.number, _FILLER)] * fillers)
                # What is written last may stay in Python's buffer.
                yield _marks([(chunk.number, _FILLER)])
                sent += fillers + 1


def _next_chunk(connection: socket.socket) -> ChunkOut | None:
    head = _exactly(connection, LENGTH.size)
    if head is None:
        return None
    content = _exactly(connection, LENGTH.unpack(head)[0])
    return None if content is None else decode_chunk(content)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes | None:
    """None when the task has closed its side."""
    content = bytearray(size_bytes)
    view, at = memoryview(content), 0
    while at < size_bytes:
        received = connection.recv_into(view[at:])
        if not received:
            return None
        at += received
    return bytes(content)


def _batch(chunk: ChunkOut) -> "pa.RecordBatch":
    """The rows of a chunk and the mark of its end."""
    records = [decode_record(record) for record in chunk.records]
    bodies = [record[2] for record in chunk.records]
    count = len(records)
    number, partition = chunk.number, chunk.partition
    return _arrow(
        [number] * (count + 1),
        [*range(count), _END],
        [*(record.timestamp_ms for record in records), 0],
        [*(body[headers_at(body) :] for body in bodies), None],
        [*[partition.topic] * count, None],
        [*[partition.partition] * count, None],
        [*(record.offset for record in records), None],
        [*(_microseconds(record.timestamp_ms) for record in records), None],
        [*(record.key for record in records), None],
        [*(record.value for record in records), None],
        [*([_header(*header) for header in record.headers] for record in records), None],
    )


def _marks(places: list[tuple[int, int]]) -> "pa.RecordBatch":
    nothing = [None] * len(places)
    return _arrow([each[0] for each in places], [each[1] for each in places], *[nothing] * 9)


def _header(key: bytes, value: bytes | None) -> dict[str, object]:
    return {"key": key.decode(errors="replace"), "value": value}


def _microseconds(timestamp_ms: int) -> int | None:
    """None where Spark has no such time, or the record none."""
    return timestamp_ms * 1000 if 0 <= timestamp_ms <= _LATEST_MS else None


def _arrow(*columns: list[Any]) -> "pa.RecordBatch":
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = (
        ("_chunk", pa.int32()),
        ("_row", pa.int32()),
        ("_ms", pa.int64()),
        ("_headers", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", headers),
    )
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in kinds])


def _drain(spec: PipeSpec, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    count = 0
    with _connect(spec, DRAIN) as connection:
        rows: list[Row] = []
        last = _END
        for batch in batches:
            for chunk, index, ms, failed, kept, raw, key, value, headers in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                if index == _END:
                    connection.sendall(encode_back(chunk, rows))
                    count += len(rows)
                    rows, last = [], _END
                elif index != _FILLER:
                    if index <= last:
                        raise ValueError(
                            f"{spec.expressions.python} returned a record twice, or out of order"
                        )
                    last = index
                    if failed >= 0:
                        rows.append(Row(index, 0, b"", failed))
                    elif kept:
                        rows.append(Row(index, ms, _body(raw, key, value, headers)))
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], names=["rows"])


def _body(raw: bytes | None, key: bytes | None, value: bytes | None, headers: Any) -> bytes:
    if raw is not None:
        return encode_field(key) + encode_field(value) + raw
    written = tuple((each["key"].encode(), each["value"]) for each in headers or ())
    return encode_body(key, value, written)
