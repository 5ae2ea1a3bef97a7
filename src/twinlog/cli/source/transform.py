"""`twinlog transform try`: what Spark makes of the last records of a topic."""

from twinlog.api.source.v1 import source_service_pb2 as pb2
from twinlog.cli.common.call import Call, command
from twinlog.cli.common.fields import Field, Fields, table
from twinlog.cli.common.names import parse_flow
from twinlog.cli.common.options import group, option
from twinlog.cli.source.client import FlowArgument, PartitionOption

app = group("Try what the flow's twinlog.transform.* do to records.")
_SECONDS = 300.0
"""The first records wait until Spark has loaded its SQL; on a busy machine that takes a minute."""
_MOST_SHOWN = 60
"""Characters of a key, value or header in a table; JSON has all of them."""

TRIED: Fields[pb2.TriedRecord] = table(
    "topic=partition.topic partition=partition.partition =partition|partition offset|offset>",
    Field("outcome", lambda tried: _outcome(tried), "outcome"),
    Field("before", lambda tried: _content(tried.before), "before", text=lambda tried: _line(tried.before)),
    Field(
        "after",
        lambda tried: _content(tried.after) if tried.HasField("after") else None,
        "after",
        text=lambda tried: _line(tried.after) if tried.HasField("after") else tried.error or "not copied",
    ),
    "route? error?",
)


@app.callback()
def _group() -> None:
    """Keeps `try` a command of its own."""


@app.command("try")
@command
def try_command(
    call: Call,
    flow: FlowArgument,
    topic: str = option("--topic NAME", "The topic, by its name on either side."),
    partition: PartitionOption = None,
    last: int = option("--last N", "The last N records of each partition.", 10, min=1, max=1000),
) -> None:
    """Show records of the source before and after the flow's twinlog.transform.*; nothing is written.

    The source service computes them with its Spark, by the file with which it was started.
    """
    request = pb2.TryTransformRequest(
        flow=parse_flow(flow), source_topic=topic, partition=partition, last=last
    )
    records = call.ask(lambda at: at.source.TryTransform(request, timeout=_SECONDS)).records
    call.tell_rows(TRIED, records, empty=f"{topic} has no records")


def _outcome(tried: pb2.TriedRecord) -> str:
    if tried.error:
        return "FAILED"
    if not tried.HasField("after"):
        return "DROPPED"
    return "UNCHANGED" if tried.after == tried.before else "CHANGED"


def _content(content: pb2.RecordContent) -> dict[str, object]:
    return {
        "timestamp_ms": content.timestamp_ms,
        "key": _text(content.key) if content.HasField("key") else None,
        "value": _text(content.value) if content.HasField("value") else None,
        "headers": [
            {"key": _text(each.key), "value": _text(each.value) if each.HasField("value") else None}
            for each in content.headers
        ],
    }


def _line(content: pb2.RecordContent) -> str:
    shown = _content(content)
    headers = "".join(f" {each.key.decode(errors='replace')}" for each in content.headers)
    parts = (f"{name}={_short(shown[name])}" for name in ("key", "value"))
    return " ".join(parts) + (f" headers:{headers}" if headers else "")


def _text(content: bytes) -> str:
    return content.decode(errors="backslashreplace")


def _short(text: object) -> str:
    told = "null" if text is None else str(text)
    return told if len(told) <= _MOST_SHOWN else f"{told[: _MOST_SHOWN - 1]}…"
