"""Answers TranslateOffsets: any offset or time of a flow's topics, in either direction."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from twinlog.errors import ConfigError, KafkaError, StateError
from twinlog.kafka.ports import LogAdmin, OffsetSpec
from twinlog.model import TopicPartition
from twinlog_checkpoint.flow.parts import FlowParts
from twinlog_checkpoint.translation.log_sides import log_bounds
from twinlog_checkpoint.translation.translation import LogBounds, SourcePosition, Translation, Verdict

MAX_QUERIES = 10_000


class Direction(Enum):
    FORWARD = "FORWARD"
    """From topics of the source to their copies."""
    BACK = "BACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """A place in a partition: exactly one of offset and time."""

    partition: TopicPartition
    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTranslation:
    query: OffsetQuery
    offset: int | None
    """The requested offset, or the offset of the requested time; None when the log has no record at or after
    that time."""
    partition: TopicPartition | None
    """The partition on the other cluster; None when the flow does not copy the topic."""
    translation: Translation


async def answer_queries(
    parts: FlowParts, direction: Direction, queries: Sequence[OffsetQuery]
) -> list[OffsetTranslation]:
    """Translate each query, in order. A problem with a single query becomes its verdict.

    Raises ConfigError (TOO_MANY_QUERIES), StateError (NOT_READY) before the offset syncs are read, and
    KafkaError when a cluster does not answer.
    """
    if len(queries) > MAX_QUERIES:
        raise ConfigError(
            f"{len(queries)} queries at once, at most {MAX_QUERIES} are answered", reason="TOO_MANY_QUERIES"
        )
    if not parts.syncs_are_read:
        raise not_ready(parts)
    forward = direction is Direction.FORWARD
    here, translator = (parts.source_log, parts.forward) if forward else (parts.target_log, parts.back)
    offsets = await _resolved(here.admin, queries)
    bounds = await here.bounds({query.partition for query in queries})
    past_lso = {
        query.partition
        for query, offset in zip(queries, offsets, strict=True)
        if offset is not None
        and isinstance(log := bounds.get(query.partition), LogBounds)
        and offset > log.end
    }
    ends = await log_bounds(here.admin, past_lso, OffsetSpec.LATEST)
    alias = parts.flow.source if forward else parts.flow.target
    positions: dict[int, SourcePosition] = {}
    refused: dict[int, Translation] = {}
    for index, query in enumerate(queries):
        offset = offsets[index]
        refusal, log = _refusal(parts, direction, query), bounds.get(query.partition)
        unread = here.unread(log)
        if refusal is None and unread is None and not isinstance(log, LogBounds):
            refusal = f"{alias} has no partition {query.partition}, or does not let it be seen"
        end = ends[query.partition].end if query.partition in ends else None
        if refusal is not None:
            refused[index] = _without(Verdict.NOT_REPLICATED, refusal)
        elif unread is not None:
            refused[index] = unread
        elif offset is not None and end is not None and offset > end:
            refused[index] = _without(
                Verdict.PAST_END, f"the log of {query.partition} on {alias} ends at {end}"
            )
        elif offset is not None:
            positions[index] = SourcePosition(partition=query.partition, next_offset=offset)
    answers = await translator.translate(set(positions.values()))
    return [
        _answer(
            parts,
            direction,
            query,
            offsets[index],
            refused.get(index),
            answers.get(positions[index]) if index in positions else None,
        )
        for index, query in enumerate(queries)
    ]


def not_ready(parts: FlowParts) -> StateError:
    """Nothing can be translated before the offset syncs are read. The error names the blocker if there is
    one."""
    why = f": {parts.blocker}" if parts.blocker else ""
    return StateError(
        f"flow {parts.flow}: the offset syncs have not been read yet{why}",
        reason="NOT_READY",
        metadata={"flow": str(parts.flow)},
    )


async def _resolved(admin: LogAdmin, queries: Sequence[OffsetQuery]) -> list[int | None]:
    """Return the offset of each query; times are looked up. Raises KafkaError."""
    offsets = [query.offset for query in queries]
    waiting = [index for index, query in enumerate(queries) if query.timestamp_ms is not None]
    while waiting:
        # A lookup takes one time per partition. Most requests need a single lookup.
        asked: dict[TopicPartition, int] = {}
        for index in waiting:
            asked.setdefault(queries[index].partition, queries[index].timestamp_ms or 0)
        found = await admin.offsets_for_times(asked)
        for index in waiting:
            query = queries[index]
            answer = found[query.partition]
            if asked[query.partition] == query.timestamp_ms and not isinstance(answer, KafkaError):
                offsets[index] = answer
        waiting = [
            index for index in waiting if asked[queries[index].partition] != queries[index].timestamp_ms
        ]
    return offsets


def _refusal(parts: FlowParts, direction: Direction, query: OffsetQuery) -> str | None:
    if direction is Direction.FORWARD:
        return parts.checkpointer.topics.refusal(query.partition.topic)
    if parts.origin_of(query.partition) is None:
        return f"{query.partition.topic} is not a copy that {parts.flow} makes"
    return None


def _answer(
    parts: FlowParts,
    direction: Direction,
    query: OffsetQuery,
    offset: int | None,
    refused: Translation | None,
    translation: Translation | None,
) -> OffsetTranslation:
    forward = direction is Direction.FORWARD
    partition = parts.copy_of(query.partition) if forward else parts.origin_of(query.partition)
    told = (
        refused
        or translation
        or _without(Verdict.UP_TO_DATE, "the log holds no record at or after this time")
    )
    return OffsetTranslation(query=query, offset=offset, partition=partition, translation=told)


def _without(verdict: Verdict, message: str) -> Translation:
    """Return an answer without an offset."""
    return Translation(verdict=verdict, downstream_offset=None, message=message)
