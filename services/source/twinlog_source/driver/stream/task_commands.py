"""The driver's commands to its tasks, as values. `driver/stream/worker_messages.py` converts them to
messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinlog.model import TopicPartition
from twinlog_source.partitions.assignments import Assignment
from twinlog_source.partitions.shares import NO_DEBT, LimitDebt, SlotLimits
from twinlog_source.task.orders import Reposition, SetPaused, WithdrawReposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Copy these partitions from here on."""

    assignments: tuple[Assignment, ...] = ()
    limits: SlotLimits = field(default_factory=SlotLimits)
    debt: LimitDebt = NO_DEBT


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The answer to a task that has initialised its ids again."""

    reason: str = ""
    """Why the task must not continue; empty = it may."""
    message: str = ""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """What the log says of its partitions, read after the ids were initialised again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStored:
    """The answer for a producer id that the task has got."""

    producer_id: int
    reason: str = ""
    """Why it could not be stored; empty = it is."""
    message: str = ""


Echoes = Mapping[tuple[TopicPartition, int], tuple[int, int]]
"""By source partition and producer id, as in `CopyPolicy.echoes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The answer to a task that asked which batches of the source are copies."""

    number: int
    echoes: Echoes = field(default_factory=dict)
    reason: str = ""
    """Why it is not known; empty = it is."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeEnded:
    """The job through which the task's records flow has ended."""

    port: int
    """The task's, which names the job."""
    reason: str = ""
    """Why it failed; empty = it ended in order."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Copy no faster than this."""

    limits: SlotLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    reason: str


TaskCommand = (
    Start
    | Resume
    | ProducerStored
    | Origins
    | PipeEnded
    | SetPaused
    | Limit
    | Reposition
    | WithdrawReposition
    | End
)
