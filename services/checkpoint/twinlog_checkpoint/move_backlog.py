"""What has been written where a move leaves, and not copied yet: counted in both logs."""

from collections.abc import Mapping

from twinlog.errors import KafkaError, WireFormatError
from twinlog.model import TopicPartition
from twinlog_checkpoint.aligner import Aligner
from twinlog_checkpoint.exact import log_ends
from twinlog_checkpoint.log_sides import BudgetSpent, ByteBudget, LogBounds, Side, count_visible
from twinlog_checkpoint.move_route import CopiedPartition, Route
from twinlog_checkpoint.moves import TopicBacklog

BACKLOG_BYTES = 256 << 20
"""Read at most to measure one backlog."""


async def measure_backlog(route: Route, until: Mapping[TopicPartition, int] | None) -> list[TopicBacklog]:
    """Of every copied partition; with `until` only what lies before these offsets. Raises KafkaError."""
    written = await route.written()
    here = await log_ends(route.here.admin, {entry.here for entry in written})
    there = await log_ends(route.there.admin, {entry.there for entry in written})
    budget = ByteBudget(BACKLOG_BYTES)
    found: list[TopicBacklog] = []
    for entry in written:
        if entry.here in here and (until is None or entry.here in until):
            stop = here[entry.here].end if until is None else until[entry.here]
            found.append(
                await _backlog_of(route, entry, here[entry.here], there.get(entry.there), stop, budget)
            )
    return found


async def _backlog_of(
    route: Route,
    entry: CopiedPartition,
    here: LogBounds,
    there: LogBounds | None,
    stop: int,
    budget: ByteBudget,
) -> TopicBacklog:
    side = Side(log=route.here.log, partition=entry.here, bounds=here)
    copied_to: int | None = None
    message = "the logs do not show where the copy ends"
    try:
        if entry.pairs is None or there is None:
            # Nothing is known to be copied, so everything visible is missing.
            copied_to = here.start
        else:
            other = Side(log=route.there.log, partition=entry.there, bounds=there)
            last = await Aligner(here=side, there=other, pairs=entry.pairs, budget=budget).copied_end()
            copied_to = None if last is None else last.upstream + 1
        if copied_to is not None:
            missing = await count_visible(side, copied_to, stop, budget)
            return TopicBacklog(
                partition=entry.here, end_offset=here.end, records_not_copied=missing, copied_to=copied_to
            )
    except BudgetSpent:
        message = "there is too much to count"
    except (KafkaError, WireFormatError) as error:
        message = str(error)
    return TopicBacklog(
        partition=entry.here,
        end_offset=here.end,
        records_not_copied=None,
        copied_to=copied_to,
        message=message,
    )
