"""How a command fails: one line on stderr that names the thing and the remedy, and an exit code.

Exit codes of every command: 0 it did what was asked; 1 it did not; 2 the command line or the configuration is
wrong.
"""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from twinlog.errors import ConfigError, TwinlogError

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130


@contextmanager
def reported_failures() -> Iterator[None]:
    """Turn our errors, Ctrl-C and a closed pipe into messages and exit codes."""
    try:
        yield
    except ExceptionGroup as failures:
        _report(_first(failures))
    except Exception as error:  # noqa: BLE001 (what is not ours is raised again)
        _report(error)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _first(failure: Exception) -> Exception:
    """The first leaf of what a group of tasks failed with: the others were cancelled by it."""
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _report(failure: Exception) -> None:
    try:
        raise failure
    except ConfigError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_WRONG_USE) from None
    except TwinlogError as error:
        typer.echo(f"error: {error} ({error.reason})", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    except BrokenPipeError:
        # Whoever read our output (head, less) has enough; nothing may be flushed into it at exit.
        sys.stdout = None
        raise typer.Exit(0) from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine under `reported_failures`."""
    with reported_failures():
        return asyncio.run(work)
    raise AssertionError("reported_failures swallows nothing")
