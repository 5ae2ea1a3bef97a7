"""Since when a partition should move and did not. Pure: takes `now`."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class StallWatch:
    """Invariant: a partition that moves, has nothing to copy, or rests by command is never stalled."""

    _position: int | None = None
    _since: float | None = None

    def observe(self, position: int | None, *, must_move: bool, now: float) -> None:
        """Take where the partition stands; `must_move`: it has records to copy, and nobody paused it."""
        if not must_move:
            self._since = None
        elif self._since is None or position != self._position:
            self._since = now
        self._position = position

    def since(self, stalled_seconds: float, *, now: float) -> float | None:
        """When it moved last, if that is `stalled_seconds` ago or more; else None."""
        if self._since is None or now - self._since < stalled_seconds:
            return None
        return self._since
