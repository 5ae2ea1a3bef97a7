"""A hunk: what the pass over both logs could not match, for `judge` to say what it is."""

from dataclasses import dataclass

from twinlog.verify.comparing.entries import Entry


@dataclass(slots=True, kw_only=True)
class Hunk:
    """Records that only one side has, between two places where both belong together."""

    source: list[Entry]
    target: list[Entry]
    source_before: int
    """Offset behind the last record that belongs together, or where the range begins."""
    target_before: int
    source_after: int | None
    """Offset of the next record that belongs together; None: there is none."""
    target_after: int | None
    is_head: bool = False
    equal_until: int = 0
    """Offset behind the last record of the source that was found equal before."""
    is_beyond: bool = False
    """It continues behind the range that is compared."""

    @property
    def is_tail(self) -> bool:
        return self.target_after is None
