"""Waiting for a condition."""

from collections.abc import Iterator

import pytest

from twinlog.testing.brokers import eventually, unique_name


def _answers(*values: object) -> Iterator[object]:
    yield from values


async def test_gives_the_first_true_answer() -> None:
    answers = _answers(None, 0, "here", "not asked")
    assert await eventually(lambda: next(answers), timeout_seconds=5) == "here"
    assert next(answers) == "not asked"


async def test_awaits_a_coroutine() -> None:
    async def answer() -> str:
        return "here"

    assert await eventually(answer, timeout_seconds=5) == "here"


async def test_failed_assert_counts_as_not_yet() -> None:
    answers = _answers(False, True)

    def holds() -> bool:
        assert next(answers), "too early"
        return True

    assert await eventually(holds, timeout_seconds=5)


async def test_tells_the_last_answer_and_the_last_failed_assert() -> None:
    with pytest.raises(AssertionError, match=r"not so within 0 s: it gave 0"):
        await eventually(lambda: 0, timeout_seconds=0)

    def never() -> bool:
        assert not "lag 5", "still behind"
        return True

    with pytest.raises(AssertionError, match="still behind"):
        await eventually(never, timeout_seconds=0)


async def test_other_errors_are_not_waited_out() -> None:
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 // 0, timeout_seconds=5)


def test_unique_names_are_fit_for_topics() -> None:
    first, second = unique_name("reads[all codecs]"), unique_name("reads[all codecs]")
    assert first != second
    assert first.startswith("reads-all-codecs-")
    assert len(unique_name("x" * 400)) <= 249
