"""One pipe: a Spark job through whose plan records flow for as long as the task that uses it wants.

A worker takes chunks from the task's socket and feeds them to the plan; another one takes what comes out and
sends it back. On a cluster they may be on another machine than the task. Both hand on columns as they are:
what a record is made of, and what is copied, exactly once, stays with the task. Only what the expressions
read and change crosses the JVM.

Spark hands rows to a worker only in batches of exactly so many, and Python keeps output back until a buffer
is full. So when nothing more is to come, marks fill the batch up: of each Python function that the plan has.
"""

import select
import socket
import ssl
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from twinlog.errors import ConfigError
from twinlog.transforms.expressions import COLUMNS, Expressions
from twinlog_source.pipeline.record_plan import ROWS, changed_rows, python_stages, used_columns
from twinlog_source.records.frames import (
    DRAIN,
    FEED,
    FILLER,
    LENGTH,
    Buffer,
    decode_buffers,
    encode_buffers,
    encode_columns,
)
from twinlog_source.records.pipe import PipeJob
from twinlog_source.records.reach import NAME, tls_to

if TYPE_CHECKING:
    import numpy as np
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
_LATEST_MS = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeSpec:
    flow_name: str
    expressions: Expressions
    group: str
    """The job group by which it is cancelled."""
    job: PipeJob


def run_pipe(context: SparkContext, spec: PipeSpec) -> None:
    """Blocks until the task closes its side. Raises ConfigError for expressions that are refused, and
    pyspark's errors when the job failed."""
    out = _plan(context, spec)
    changed = tuple(name for name in COLUMNS if name in out.columns)
    name = f"records of {spec.flow_name}: {', '.join(spec.expressions.topics)}"
    context.setJobGroup(spec.group, name, interruptOnCancel=False)
    _map_in_arrow(out, partial(_drain, spec, changed), "rows long").collect()


def check_plan(context: SparkContext, spec: PipeSpec) -> None:
    """Raises as `run_pipe`; there is no job, and no record."""
    _plan(context, spec)


def _plan(context: SparkContext, spec: PipeSpec) -> DataFrame:
    session = _session(context)

    def feed(stages: int, columns: Collection[str]) -> DataFrame:
        names = tuple(name for name in ROWS if name in columns)
        schema = ", ".join(f"{name} {ROWS[name]}" for name in names)
        once = session.range(0, 1, 1, 1)
        return _map_in_arrow(once, partial(_feed, spec, stages, names), schema)

    try:
        given = feed(1, ROWS)
        rows = changed_rows(given, spec.expressions, strict=spec.job.strict)
        used = used_columns(rows, given)
        # The end of the pipe takes batches, and the feed does not.
        given = feed(python_stages(rows), used)
        unused = {name: f.lit(None).cast(kind).alias(name) for name, kind in ROWS.items() if name not in used}
        whole = given.select(*(unused.get(name, f.col(name)) for name in ROWS))
        return changed_rows(whole, spec.expressions, strict=spec.job.strict)
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


def _connect(spec: PipeSpec, end: bytes, columns: Collection[str]) -> socket.socket:
    job = spec.job
    connection = socket.create_connection((job.host, job.port), timeout=CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if job.certificate:
        connection = tls_to(job.certificate).wrap_socket(connection, server_hostname=NAME)
    connection.sendall(end + job.token + encode_columns(columns))
    connection.settimeout(None)
    return connection


def _feed(
    spec: PipeSpec, stages: int, columns: Sequence[str], once: Iterable[Any]
) -> Iterator["pa.RecordBatch"]:
    list(once)
    with _connect(spec, FEED, columns) as connection:
        sent = 0
        while (content := _next_frame(connection)) is not None:
            batch = _batch(content, columns)
            yield batch
            sent += batch.num_rows
            if not _has_more(connection):
                # Spark looks whether there is one more row before it hands a full batch on. A function may
                # have dropped rows, so that it is not known how full the batch is.
                short = (1 - sent) % ROWS_PER_BATCH
                of_function = stages * (ROWS_PER_BATCH + 1)
                fillers = short if short and not spec.expressions.python else of_function
                yield _fillers(batch.schema, fillers)
                # What is written last may stay in Python's buffer.
                yield _fillers(batch.schema, 1)
                sent += fillers + 1


def _has_more(connection: socket.socket) -> bool:
    has_decrypted = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
    return has_decrypted or bool(select.select([connection], [], [], 0)[0])


def _next_frame(connection: socket.socket) -> Buffer | None:
    head = _exactly(connection, LENGTH.size)
    return None if head is None else _exactly(connection, LENGTH.unpack(head)[0])


def _exactly(connection: socket.socket, size_bytes: int) -> Buffer | None:
    """None when the task has closed its side."""
    content = bytearray(size_bytes)
    view, at = memoryview(content), 0
    while at < size_bytes:
        received = connection.recv_into(view[at:])
        if not received:
            return None
        at += received
    return view


def _batch(content: Buffer, columns: Sequence[str]) -> "pa.RecordBatch":
    """The rows of a chunk, of which the last one ends it. Built of buffers: all else in pyarrow that makes
    columns loads pandas."""
    import numpy as np
    import pyarrow as pa

    rows, topic, partition, offsets, timestamps, *rest = decode_buffers(content)
    places, parts = np.frombuffer(rows, np.int32), iter(rest)
    count, is_record = len(places), places >= 0
    milliseconds = np.frombuffer(timestamps, np.int64)
    # Where Spark has no such time, or the record none.
    has_time = is_record & (milliseconds >= 0) & (milliseconds <= _LATEST_MS)
    headers = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {"string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "long": pa.int64()}

    def numbers(kind: "pa.DataType", valid: "np.ndarray[Any, Any]", values: Any) -> "pa.Array":
        return pa.Array.from_buffers(kind, count, [_bits(valid), pa.py_buffer(values)])

    def column(name: str) -> "pa.Array":
        match name:
            case "_row":
                return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(rows)])
            case "topic":
                lengths = np.where(is_record, len(topic), -1)
                return _texts(kinds["string"], lengths, bytes(topic) * int(is_record.sum()))
            case "partition":
                return numbers(
                    pa.int32(), is_record, np.full(count, np.frombuffer(partition, np.int32)[0], np.int32)
                )
            case "offset":
                return numbers(pa.int64(), is_record, offsets)
            case "timestamp":
                microseconds = np.where(has_time, milliseconds, 0) * 1000
                return numbers(pa.timestamp("us", tz="UTC"), has_time, microseconds)
            case "headers":
                counts = np.frombuffer(next(parts), np.int32)
                keys = _texts(pa.string(), np.frombuffer(next(parts), np.int32), next(parts))
                values = _texts(pa.binary(), np.frombuffer(next(parts), np.int32), next(parts))
                each = pa.Array.from_buffers(headers, len(keys), [None], children=[keys, values])
                return pa.Array.from_buffers(
                    pa.list_(headers), count, [_bits(counts >= 0), _ends(counts)], children=[each]
                )
        return _texts(pa.binary(), np.frombuffer(next(parts), np.int32), next(parts))

    return pa.RecordBatch.from_arrays([column(name) for name in columns], names=list(columns))


def _texts(kind: "pa.DataType", lengths: "np.ndarray[Any, Any]", content: Buffer) -> "pa.Array":
    """Strings or bytes; a negative length is null."""
    import pyarrow as pa

    buffers = [_bits(lengths >= 0), _ends(lengths), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _bits(valid: "np.ndarray[Any, Any]") -> "pa.Buffer":
    import numpy as np
    import pyarrow as pa

    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _ends(lengths: "np.ndarray[Any, Any]") -> "pa.Buffer":
    import numpy as np
    import pyarrow as pa

    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    return pa.py_buffer(ends)


def _fillers(schema: "pa.Schema", count: int) -> "pa.RecordBatch":
    import numpy as np
    import pyarrow as pa

    rows = pa.py_buffer(np.full(count, FILLER, np.int32))
    row = pa.Array.from_buffers(pa.int32(), count, [None, rows])
    return pa.RecordBatch.from_arrays(
        [row, *(pa.nulls(count, kind) for kind in schema.types[1:])], schema=schema
    )


def _drain(
    spec: PipeSpec, changed: Sequence[str], batches: Iterable["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    import numpy as np
    import pyarrow as pa

    count = 0
    with _connect(spec, DRAIN, changed) as connection:
        for batch in batches:
            if batch.num_rows:
                buffers = [each for column in batch.columns for each in _buffers(column)]
                connection.sendall(encode_buffers(buffers))
            count += batch.num_rows
    total = pa.py_buffer(np.array([count], np.int64))
    yield pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.int64(), 1, [None, total])], names=["rows"])


def _buffers(column: "pa.Array") -> Iterator[Buffer]:
    """As `Returned` takes them: numbers, or lengths (-1 = null) and what they are the lengths of."""
    import numpy as np
    import pyarrow as pa

    first, count = column.offset, len(column)
    valid, content, *data = column.buffers()
    if pa.types.is_integer(column.type):
        size_bytes = column.type.bit_width // 8
        yield memoryview(content)[first * size_bytes : (first + count) * size_bytes]
        return
    ends = np.frombuffer(content, np.int32)[first : first + count + 1]
    lengths = np.diff(ends)
    if column.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
        lengths[bits[first : first + count] == 0] = -1
    yield lengths.tobytes()
    if isinstance(column, pa.ListArray):
        for each in column.flatten().flatten():
            yield from _buffers(each)
    else:
        yield b"" if data[0] is None else memoryview(data[0])[ends[0] : ends[-1]]
