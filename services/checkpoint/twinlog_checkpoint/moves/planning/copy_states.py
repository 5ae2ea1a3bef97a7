"""What the source service says of the copy of each partition: it knows why one does not move."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twinlog.model import Flow, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The copy of one partition."""

    state: str
    """RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, …: the names of the API."""
    position: int | None
    """The next source offset to copy, committed on the target; None while it is not known."""
    reason: str = ""
    message: str = ""
    equal_below: int | None = 0
    """Below this offset the copy has the source's offsets; None = all of it has."""

    @property
    def cause(self) -> str:
        """Why it does not move, or that it does."""
        told = " ".join(part for part in (self.reason, self.message) if part)
        if self.state == "RUNNING":
            return told or "it is being copied"
        return f"{self.state}: {told}" if told else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """All partitions of one flow."""

    partitions: Mapping[TopicPartition, CopyState] = field(default_factory=dict)
    """By source partition."""
    away: str = ""
    """Why the source service did not say; empty when it did."""

    def cause(self, partition: TopicPartition) -> str:
        """Why what lies before the end of a partition is not copied, in words."""
        if self.away:
            return self.away
        state = self.partitions.get(partition)
        return "the source service does not copy this partition" if state is None else state.cause


class CopyStates(Protocol):
    """Bounded; what is wrong is part of the report, never an error."""

    async def of(self, flow: Flow) -> CopyReport: ...
