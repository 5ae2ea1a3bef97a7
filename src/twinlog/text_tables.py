"""Tables that are texts beside a module: `## heading | more of it`, and a row in each line below. A line that
is indented goes on with the one before; what stands above the first heading explains the table.

Pages of docs/ have tables between two comments, which are written anew from them.
"""

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path


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


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)


def renewed(page: str, tables: Mapping[str, str]) -> str:
    """The page with each table anew.

    >>> renewed("# A\\n<!-- keys -->\\nold\\n<!-- end -->\\nmore\\n", {"keys": "new\\n"})
    '# A\\n<!-- keys -->\\nnew\\n<!-- end -->\\nmore\\n'
    """
    for name, table in tables.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        assert begin, name
        page = before + begin + table + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    return page


def renew(page: Path, tables: Mapping[str, str]) -> None:
    page.write_text(renewed(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
