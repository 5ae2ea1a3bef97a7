"""Waits before the next try: they double, they end at a longest one, and jitter never makes them longer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.backoff import Jitter, backoff_seconds


def test_a_wait_doubles_with_each_failure_up_to_the_longest() -> None:
    waits = [backoff_seconds(failures, first=0.5, longest=3.0) for failures in range(5)]
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff_seconds(10_000, first=0.5, longest=3.0) == 3.0


@pytest.mark.parametrize(("jitter", "least"), [(Jitter.FULL, 0.0), (Jitter.EQUAL, 0.5), (Jitter.NONE, 1.0)])
@given(failures=st.integers(0, 100), random=st.floats(0, 1, exclude_max=True))
def test_jitter_takes_from_a_wait_and_never_adds(
    jitter: Jitter, least: float, failures: int, random: float
) -> None:
    whole = backoff_seconds(failures, first=0.1, longest=60.0)
    wait = backoff_seconds(failures, first=0.1, longest=60.0, jitter=jitter, random=random)
    assert least * whole <= wait <= whole
