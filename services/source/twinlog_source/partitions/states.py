"""The states of a partition, as operators know them."""

from enum import StrEnum


class PartitionState(StrEnum):
    UNSPECIFIED = "UNSPECIFIED"
    """What a task of another version says has no meaning here."""
    WAITING = "WAITING"
    """No task has it."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    BACKOFF = "BACKOFF"
    FAULTED = "FAULTED"
    STALLED = "STALLED"
    """It should move, and has not for a while."""
