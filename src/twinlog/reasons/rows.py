"""What a row of the tables holds, and remedies that many rows have."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OwnReason:
    """One row."""

    name: str
    meaning: str
    remedy: str
    """What to do; "nothing" where it heals or ends by itself."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons that are met in one place."""

    title: str
    reasons: tuple[OwnReason, ...]


NOTHING: Final = "nothing"
REPLACE: Final = "to have the source's offsets, replace the target topic (docs/offsets.md)"
RUN_AGAIN: Final = "run the command again"
READ_THE_MESSAGE: Final = "the message names what is wrong"
