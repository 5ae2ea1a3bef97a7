"""How a command fails: one line on stderr with the cause and the remedy, one with a command that helps, and
an exit code. With `-o json` both are one document: error, reason, metadata, next.

Exit codes of every command: 0 = success; 1 = failure; 2 = the command line or the configuration is wrong; 141
= the reader of the output closed it before its end, and the command has no exit code of its own answer.
Commands for which 1 is an answer (`verify`) fail with another code, also for unexpected errors.
"""

import asyncio
import json
import logging
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any

import typer

from twinlog.cli.common.pasteable import GIVEN_FILE, next_command, pasteable, with_pasteable
from twinlog.errors import ConfigError, TwinlogError, first_of
from twinlog.printable import printable_json
from twinlog.supervisor.runs import silence

ANSWERS_IN_JSON: ContextVar[bool] = ContextVar("ANSWERS_IN_JSON", default=False)
"""Whether the running command was called with `-o json`."""

_FLOW = re.compile(r"[^\s>-][^\s>]*->[^\s>]+")
COMMAND: ContextVar[str] = ContextVar("COMMAND", default="twinlog")
"""The running command: `twinlog positions set`, however the program was started."""

FAILED: ContextVar[int] = ContextVar("FAILED", default=1)
"""The exit code of the running command when it fails: 1, unless that is one of its answers."""

RUN: ContextVar[Callable[[Coroutine[Any, Any, Any]], Any]] = ContextVar("RUN", default=asyncio.run)
"""Runs the work of a command; tests run it in the loop of simulated services."""


def run_logging_to_stderr(work: Coroutine[Any, Any, Any]) -> Any:
    """Structlog writes to stdout by default, where only the answer of a command belongs."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    return asyncio.run(work)


EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141
"""As a shell shows the end of other programs by SIGPIPE: 128 + 13."""


_SURPLUS = re.compile(r"unexpected extra argument\S* \((\S+).*\)")
_NAMES = ("--topic", "--group", "--service")
"""Options that name what a command is about."""
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
_OF_TYPER: tuple[type[Exception], ...] = (typer.Exit, typer.Abort, _UsageError.__bases__[0])
"""They end a command, or report wrong usage: typer prints them."""


def require_terminal() -> None:
    """Raises ConfigError if stdin is no terminal: a command that changes much cannot ask there."""
    if not sys.stdin.isatty():
        raise ConfigError("stdin is not a terminal, so the command cannot ask: give --yes", key="--yes")


def answers_in_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for `-o json`, as far as a wrong one can tell."""
    asked = ""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == "--":
            break
        if word in ("-o", "--output"):
            asked = following
        elif word.startswith("--output="):
            asked = word.removeprefix("--output=")
        elif word.startswith("-o"):
            asked = word.removeprefix("-o")
    return asked == "json"


@contextmanager
def told_failures() -> Iterator[None]:
    """The boundary of every command: turns Twinlog's errors, Ctrl-C, a closed pipe and unexpected errors into
    messages and exit codes, in the format of the command's answer."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (each of them is told)
        _report(first_of(error))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _say_wrong_use(error: Any) -> None:
    message = error.format_message()
    if message:  # A group without a command prints its help.
        param = getattr(error, "param", None)
        option = getattr(error, "option_name", None) or (param.opts[0] if param is not None else "")
        _say(ConfigError(message, metadata={"key": option} if option else {}), "")


@contextmanager
def exiting_with(code: int) -> Iterator[None]:
    """Print an answer inside. Afterwards the command exits with `code`, unless that is 0; so it does if the
    reader of the output closes it before its end (`head`, `grep -q`)."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
    if code:
        raise typer.Exit(code)


def _drop_output() -> None:
    """Discard what is printed from now on."""
    silence(sys.stdout)
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        silence(sys.stderr)


def _report(failure: Exception) -> None:
    failed = FAILED.get()
    try:
        raise failure
    except ConfigError as error:
        _say(error, f"error: {error}")
        raise typer.Exit(EXIT_WRONG_USE) from None
    except TwinlogError as error:
        _say(error, f"error: {error} ({error.reason})")
        raise typer.Exit(failed) from None
    except _UsageError as error:
        _name_option(error)
        if not ANSWERS_IN_JSON.get():
            raise
        _say_wrong_use(error)
        raise typer.Exit(EXIT_WRONG_USE) from None
    except _OF_TYPER:
        raise
    except BrokenPipeError:
        # The reader of our output (head, less) has enough. Whether all is well is not known: no success.
        _drop_output()
        raise typer.Exit(EXIT_UNREAD) from None
    except Exception as error:  # noqa: BLE001 (a bug: its traceback is told as well)
        _say_unexpected(error)
        raise typer.Exit(failed) from None


def _name_option(error: Any) -> None:
    """Say of a surplus word by which option of the command it is named."""
    found, ctx = _SURPLUS.search(error.message), getattr(error, "ctx", None)
    taken = {name for param in ctx.command.params for name in param.opts} if ctx is not None else set()
    option = next((each for each in _NAMES if each in taken), None)
    if found is not None and option is not None:
        what = option.removeprefix("--")
        error.message += f". A {what} is named with an option: {option} {shlex.quote(found[1])}"


def _say_unexpected(failure: Exception) -> None:
    """Print it without values of variables, which may be secret."""
    told = "".join(traceback.format_exception(failure))
    error = TwinlogError(
        f"unexpected {type(failure).__name__}: {failure}: this is a bug of Twinlog, please report it with the"
        " traceback",
        metadata={"traceback": told} if ANSWERS_IN_JSON.get() else {},
    )
    if not ANSWERS_IN_JSON.get():
        _say_text(told.rstrip("\n"))
    _say(error, f"error: {error} ({error.reason})")


def _say(error: TwinlogError, text: str) -> None:
    tell(error, f"{text}{next_line(error)}")


def tell(error: TwinlogError, text: str = "") -> None:
    """Print on stderr what failed: the text, else the error's own, or one JSON document if the command's
    answer would be JSON."""
    if ANSWERS_IN_JSON.get():
        told = {
            "error": str(error),
            "reason": error.reason,
            "metadata": dict(error.metadata),
            "next": help_after(error),
        }
        _say_text(printable_json(json.dumps(told, ensure_ascii=False)))
    else:
        _say_text(with_pasteable(text or str(error)))


def note(sentence: str) -> None:
    """Say on stderr what is no failure, in the format of the command's answer."""
    told = with_pasteable(sentence)
    _say_text(json.dumps({"note": told}, ensure_ascii=False) if ANSWERS_IN_JSON.get() else told)


def _say_text(text: str) -> None:
    """On stderr. The exit code is the same if nobody reads it (`2>&1 | head`)."""
    try:
        typer.echo(text, err=True)
    except BrokenPipeError:
        silence(sys.stderr)


def next_line(error: TwinlogError) -> str:
    """The last line about an error; empty if only the command that failed would help."""
    told = help_after(error)
    first = "correct that, then " if _repeats(told) else ""
    return f"\nnext: {first}{told}" if told else ""


def help_after(error: TwinlogError) -> str:
    """The command that helps after an error of the running command; empty if that is the command itself,
    unless a file has to be corrected before."""
    # The error need not name the flow that the command was given.
    given = next((word for word in sys.argv[1:] if _FLOW.fullmatch(word)), "")
    told = next_command(
        error.reason,
        {"flow": given, **error.metadata},
        command=COMMAND.get(),
        file=GIVEN_FILE.get(),
    )
    return "" if _repeats(told) and error.reason != ConfigError.default_reason else pasteable(told)


def _repeats(told: str) -> bool:
    command = COMMAND.get()
    return " " in command and f"{told} ".startswith(f"{command} ") and " --" not in told
