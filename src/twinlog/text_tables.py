"""Tables that are texts beside a module: `## heading | more of it`, and a row in each line below. A line that
is indented goes on with the one before; what stands above the first heading explains the table."""

import pkgutil
import re
from collections.abc import Iterator


def read_table(package: str, file: str) -> Iterator[tuple[list[str], list[str]]]:
    """The parts of each heading, and its rows."""
    return parts_of((pkgutil.get_data(package, file) or b"").decode())


def parts_of(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """
    >>> list(parts_of("about it\\n## Gaps | twinlog gaps\\nLOST: it is\\n  gone\\n"))
    [(['Gaps', 'twinlog gaps'], ['LOST: it is gone'])]
    """
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, *rows = re.sub(r"\n +", " ", part).split("\n")
        yield heading.split(" | "), [row for row in rows if row]
