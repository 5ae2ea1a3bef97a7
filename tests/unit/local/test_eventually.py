"""Waiting for a condition."""

from collections.abc import Iterator, Mapping

import grpc
import pytest

from twinlog.errors import FatalKafkaError, KafkaError, TransientKafkaError
from twinlog.testing.brokers import eventually, retry_admin, unique_name


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


async def test_errors_that_a_retry_may_heal_count_as_not_yet() -> None:
    refusals = iter([TransientKafkaError("moving"), _rpc_error(grpc.StatusCode.UNAVAILABLE)])

    def holds() -> bool:
        for refusal in refusals:
            raise refusal
        return True

    assert await eventually(holds, timeout_seconds=5)
    with pytest.raises(AssertionError, match=r"not so within 0 s: .*moving"):
        await eventually(lambda: _raise(TransientKafkaError("moving")), timeout_seconds=0)
    with pytest.raises(FatalKafkaError):
        await eventually(lambda: _raise(FatalKafkaError("never")), timeout_seconds=5)
    with pytest.raises(grpc.aio.AioRpcError):
        await eventually(lambda: _raise(_rpc_error(grpc.StatusCode.NOT_FOUND)), timeout_seconds=5)


async def test_a_change_is_made_again_while_it_is_refused_for_now() -> None:
    moving, exists = TransientKafkaError("moving"), FatalKafkaError("is there", reason="TOPIC_EXISTS")
    answers: list[Mapping[str, KafkaError | None]] = [{"a": moving, "b": None}, {"a": exists, "b": exists}]

    async def change() -> Mapping[str, KafkaError | None]:
        return answers.pop(0)

    await retry_admin(change)
    assert not answers


async def test_a_change_whose_answer_was_lost_may_have_been_made() -> None:
    answers = [TransientKafkaError("no answer in time"), FatalKafkaError("is there", reason="TOPIC_EXISTS")]

    async def change() -> Mapping[str, KafkaError | None]:
        answer = answers.pop(0)
        if answer.retriable:
            raise answer
        return {"a": answer}

    await retry_admin(change)
    assert not answers


async def test_a_change_that_is_refused_for_good_is_an_error_at_once() -> None:
    async def change() -> Mapping[str, KafkaError | None]:
        return {"a": FatalKafkaError("is there", reason="TOPIC_EXISTS"), "b": TransientKafkaError("moving")}

    with pytest.raises(FatalKafkaError, match="is there"):
        await retry_admin(change)


def _raise(error: Exception) -> bool:
    raise error


def _rpc_error(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


def test_unique_names_are_fit_for_topics() -> None:
    first, second = unique_name("reads[all codecs]"), unique_name("reads[all codecs]")
    assert first != second
    assert first.startswith("reads-all-codecs-")
    assert len(unique_name("x" * 400)) <= 249
