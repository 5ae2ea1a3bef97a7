"""A hunk: records that the pass over both logs could not match. `judge` decides what it is."""

from dataclasses import dataclass

from twinlog.verify.comparing.entries import Entry


@dataclass(slots=True, kw_only=True)
class Hunk:
    """Records of only one side, between two places where both sides match."""

    source: list[Entry]
    target: list[Entry]
    source_before: int
    """Offset after the last matching record, or the beginning of the range."""
    target_before: int
    source_after: int | None
    """Offset of the next matching record; None without one."""
    target_after: int | None
    is_head: bool = False
    equal_until: int = 0
    """Offset after the last record of the source that was found equal before."""
    is_beyond: bool = False
    """It continues beyond the compared range."""

    @property
    def is_tail(self) -> bool:
        return self.target_after is None
