"""What the source service reports about the copy of each partition, including why it does not progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from twinlog.model import Flow, TopicPartition


class LostRange(NamedTuple):
    """Source offsets whose records the copy had and lost, as the ledger of gaps says."""

    begin: int
    end: int
    reason: str


class ForeignStretch(NamedTuple):
    """Offsets of a copy between which other producers wrote records."""

    begin: int
    end: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """The copy of one partition."""

    state: str
    """RUNNING, PAUSED, BACKOFF, FAULTED, WAITING, …: names of the API's states."""
    position: int | None
    """The next source offset to copy, as committed on the target; None while unknown."""
    reason: str = ""
    message: str = ""
    equal_below: int | None = 0
    """Below this offset the copy has the source's offsets; None = everywhere."""
    target_end: int | None = None
    """The copy had records up to this offset of its own; None while unknown."""
    foreign: Sequence[ForeignStretch] = ()
    """What other producers wrote into it, since the source service started."""

    @property
    def cause(self) -> str:
        """Why the copy does not progress, or that it does."""
        told = " ".join(part for part in (self.reason, self.message) if part)
        if self.state == "RUNNING":
            return told or "it is being copied"
        return f"{self.state}: {told}" if told else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """All partitions of one flow."""

    partitions: Mapping[TopicPartition, CopyState] = field(default_factory=dict)
    """By source partition."""
    lost: Mapping[TopicPartition, Sequence[LostRange]] = field(default_factory=dict)
    """By source partition, in order: what nobody acknowledged. Only if it was asked for."""
    away: str = ""
    """Why the source service did not answer; empty when it did."""

    def cause(self, partition: TopicPartition) -> str:
        """Why records before the end of a partition are not copied."""
        if self.away:
            return self.away
        state = self.partitions.get(partition)
        return "the source service does not copy this partition" if state is None else state.cause


class CopyStates(Protocol):
    """Reads copy states within a bounded time. A failure is part of the report, never an error."""

    async def of(self, flow: Flow, *, with_losses: bool = False) -> CopyReport: ...
