"""Every reason that Twinlog gives, every word of a state or verdict, and every error of Kafka, with what to
do: the table in `reasons.txt`, which docs/reasons.md is generated from. A test compares the code with it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from twinlog.text_tables import read_table

AGAIN: Final = "again"
"""What follows this word is for a failure that lasts."""
_ANY_FLOW: Final = "A->B"
_ROW: Final = re.compile(r"([A-Z_0-9]+)((?: -?\d+)*): (.+) => ([^|]+?)(?: \| (.+))?")


@dataclass(frozen=True, slots=True)
class Reason:
    """One row."""

    name: str
    meaning: str
    remedy: str
    """"nothing" when the condition ends by itself; it begins with AGAIN for what Twinlog tries again."""
    command: str
    """Which shows more of it, or mends it; empty where none does. Names in it are to be filled in."""
    codes: tuple[int, ...] = ()
    """Of Kafka's protocol."""

    @property
    def retriable(self) -> bool:
        """Of an error of Kafka: whether a retry may help."""
        return self.remedy.partition(";")[0] == AGAIN


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons that users see in one place."""

    title: str
    reasons: tuple[Reason, ...]


def _read_groups() -> Iterator[ReasonGroup]:
    for (title, *command), rows in read_table(__name__, "reasons.txt"):
        yield ReasonGroup(title, tuple(read_row(row, "".join(command)) for row in rows))


def read_row(line: str, command: str) -> Reason:
    """
    >>> read_row("LOST 7: it is gone => again", "twinlog gaps")
    Reason(name='LOST', meaning='it is gone', remedy='again', command='twinlog gaps', codes=(7,))
    """
    found = _ROW.fullmatch(line)
    assert found is not None, line
    name, codes, meaning, remedy, its_command = found.groups()
    return Reason(name, meaning, remedy, its_command or command, tuple(map(int, codes.split())))


*OWN, KAFKA = _read_groups()


def known_reasons(flow: str = _ANY_FLOW) -> dict[str, dict[str, str]]:
    """Meaning and remedy of every reason, Twinlog's own before Kafka's; a word may have several. Commands are
    about this flow."""
    found: dict[str, list[Reason]] = {}
    for reason in (reason for group in OWN for reason in group.reasons):
        found.setdefault(reason.name, []).append(reason)
    for reason in KAFKA.reasons:
        found.setdefault(reason.name, [reason])
    return {
        name: {
            "meaning": "; or: ".join(dict.fromkeys(each.meaning for each in told)),
            "remedy": "; or: ".join(dict.fromkeys(map(shown_remedy, told))).replace(
                f"'{_ANY_FLOW}'", shlex.quote(flow)
            ),
        }
        for name, told in found.items()
    }


def shown_remedy(reason: Reason) -> str:
    return re.sub(f"^{AGAIN}(?=;|$)", "Twinlog tries again by itself", reason.remedy)
