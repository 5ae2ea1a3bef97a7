"""Whether producers still write to the source of a flow, by the growth of its logs. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from twinlog.cli.status.rows import FlowRow

SILENT_SECONDS = 60.0
"""Producers that wrote no record for so long are called silent."""
KNOWN_SECONDS = 30.0
"""Ends of source logs that were read longer ago say nothing of producers now."""


class State(StrEnum):
    WRITE = "WRITE"
    SILENT = "SILENT"
    UNKNOWN = "UNKNOWN"
    """The ends of the source's logs cannot be read."""
    UNTOLD = "UNTOLD"
    """No service tells of them."""


@dataclass(frozen=True, slots=True)
class Producers:
    state: State
    seconds: float | None = None
    """Since the last record came (None: not since the service started); of UNKNOWN, since the ends were
    read."""


def producers_of(row: FlowRow) -> Producers:
    read, written = row.source_ends_age_seconds, row.source_written_age_seconds
    if read is None:
        return Producers(State.UNTOLD)
    if read > KNOWN_SECONDS:
        return Producers(State.UNKNOWN, read)
    if written is None or written > SILENT_SECONDS:
        return Producers(State.SILENT, written)
    return Producers(State.WRITE, written)
