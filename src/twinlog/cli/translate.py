"""`twinlog translate`: any offset or time of a flow's topics, in either direction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from twinlog.api.checkpoint.v1 import checkpoint_service_pb2 as pb2
from twinlog.api.common.v1 import types_pb2
from twinlog.cli.checkpoint_client import (
    CALL_TIMEOUT_SECONDS,
    FlowOption,
    answered,
    checkpoint_stub,
    only_flow,
    shown,
    topic_partition,
    verdict_name,
)
from twinlog.cli.configsync_client import parse_flow
from twinlog.cli.failures import EXIT_FAILED, reported_failures, run_async
from twinlog.cli.location import ConfigOption, EndpointOption
from twinlog.cli.offset_files import FileKind, Place, parse_place, read_places, write_places
from twinlog.cli.output import Column, Output, OutputOption, print_json, print_table
from twinlog.errors import ConfigError
from twinlog.model import TopicPartition

_HELP = """Translate offsets of the source into offsets of the target, or back with --back.

OFFSET is TOPIC:PARTITION:OFFSET (orders:3:1234) or TOPIC:PARTITION@TIME (orders:3@2026-01-31T12:00:00Z); \
an offset is the next one to read. --from takes a file instead: CSV (topic,partition,offset), a file of a \
Spark checkpoint's offsets directory, JSON as in Spark's startingOffsets, or Flink's specific-offsets with \
--topic; --to writes the answer in the same form.

Exit code 0 when everything was translated, 1 when something was not.
"""

_BATCH = 5_000
_COLUMNS = (
    Column(title="partition"),
    Column(title="offset", right=True),
    Column(title="there"),
    Column(title="offset", right=True),
    Column(title="verdict"),
    Column(title="message"),
)


def translate_command(
    offsets: Annotated[
        list[str] | None, typer.Argument(metavar="OFFSET...", help="Places to translate.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A file of offsets instead.")
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write the answer here, in the form of --from."),
    ] = None,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="For Flink's form.")] = "",
    back: Annotated[bool, typer.Option("--back", help="From the target's copies to the source.")] = False,
    flow: FlowOption = None,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    with reported_failures():
        kind, text, places = _asked(offsets, source, topic)
        if target is not None and source is None:
            raise ConfigError("--to needs --from: it writes the same form", metadata={"key": "--to"})
        answers = run_async(_translate(places, flow, back, config, endpoint))
        if target is not None:
            _write(target, kind, text, answers)
        elif output is Output.JSON:
            print_json([_as_json(answer) for answer in answers])
        else:
            print_table("", _COLUMNS, [_cells(answer) for answer in answers])
        if not all(answer.HasField("translated_offset") for answer in answers):
            raise typer.Exit(EXIT_FAILED)


translate_command.__doc__ = _HELP


def _asked(offsets: list[str] | None, source: Path | None, topic: str) -> tuple[FileKind, str, list[Place]]:
    """Raises ConfigError when nothing, or both, was given, and for what cannot be read."""
    if bool(offsets) == (source is not None):
        raise ConfigError("say what to translate: OFFSET arguments, or a file with --from")
    if source is None:
        return FileKind.CSV, "", [parse_place(text) for text in offsets or ()]
    try:
        text = source.read_text()
        kind, places = read_places(text, topic=topic)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--from {source}: {error}", metadata={"key": "--from"}) from None
    except ConfigError as error:
        raise ConfigError(f"--from {source}: {error}", metadata={"key": "--from"}) from None
    return kind, text, places


async def _translate(
    places: Sequence[Place], flow: str | None, back: bool, config: Path | None, endpoint: list[str] | None
) -> list[pb2.OffsetTranslation]:
    answers: list[pb2.OffsetTranslation] = []
    async with checkpoint_stub(config, endpoint) as stub:
        wanted = await only_flow(stub) if flow is None else parse_flow(flow)
        for start in range(0, len(places), _BATCH):
            request = pb2.TranslateOffsetsRequest(
                flow=wanted,
                direction=pb2.DIRECTION_BACK if back else pb2.DIRECTION_FORWARD,
                queries=[_query(place) for place in places[start : start + _BATCH]],
            )
            answer = await answered(stub.TranslateOffsets(request, timeout=CALL_TIMEOUT_SECONDS))
            answers += answer.translations
    return answers


def _query(place: Place) -> pb2.OffsetQuery:
    query = pb2.OffsetQuery(
        partition=types_pb2.TopicPartition(topic=place.partition.topic, partition=place.partition.partition)
    )
    if place.offset is not None:
        query.offset = place.offset
    else:
        query.timestamp.FromMilliseconds(place.timestamp_ms or 0)
    return query


def _write(target: Path, kind: FileKind, original: str, answers: Sequence[pb2.OffsetTranslation]) -> None:
    """Nothing is written when something was not translated: half a file of offsets is worse than none."""
    missing = [answer for answer in answers if not answer.HasField("translated_offset")]
    if missing:
        raise ConfigError(
            f"nothing was written: {len(missing)} offsets have no translation, the first is"
            f" {topic_partition(missing[0].partition)} ({missing[0].message})"
        )
    places = [
        Place(
            partition=TopicPartition(
                answer.translated_partition.topic, answer.translated_partition.partition
            ),
            offset=answer.translated_offset,
        )
        for answer in answers
    ]
    target.write_text(write_places(kind, original, places))


def _cells(answer: pb2.OffsetTranslation) -> list[str]:
    there = answer.HasField("translated_partition")
    return [
        topic_partition(answer.partition),
        shown(answer.offset if answer.HasField("offset") else None),
        topic_partition(answer.translated_partition) if there else "-",
        shown(answer.translated_offset if answer.HasField("translated_offset") else None),
        verdict_name(answer.verdict),
        answer.message,
    ]


def _as_json(answer: pb2.OffsetTranslation) -> dict[str, Any]:
    there = answer.HasField("translated_partition")
    return {
        "topic": answer.partition.topic,
        "partition": answer.partition.partition,
        "offset": answer.offset if answer.HasField("offset") else None,
        "translated_topic": answer.translated_partition.topic if there else None,
        "translated_offset": answer.translated_offset if answer.HasField("translated_offset") else None,
        "verdict": verdict_name(answer.verdict),
        "message": answer.message,
    }
