"""Options and arguments of commands. The flow of a command, `A->B`, is its first argument; `--flow` means the
same and is hidden in the help."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from twinlog.api.common.v1 import types_pb2
from twinlog.cli.common.failures import ANSWERS_IN_JSON, EXIT_FAILED, exiting_with, next_line, tell
from twinlog.cli.common.names import flow_name
from twinlog.errors import ConfigError, TwinlogError


def option(flags: str, text: str, default: Any = ..., **more: Any) -> Any:
    """An option with its help, as the default of a parameter or in its annotation. `flags`: its names, and
    what its value is called, such as `--min-lag N`; `more`: as of `typer.Option`."""
    words = flags.split()
    names = [word for word in words if word.startswith("-")]
    return typer.Option(default, *names, metavar=" ".join(words[len(names) :]) or None, help=text, **more)


def flag(flags: str, text: str) -> Any:
    """An option that is given or not."""
    return option(flags, text, False)


def argument(shown: str | None, text: str, default: Any = ..., **more: Any) -> Any:
    """The same for an argument: `shown` is how the help calls it."""
    return typer.Argument(default, metavar=shown, help=text, show_default=bool(default), **more)


def group(text: str) -> typer.Typer:
    """Commands below one name, with its help."""
    return typer.Typer(no_args_is_help=True, add_completion=False, help=text)


def together(maker: Callable[..., Any]) -> Any:
    """What this function makes of options of its own, as the default of one parameter."""
    return maker


# Asks every flow, so that one that cannot answer does not hide the others.

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFlow:
    """Why a flow gave no answer."""

    flow: str
    error: TwinlogError


async def ask_each(
    flows: Iterable[types_pb2.Flow], ask: Callable[[types_pb2.Flow], Awaitable[Answer]]
) -> list[Answer | FailedFlow]:
    """Return every flow's answer, or its failure. Raises ConfigError if the request itself is wrong."""
    answers: list[Answer | FailedFlow] = []
    for flow in flows:
        try:
            answers.append(await ask(flow))
        except ConfigError:
            raise
        except TwinlogError as error:
            answers.append(FailedFlow(flow=flow_name(flow), error=error))
    return answers


@contextmanager
def telling_failures(answers: Iterable[object]) -> Iterator[None]:
    """Tells the failures behind the answers that are printed inside, and exits with 1 if there are any. In
    JSON they are one document, with reason and remedy of the first: the answers have those of each."""
    failures = [each for each in answers if isinstance(each, FailedFlow)]
    with exiting_with(EXIT_FAILED if failures else 0):
        yield
        told = [_with_flow(failure) for failure in failures]
        if told and ANSWERS_IN_JSON.get():
            all_of_them, first = "; ".join(map(str, told)), told[0]
            told = [TwinlogError(all_of_them, reason=first.reason, metadata=first.metadata)]
        for error in told:
            tell(error, f"error: {error} ({error.reason}){next_line(error)}")


def _with_flow(failure: FailedFlow) -> TwinlogError:
    """As if the command had failed for this flow alone."""
    message = str(failure.error).removeprefix(f"{failure.flow}: ")
    return TwinlogError(
        f"{failure.flow}: {message}",
        reason=failure.error.reason,
        metadata={"flow": failure.flow, **failure.error.metadata},
    )


def failure_as_json(failure: FailedFlow) -> dict[str, Any]:
    return {"flow": failure.flow, "reason": failure.error.reason, "message": str(failure.error)}


if TYPE_CHECKING:
    from twinlog.config import Configuration

OptionalFlowArgument = Annotated[str | None, argument("[A->B]", "Only this flow.")]
OnlyFlowArgument = Annotated[str | None, argument("[A->B]", "The flow; not needed if the file has one.")]


def required_flow(flow: str | None) -> str:
    """Raises ConfigError when none is named."""
    if flow is None:
        raise ConfigError("name the flow, such as 'A->B' (in quotes)", key="FLOW")
    return flow


def flow_of_file(flow: str | None, configuration: "Configuration") -> str:
    """The named flow, or the only one that the file enables. Raises ConfigError when none is named and the
    file has none or several."""
    if flow is not None:
        return flow
    enabled = [str(each.flow) for each in configuration.enabled_flows]
    if len(enabled) == 1:
        return enabled[0]
    if not enabled:
        raise ConfigError("the file enables no flow (A->B.enabled = true)", key="FLOW")
    raise ConfigError(f"the file has several flows ({', '.join(enabled)}): name one, in quotes", key="FLOW")


def flow_and_names(words: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """The flow among the arguments of a command, and the others. Raises ConfigError for several flows."""
    flows = list(dict.fromkeys(filter(is_flow, words or ())))
    if len(flows) > 1:
        raise ConfigError(f"several flows are named: {', '.join(flows)}: name one", key="FLOW")
    return flows[0] if flows else None, [word for word in words or () if not is_flow(word)]


def named_of_flow(words: Sequence[str], what: str) -> tuple[str | None, str]:
    """Flow and name from `[A->B] NAME`, in either order. Raises ConfigError unless there is exactly one name,
    and at most one flow."""
    flow, names = flow_and_names(words)
    if len(names) != 1:
        raise ConfigError(
            f"{' '.join(words)}: expected one {what}, with or without a flow such as 'A->B' before it",
            key=what.upper(),
        )
    return flow, names[0]


def is_flow(text: str) -> bool:
    """Whether an argument names a flow: no name of a topic or group in a flow contains `->`."""
    return "->" in text
