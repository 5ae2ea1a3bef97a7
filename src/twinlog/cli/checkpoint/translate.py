"""`twinlog translate`: any offset or time of a flow's topics, in either direction."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.checkpoint.v1.checkpoint_service_pb2_grpc import CheckpointServiceStub
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.checkpoint.offset_files import BadLine, OffsetFile, WantedPlace, parse_place, read_places
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, tell
from twinlog.cli.common.fields import UNKNOWN, Field, Fields, Output, table, value_of
from twinlog.cli.common.names import CLOCK, flow_name, parse_flow, partition_name
from twinlog.cli.common.options import argument, flag, flow_and_names, option
from twinlog.errors import ConfigError, NotFoundError
from twinlog.model import TopicPartition

_BATCH = 5_000
_TRANSLATION: Fields[pb2.OffsetTranslation] = table(
    Field("topic", lambda row: row.partition.topic),
    Field("partition", lambda row: row.partition.partition),
    "=partition|partition offset|offset>",
    Field("translated_topic", "translated_partition.topic", "there", lambda row: _there(row)),
    "translated_offset|offset> verdict|verdict message|message",
)


@command
def translate_command(
    call: Call,
    offsets: list[str] | None = argument("[A->B] OFFSET...", "The flow, and the offsets to translate.", None),
    source: Path | None = option("--from FILE", "A file of offsets to translate.", None),
    target: Path | None = option("--to FILE", "Write the result here, in the format of --from.", None),
    topic: str = option("--topic NAME", "The topic, for Flink's format.", ""),
    back: bool = flag("--back", "Translate from the copies to the source; TOPIC is the copy (A.orders)."),
) -> None:
    """Translate offsets of the source into offsets of the target, or back with --back.

    OFFSET is TOPIC:PARTITION:OFFSET (orders:3:1234) or TOPIC:PARTITION@TIME (orders:3@2026-01-31T12:00:00Z);
    an offset is the next one to read. --from reads a file instead: CSV (topic,partition,offset), a file of a
    Spark checkpoint's offsets directory, JSON as in Spark's startingOffsets, or Flink's specific-offsets
    with --topic. CSV may have the group in front, as `kafka-consumer-groups --export` writes it. --to writes
    the result in the same format; everything in the file except the offsets is unchanged. With -o json the
    command also prints the result.

    Lines that cannot be read are named on stderr (with -o json by a document each), and the others are
    translated. Exit code 0 if everything was translated, else 1; --to writes a file only if everything was
    translated.
    """
    if target is not None and source is None:
        raise ConfigError("--to needs --from, because it writes the same format", key="--to")
    named, texts = flow_and_names(offsets)
    places, file = _asked(texts, source, topic)
    bad = [] if file is None else file.bad
    for line in bad:
        _tell_bad(source, line)
    answers = call.ask(lambda at: _translate(at, places, named, back)) if places else []
    complete = not bad and all(answer.HasField("translated_offset") for answer in answers)
    with exiting_with(0 if complete else EXIT_FAILED):
        if target is not None and file is not None:
            _write(target, file, answers, call.output)
        if target is None or call.in_json:
            call.tell_rows(_TRANSLATION, answers)


def _asked(
    offsets: list[str] | None, source: Path | None, topic: str
) -> tuple[Sequence[WantedPlace], OffsetFile | None]:
    """Raises ConfigError if neither or both are given, and for a file without offsets."""
    if bool(offsets) == (source is not None):
        raise ConfigError("name the offsets to translate: OFFSET arguments, or a file with --from")
    if source is None:
        now_ms = CLOCK.get().now_ms()
        return [parse_place(text, now_ms=now_ms) for text in offsets or ()], None
    if source.is_dir():
        raise ConfigError(
            f"--from {source} is a directory: name a file in it. For a Spark checkpoint this is offsets/N"
            " with the highest N that commits/ also has",
            key="--from",
        )
    try:
        file = read_places(source.read_text(encoding="utf-8"), topic=topic)
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not a text file; Flink's checkpoints are binary: use its specific-offsets with --topic"
    except ConfigError as error:
        why = str(error)
    else:
        return file.places, file
    raise ConfigError(f"--from {source}: {why}", key="--from")


async def only_flow(stub: CheckpointServiceStub) -> types_pb2.Flow:
    """The one flow that the service translates. Raises ConfigError when it is not exactly one."""
    listed = await stub.ListGroups(pb2.ListGroupsRequest(summary_only=True))
    flows = [each.flow for each in listed.flows]
    if len(flows) == 1:
        return flows[0]
    if not flows:
        raise ConfigError(
            "no flow of the checkpoint service translates groups: see `twinlog status`", key="--flow"
        )
    names = ", ".join(flow_name(flow) for flow in flows)
    raise ConfigError(
        f"there are several flows, say which, such as {flow_name(flows[0])!r}: {names}", key="--flow"
    )


async def _translate(
    at: Services, places: Sequence[WantedPlace], flow: str | None, back: bool
) -> list[pb2.OffsetTranslation]:
    answers: list[pb2.OffsetTranslation] = []
    wanted = await only_flow(at.checkpoint) if flow is None else parse_flow(flow)
    for start in range(0, len(places), _BATCH):
        request = pb2.TranslateOffsetsRequest(
            flow=wanted,
            direction=pb2.DIRECTION_BACK if back else pb2.DIRECTION_FORWARD,
            queries=[_query(place) for place in places[start : start + _BATCH]],
        )
        answers += (await at.checkpoint.TranslateOffsets(request)).translations
    return answers


def _query(place: WantedPlace) -> pb2.OffsetQuery:
    query = pb2.OffsetQuery(
        partition=types_pb2.TopicPartition(topic=place.partition.topic, partition=place.partition.partition)
    )
    if place.offset is not None:
        query.offset = place.offset
    else:
        query.timestamp.FromMilliseconds(place.timestamp_ms or 0)
    return query


def _tell_bad(source: Path | None, line: BadLine) -> None:
    where = {"key": "--from", "file": str(source), "line": str(line.line)}
    tell(ConfigError(f"{source}:{line.line}: {line.what}", metadata=where))


def _tell_missing(answer: pb2.OffsetTranslation) -> None:
    partition, verdict = answer.partition, value_of(answer, "verdict")
    told = f"{partition_name(partition)} has no translation: {verdict} ({answer.message})"
    what = {"topic": partition.topic, "partition": str(partition.partition), "verdict": verdict}
    tell(NotFoundError(told, metadata=what))


def _write(target: Path, file: OffsetFile, answers: Sequence[pb2.OffsetTranslation], output: Output) -> None:
    """Nothing is written when something was not translated: half a file of offsets is worse than none.

    Raises ConfigError for a path that cannot be written.
    """
    missing = [answer for answer in answers if not answer.HasField("translated_offset")]
    for answer in missing:
        _tell_missing(answer)
    if missing or file.bad:
        tell(ConfigError(f"{target} was not written", key="--to"))
        return
    places = [
        WantedPlace(
            partition=TopicPartition(
                answer.translated_partition.topic, answer.translated_partition.partition
            ),
            offset=answer.translated_offset,
        )
        for answer in answers
    ]
    try:
        target.write_text(file.render(places), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--to {target}: {error.strerror or error}", key="--to") from None
    if output is Output.JSON:
        return
    verdicts = Counter(value_of(answer, "verdict") for answer in answers)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    typer.echo(f"{target} was written: {counts or 'no offsets'}", err=True)


def _there(row: pb2.OffsetTranslation) -> str:
    return partition_name(row.translated_partition) if row.HasField("translated_partition") else UNKNOWN
