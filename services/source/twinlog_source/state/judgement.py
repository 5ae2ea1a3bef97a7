"""Decides what of a partition is restored as exported, and what has to be derived. Pure.

An exported position is restored only if nothing was written to the copy since. Otherwise it is derived from
both logs, or refused. A copy never continues at an uncertain position.
"""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.comparison.records import is_copy
from twinlog.errors import KafkaError
from twinlog.kafka.ports import LogReader
from twinlog.kafka.reasons import KafkaReason
from twinlog.model import TopicPartition
from twinlog_source.state.export import patient_records
from twinlog_source.state.state_file import CopyLine

# Finds how far a copy reaches: compares its records with those of the source, in order, from a pair of
# offsets that is known to belong together.
#
# Invariant: a position is returned only when every committed record of the copy from the pair on is the
# next committed record of the source, in order. So the records before it are on the copy exactly once, and
# those behind it are not.


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    source: TopicPartition
    copy: TopicPartition
    source_from: int
    source_end: int
    copy_from: int
    copy_end: int
    same_offsets: bool
    """The copy has the source's offsets."""


async def compare_in_order(logs: InOrder, source: LogReader, target: LogReader) -> "RestoreVerdict | str":
    """Where the copy continues, or why that is not known. Raises KafkaError when a log cannot be read."""
    here = patient_records(source, logs.source, logs.source_from, logs.source_end)
    position, count = logs.source_from, 0
    try:
        async for copied in patient_records(target, logs.copy, logs.copy_from, logs.copy_end):
            original = await anext(here, None)
            if original is None:
                return f"{logs.copy} has at offset {copied.offset} what the source has not"
            if not is_copy(original, copied) or (logs.same_offsets and original.offset != copied.offset):
                return f"{logs.copy} at {copied.offset} is not {logs.source} at {original.offset}"
            position, count = original.offset + 1, count + 1
    except KafkaError as error:
        if error.reason != KafkaReason.OFFSET_OUT_OF_RANGE:
            raise
        return f"records are gone that would have to be compared: {error}"
    words = f"{count} records were copied after what the file says"
    return RestoreVerdict(outcome=RestoreOutcome.DERIVED, position=position, message=words)


class RestoreOutcome(StrEnum):
    AS_EXPORTED = "AS_EXPORTED"
    DERIVED = "DERIVED"
    """From both logs: more was copied after the export."""
    REPEATED = "REPEATED"
    """The exported position: records that were copied since are copied again (`--allow-repeats`)."""
    LEFT_OUT = "LEFT_OUT"
    """The copy is gone: it begins again."""
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreVerdict:
    outcome: RestoreOutcome
    position: int | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsNow:
    """Both logs of a partition at the time of the import."""

    source_topic_id: str
    source_start: int
    source_end: int
    """The end of what may be copied."""
    target_topic_id: str | None
    """None: the topic or the partition does not exist."""
    source_exists: bool = True
    """Whether the source has the partition; unknown counts as true."""
    source_problem: KafkaError | None = None
    """Why the source did not answer: its start and end are unknown, and nothing can be compared."""
    target_start: int = 0
    target_end: int = 0
    target_is_settled: bool = True
    """No transaction is open there."""


def judge(line: CopyLine, now: LogsNow, *, begins_at_earliest: bool) -> RestoreVerdict | InOrder:
    """Return the verdict, or what has to be compared for it."""
    if now.target_topic_id is None or now.target_topic_id != line.target_topic_id:
        return _of_a_copy_that_is_gone(line, begins_at_earliest=begins_at_earliest)
    if not now.target_is_settled:
        return _refused(
            reason="COPY_UNSTABLE",
            message=f"a transaction is open on {line.copy}: its records may still appear there",
        )
    if line.target_end is not None and now.target_end == line.target_end:
        return RestoreVerdict(outcome=RestoreOutcome.AS_EXPORTED, position=line.position)
    if not now.source_exists:
        words = f"{line.source} no longer exists on the source: nothing more is copied"
        return RestoreVerdict(outcome=RestoreOutcome.AS_EXPORTED, position=line.position, message=words)
    if line.anchor_position is None or line.anchor_end is None:
        if now.target_end == 0 and line.position <= now.source_start:
            words = f"{line.copy} is empty, and the source has nothing before the position"
            return RestoreVerdict(outcome=RestoreOutcome.AS_EXPORTED, position=line.position, message=words)
        return _not_derivable(f"{line.copy} was being written during the export")
    if now.source_topic_id != line.source_topic_id:
        return _not_derivable(f"{line.topic} was deleted and created again on the source since the export")
    if now.target_end < line.anchor_end:
        return _not_derivable(
            f"{line.copy} ends at {now.target_end}, before {line.anchor_end}: it lost records"
        )
    return InOrder(
        source=line.source,
        copy=line.copy,
        source_from=line.anchor_position,
        source_end=now.source_end,
        copy_from=line.anchor_end,
        copy_end=now.target_end,
        same_offsets=line.preserved,
    )


def judge_new(line: CopyLine, now: LogsNow) -> RestoreVerdict | InOrder | None:
    """Judge a partition that the export does not know; None if nothing of it was copied."""
    if now.target_topic_id is None or now.target_end == now.target_start == 0:
        return None
    if not now.target_is_settled:
        return _refused(reason="COPY_UNSTABLE", message=f"a transaction is open on {line.copy}")
    return InOrder(
        source=line.source,
        copy=line.copy,
        source_from=now.source_start,
        source_end=now.source_end,
        copy_from=now.target_start,
        copy_end=now.target_end,
        same_offsets=False,
    )


def not_derived(line: CopyLine, why: str, *, allow_repeats: bool) -> RestoreVerdict:
    """The verdict for a partition whose position could not be derived."""
    if allow_repeats and not line.preserved:
        return RestoreVerdict(
            outcome=RestoreOutcome.REPEATED,
            position=line.position,
            reason="POSITION_NOT_DERIVABLE",
            message=f"{why}; records from source offset {line.position} on are copied again",
        )
    return _not_derivable(why)


def _of_a_copy_that_is_gone(line: CopyLine, *, begins_at_earliest: bool) -> RestoreVerdict:
    if begins_at_earliest:
        return RestoreVerdict(
            outcome=RestoreOutcome.LEFT_OUT,
            reason="COPY_MISSING",
            message=f"{line.target_topic} was recreated since the export: it is copied again",
        )
    return _refused(
        reason="COPY_MISSING",
        message=f"{line.target_topic} was recreated since the export, and auto.offset.reset would"
        " leave records out of a new copy",
    )


def _not_derivable(why: str) -> RestoreVerdict:
    return _refused(reason="POSITION_NOT_DERIVABLE", message=why)


def _refused(*, reason: str, message: str) -> RestoreVerdict:
    return RestoreVerdict(outcome=RestoreOutcome.REFUSED, reason=reason, message=message)
