"""Since when a partition that should make progress has made none. Pure: takes `now`."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class StallWatch:
    """Invariant: a partition that makes progress, has nothing to copy, or is paused is never stalled."""

    _position: int | None = None
    _since: float | None = None

    def observe(self, position: int | None, *, must_move: bool, now: float) -> None:
        """Take the present position. `must_move`: it has records to copy, and nobody paused it."""
        if not must_move:
            self._since = None
        elif self._since is None or position != self._position:
            self._since = now
        self._position = position

    def since(self, stalled_seconds: float, *, now: float) -> float | None:
        """The time of its last progress, if that is at least `stalled_seconds` ago; otherwise None."""
        if self._since is None or now - self._since < stalled_seconds:
            return None
        return self._since
