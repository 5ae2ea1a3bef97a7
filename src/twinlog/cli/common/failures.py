"""How a command fails: a line on stderr that names the thing and the remedy, one with the command that helps,
and an exit code. With `-o json` both are one document: error, reason, metadata, next.

Exit codes of every command: 0 it did what was asked; 1 it did not; 2 the command line or the configuration is
wrong.
"""

import asyncio
import json
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import typer

from twinlog.cli.common.next_command import next_command
from twinlog.errors import ConfigError, TwinlogError
from twinlog.printable import printable_json

T = TypeVar("T")

ANSWERS_IN_JSON: ContextVar[bool] = ContextVar("ANSWERS_IN_JSON", default=False)
"""Whether the command that runs was called with `-o json`."""

GIVEN_FILE: ContextVar[str] = ContextVar("GIVEN_FILE", default="")
"""The properties file that the command that runs was given; empty = none."""

GIVEN_ENDPOINTS: ContextVar[tuple[str, ...]] = ContextVar("GIVEN_ENDPOINTS", default=())
"""The addresses of services that the command that runs was given."""

COMMAND: ContextVar[str] = ContextVar("COMMAND", default="twinlog")
"""The command that runs: `twinlog positions set`, however the program was started."""

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130


@contextmanager
def reported_failures(failed: int = EXIT_FAILED) -> Iterator[None]:
    """Turn our errors, Ctrl-C and a closed pipe into messages and exit codes. `failed` is that of a command
    whose exit code 1 says something else."""
    try:
        yield
    except ExceptionGroup as failures:
        _report(_first(failures), failed)
    except Exception as error:  # noqa: BLE001 (what is not ours is raised again)
        _report(error, failed)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _first(failure: Exception) -> Exception:
    """The first leaf of what a group of tasks failed with: the others were cancelled by it."""
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _report(failure: Exception, failed: int) -> None:
    try:
        raise failure
    except ConfigError as error:
        _say(error, f"error: {error}")
        raise typer.Exit(EXIT_WRONG_USE) from None
    except TwinlogError as error:
        _say(error, f"error: {error} ({error.reason})")
        raise typer.Exit(failed) from None
    except BrokenPipeError:
        # The reader of our output (head, less) has enough; nothing may be flushed into it at exit.
        sys.stdout = None
        raise typer.Exit(0) from None


def _say(error: TwinlogError, text: str) -> None:
    """On stderr; as one JSON document where the command's answer would be JSON."""
    helps = help_after(error)
    if ANSWERS_IN_JSON.get():
        told = {"error": str(error), "reason": error.reason, "metadata": dict(error.metadata), "next": helps}
        text = printable_json(json.dumps(told, ensure_ascii=False))
    else:
        text = f"{text}\nnext: {helps}"
    typer.echo(text, err=True)


def help_after(error: TwinlogError) -> str:
    """The command that helps after an error of the command that runs."""
    return next_command(error.reason, error.metadata, command=COMMAND.get(), file=GIVEN_FILE.get())


def run_async(work: Coroutine[Any, Any, T], failed: int = EXIT_FAILED) -> T:
    """Run a command's coroutine under `reported_failures`."""
    with reported_failures(failed):
        return asyncio.run(work)
    raise AssertionError("reported_failures swallows nothing")
