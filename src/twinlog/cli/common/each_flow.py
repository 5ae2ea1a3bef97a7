"""Asks every flow, so that one that cannot answer does not hide the others."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.failures import EXIT_FAILED, exiting_with, next_line, tell
from twinlog.cli.common.names import flow_name
from twinlog.errors import ConfigError, TwinlogError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFailure:
    """Why a flow gave no answer."""

    flow: str
    error: TwinlogError


async def ask_each(
    flows: Iterable[types_pb2.Flow], ask: Callable[[types_pb2.Flow], Awaitable[Answer]]
) -> list[Answer | FlowFailure]:
    """Return every flow's answer, or its failure. Raises ConfigError if the request itself is wrong."""
    answers: list[Answer | FlowFailure] = []
    for flow in flows:
        try:
            answers.append(await ask(flow))
        except ConfigError:
            raise
        except TwinlogError as error:
            answers.append(FlowFailure(flow=flow_name(flow), error=error))
    return answers


@contextmanager
def telling_failures(answers: Iterable[object]) -> Iterator[None]:
    """Tells the failures behind the answers that are printed inside, and exits with 1 if there are any."""
    failures = [each for each in answers if isinstance(each, FlowFailure)]
    with exiting_with(EXIT_FAILED if failures else 0):
        yield
        for failure in failures:
            print_failure(failure)


def print_failure(failure: FlowFailure) -> None:
    """Print on stderr with the flow, as if the command had failed for this flow alone."""
    message = str(failure.error).removeprefix(f"{failure.flow}: ")
    error = TwinlogError(
        f"{failure.flow}: {message}",
        reason=failure.error.reason,
        metadata={"flow": failure.flow, **failure.error.metadata},
    )
    tell(error, f"error: {error} ({error.reason}){next_line(error)}")


def failure_as_json(failure: FlowFailure) -> dict[str, Any]:
    return {"flow": failure.flow, "reason": failure.error.reason, "message": str(failure.error)}
