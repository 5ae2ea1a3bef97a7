"""Limits repeated log lines: writes the first at once, then at most one per interval with the number left
out."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Repeat:
    last_written: float
    left_out: int = 0


@dataclass(slots=True, kw_only=True)
class RepeatLimiter:
    """Pure: takes `now` in monotonic seconds. Beyond `max_keys` the oldest key is forgotten."""

    interval_seconds: float = 60.0
    max_keys: int = 1000
    _repeats: dict[object, _Repeat] = field(default_factory=dict)

    def admit(self, key: object, *, now: float) -> int | None:
        """None = leave this line out; otherwise write it, with the number left out since the last one."""
        repeat = self._repeats.get(key)
        if repeat is not None and now - repeat.last_written < self.interval_seconds:
            repeat.left_out += 1
            return None
        left_out = repeat.left_out if repeat is not None else 0
        self._repeats.pop(key, None)
        if len(self._repeats) >= self.max_keys:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = _Repeat(last_written=now)
        return left_out
