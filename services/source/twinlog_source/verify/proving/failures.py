"""The failure that a group of tasks ended with."""

from twinlog.errors import TwinlogError


def first_of(failures: BaseExceptionGroup[TwinlogError]) -> TwinlogError:
    """The first leaf of an exception group; it caused the cancellation of the others."""
    first = failures.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
