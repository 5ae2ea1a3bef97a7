"""Commands in the process of the test: a second cheaper than a process, and what they print is the same."""

import asyncio
import contextvars
from subprocess import CompletedProcess

from typer.testing import CliRunner

from twinlog.cli import app


async def twinlog(*words: str) -> "CompletedProcess[str]":
    """`twinlog` with these words, in a thread and a context of its own; one at a time."""
    answer = await asyncio.to_thread(contextvars.Context().run, CliRunner().invoke, app, words)
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return CompletedProcess(words, answer.exit_code, answer.stdout, answer.stderr)
