"""Tables with hundreds of rows are one test each: one that fails names its row."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def about(*row: object) -> Iterator[None]:
    """What fails in here, fails for this row."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"row: {', '.join(map(repr, row))}")
        raise
