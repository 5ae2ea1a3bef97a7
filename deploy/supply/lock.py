"""Writes the locks of deploy/requirements: `make lock`, or with newer versions `make lock ARGS=--upgrade`.

uv resolves once for everything, then cuts each lock out of that. Neither the address of a registry nor of a
local directory gets into a lock.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.supply.locks import FOLDER, head, read, wanted

PYTHON = "3.11"
"""The oldest that Twinlog runs on: a lock holds for it and for newer ones."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make lock", description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    upgrade: bool = parser.parse_args(arguments).upgrade
    locks = wanted()
    with tempfile.TemporaryDirectory() as directory:
        everything = Path(directory) / "everything.txt"
        if not upgrade:
            everything.write_text(_known_versions())
        _resolve(sorted({each for lock in locks.values() for each in lock}), everything)
        for name, requirements in locks.items():
            part = Path(directory) / name
            _resolve(requirements, part, constraints=everything)
            (FOLDER / name).write_text(head(requirements) + _without_addresses(part.read_text()))
    return 0


def _known_versions() -> str:
    """The versions of the present locks, which stay where they fit."""
    lines = {
        f"{each.name}=={each.version}" + (f" ; {each.marker}" if each.marker else "")
        for path in sorted(FOLDER.glob("*.txt"))
        for each in read(path)
    }
    return "".join(f"{line}\n" for line in sorted(lines))


def _resolve(requirements: Sequence[str], output: Path, *, constraints: Path | None = None) -> None:
    source = output.with_suffix(".in")
    source.write_text("".join(f"{requirement}\n" for requirement in requirements))
    limits = ["--constraints", str(constraints)] if constraints else []
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-config", "--universal"),
            *("--python-version", PYTHON, "--generate-hashes", "--no-annotate", "--no-header", *limits),
            *("--output-file", str(output), str(source)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _without_addresses(text: str) -> str:
    """Without the options that name a registry or a directory."""
    return "".join(
        line for line in text.splitlines(keepends=True) if line.startswith((" ", "#")) or "==" in line
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
