"""A page of docs/migration, whose commands a test runs as they stand there: with real names in place of the
page's, and with stand-ins for programs that no test has (`kubectl`)."""

import asyncio
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "migration"
PROGRAMS = ("twinlog", "curl", "kubectl", "kafka-consumer-groups.sh")
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_ENOUGH_WORDS = 3
"""`twinlog adopt` is a word of a sentence, `twinlog run mm2.properties` a command."""

_PYTHON = f'exec "{sys.executable}"'
_GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_GROUPS = f"""{_PYTHON} -c 'import sys; from twinlog.testing.java.mm2 import run_java_tool
run_java_tool("{_GROUPS_TOOL}", *sys.argv[1:])' "$@\""""
_JQ = f"""{_PYTHON} -c 'import json, sys
for each in json.load(sys.stdin):
    print("\\"%s\\",%d,%d" % (each["topic"], each["partition"], each["position"]))'"""
"""What the filter of the pages does, where there is no jq."""


def commands(text: str) -> Iterator[str]:
    """The command lines of a page: in blocks without a language, and between backticks."""
    for language, block in _BLOCK.findall(text):
        if not language:
            yield from re.sub(r"\|\n\s*", "| ", textwrap.dedent(block)).splitlines()
    for span in _SPAN.findall(_BLOCK.sub("", text)):
        words = span.split()
        if words[0] in PROGRAMS and len(words) >= _ENOUGH_WORDS:
            yield " ".join(words)


class Guide:
    """Commands run in `directory`. `programs`: name -> what a shell runs in its place."""

    def __init__(self, page: str, directory: Path, programs: Mapping[str, str] | None = None) -> None:
        self._page, self._directory = page, directory
        self._commands = [*dict.fromkeys(commands((PAGES / page).read_text()))]
        self._done: set[str] = set()
        self._programs = directory / "programs"
        self._programs.mkdir(exist_ok=True)
        stand_ins = {"twinlog": f'{_PYTHON} -m twinlog "$@"', "kafka-consumer-groups.sh": _GROUPS}
        if not shutil.which("jq"):
            stand_ins["jq"] = _JQ
        for name, script in {**stand_ins, **(programs or {})}.items():
            program = self._programs / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    def command(self, beginning: str, names: Mapping[str, str] | None = None) -> str:
        """The page's one command that begins so, with real names. Raises AssertionError without it."""
        found = [each for each in self._commands if each.startswith(beginning)]
        assert len(found) == 1, f"{self._page} has {len(found)} commands {beginning!r}: {self._commands}"
        self._done.add(found[0])
        command = found[0]
        for written, real in (names or {}).items():
            assert written in command, f"{written!r} is not in {command!r} of {self._page}"
            command = command.replace(written, real)
        return command

    async def run(
        self, beginning: str, names: Mapping[str, str] | None = None, *, code: int = 0
    ) -> tuple[str, str]:
        """Run it to its end, which has to be `code`; what it wrote to stdout and stderr."""
        command = self.command(beginning, names)
        process = await asyncio.create_subprocess_shell(
            f'set -e; PATH="{self._programs}:$PATH"; {command}', cwd=self._directory,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, said = await process.communicate()
        assert process.returncode == code, (command, out.decode(), said.decode())
        return out.decode(), said.decode()

    @property
    def left(self) -> list[str]:
        """Commands that nobody asked for."""
        return [each for each in self._commands if each not in self._done]
