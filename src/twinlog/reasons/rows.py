"""The form of a row, and remedies that many rows share."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class OwnReason:
    """One row."""

    name: str
    meaning: str
    remedy: str
    """"nothing" when the condition ends by itself."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons that users see in one place."""

    title: str
    reasons: tuple[OwnReason, ...]


NOTHING: Final = "nothing"
REPLACE: Final = "to have the source's offsets, replace the target topic (docs/offsets.md)"
RUN_AGAIN: Final = "run the command again"
READ_THE_MESSAGE: Final = "the message names what is wrong"
