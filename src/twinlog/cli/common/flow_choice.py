"""Which flow a command is about: `A->B` as an argument, or after --flow; both mean the same everywhere."""

from typing import Annotated

import typer

from twinlog.errors import ConfigError

OptionalFlowArgument = Annotated[
    str | None, typer.Argument(metavar="[A->B]", help="Only this flow.", show_default=False)
]
OptionalFlowOption = Annotated[
    str | None, typer.Option("--flow", metavar="A->B", help="Only this flow; the same as the argument.")
]


def chosen_flow(argument: str | None, option: str | None) -> str | None:
    """The flow that was named either way; None when it was left out. Raises ConfigError when both differ."""
    if argument is not None and option is not None and argument != option:
        raise ConfigError(
            f"two flows are named: {argument} and --flow {option}: name one", metadata={"key": "--flow"}
        )
    return argument if option is None else option


def required_flow(argument: str | None, option: str | None) -> str:
    """Raises ConfigError when none is named, or two."""
    flow = chosen_flow(argument, option)
    if flow is None:
        raise ConfigError("name the flow, such as 'A->B' (in quotes)", metadata={"key": "FLOW"})
    return flow


def is_flow(text: str) -> bool:
    """Whether an argument names a flow: `->` is in no topic's and no group's name that a flow could have."""
    return "->" in text
