"""The form of a row, and of the text that rows are written in."""

import re
from dataclasses import dataclass


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


def reasons(table: str) -> tuple[OwnReason, ...]:
    """`NAME: meaning => remedy` for each reason; lines may be broken at blanks.

    >>> reasons("CONFLICT: the state changed\\n since it was read => read it again")[0].remedy
    'read it again'
    """
    rows = re.split(r"\n\s*(?=[A-Z_0-9]+: )", table)
    return tuple(_row(" ".join(row.split())) for row in rows if row.strip())


def _row(text: str) -> OwnReason:
    found = re.fullmatch(r"([A-Z_0-9]+): (.+) => (.+)", text)
    assert found is not None, text
    return OwnReason(*found.groups())
