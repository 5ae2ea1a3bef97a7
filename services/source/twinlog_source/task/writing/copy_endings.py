"""Ends preserved copies that cannot keep the source's offsets any more: each where it comes to rest, and only
once nothing can lengthen it.

Invariant: a copy that cannot keep the offsets is not written any more before its exact position is known.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from twinlog.clock import Clock
from twinlog_source.preserved.writer import PreservedWriter
from twinlog_source.task.writing.preserved_copy import PreservedCopy
from twinlog_source.task.writing.preserved_positions import PreservedPositions

LOOK_SECONDS = 0.02
"""How long after a batch can no longer come the end is read again."""


@dataclass(slots=True, kw_only=True)
class CopyEndings:
    writer: PreservedWriter
    positions: PreservedPositions
    clock: Clock
    is_draining: Callable[[], bool]
    """The task ends: nothing that would take time is begun."""
    is_over: Callable[[], bool]
    """An end would no longer get on the log: the next task ends the copy."""
    ended: Callable[[], None]
    """Called for each copy that has ended."""
    _waiting: set[PreservedCopy] = field(default_factory=set)
    """Those that end once nothing can lengthen them any more."""

    def give_up(self, taken: PreservedCopy, *, reason: str, message: str) -> None:
        """End the copy where it comes to rest: it does not keep the offsets from there on."""
        if taken.giving_up is not None:
            return
        taken.giving_up = reason, message
        taken.copy.is_full = True
        if taken.is_end_known:
            taken.forget_queued(self.clock.monotonic())
        self.end_at_rest(taken)

    def end_at_rest(self, taken: PreservedCopy) -> None:
        """End a copy that is given up, if it has come to rest."""
        if taken.giving_up is None or taken.copy.needs_translation or self.is_over():
            return
        if not taken.is_at_rest:
            return
        if self.seconds_before_still(taken) > 0:
            self.check_later(taken)
        elif not taken.appends.is_end_read:
            # The next owner recognises by the leader epoch of the end whether the copy loses records.
            self.check(taken)
        else:
            (reason, message), position = taken.giving_up, taken.copy.committed
            # A range that is left out and not filled yet lies behind the end of the copy.
            until = min(position, taken.appends.acknowledged)
            self.end(taken, position, until=until, reason=reason, message=message)

    def end(self, taken: PreservedCopy, position: int, *, until: int, reason: str, message: str) -> None:
        """Write nothing more to a copy at rest: it has the source's offsets below `until`, and what follows
        from `position` on cannot have them."""
        self.writer.remove(taken)
        taken.give_up(position, until=until, reason=reason, message=message)
        self.positions.store_end(taken, until=until, reason=reason)
        self.ended()

    def check(self, taken: PreservedCopy) -> None:
        """Read the end of a copy at rest again."""
        taken.appends.doubt()
        self.writer.wake(taken)

    def seconds_before_still(self, taken: PreservedCopy) -> float:
        """How long a batch of the task before, or of this one whose answer was lost, may still lengthen the
        copy."""
        answered_at = taken.lost_at + self.writer.settings.request_timeout_seconds
        return max(0.0, max(taken.alone_at, answered_at) - self.clock.monotonic())

    def check_later(self, taken: PreservedCopy) -> None:
        """Read the end of a copy at rest again once nothing can lengthen it any more: what comes late would
        be copied again behind its end."""
        if taken in self._waiting:
            return
        self._waiting.add(taken)

        def end() -> None:
            self._waiting.discard(taken)
            if not taken.copy.needs_translation and not self.is_draining():
                self.check(taken)

        asyncio.get_running_loop().call_later(self.seconds_before_still(taken) + LOOK_SECONDS, end)
