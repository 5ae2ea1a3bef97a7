"""How many random histories a model plays that Hypothesis does not drive."""

from hypothesis import settings


def histories(usually: int, exhaustively: int) -> int:
    """The first number; the second one by HYPOTHESIS_PROFILE=exhaustive make properties."""
    return exhaustively if settings().max_examples >= 1_000 else usually
