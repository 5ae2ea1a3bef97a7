"""The locks of deploy/requirements: which packages of others are installed, at which versions and hashes.

A lock holds for every platform and for Python 3.11 and newer: markers say where a line applies. All locks are
cut out of one resolution, so CI tests the versions that the images hold.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.supply.projects import ROOT, SERVICES, canonical, projects, required_of_others

FOLDER = ROOT / "deploy" / "requirements"
_FINGERPRINT = "# Made from: "
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

OTHER_BUILDS = ("Cython>=3.1", "setuptools>=78", "wheel>=0.45")
"""What packages that come as sources alone are built with: pyspark, gssapi."""


@dataclass(frozen=True, kw_only=True)
class Locked:
    name: str
    version: str
    marker: str
    """Where it applies, as in PEP 508; empty: everywhere."""
    hashes: tuple[str, ...]
    """SHA-256 of every file of this version, in hexadecimal."""


def wanted() -> Mapping[str, tuple[str, ...]]:
    """What each lock was made for, by the name of its file: requirements, sorted."""
    known = projects()
    build = {requirement for project in known.values() for requirement in project.build}
    service: dict[str, tuple[str, ...]] = {"twinlog-service": ("oidc", "otlp")}
    source: dict[str, tuple[str, ...]] = {"twinlog-source": ("records",)}
    everything = dict.fromkeys(known, ()) | service | source | {"twinlog": ("dev", "local", "ui")}
    return {
        "build.txt": tuple(sorted({*build, *OTHER_BUILDS})),
        "library.txt": required_of_others(service),
        "source.txt": required_of_others(service | source),
        "all.txt": required_of_others(service | source | {"twinlog": ("ui",)}),
        "twinlog.txt": required_of_others(service | {"twinlog": ("ui",)}, without=SERVICES),
        "dev.txt": required_of_others(everything),
        "java.txt": known["twinlog"].extras["java"],
        "kerberos.txt": known["twinlog-core"].extras["gssapi"],
    }


def fingerprint(requirements: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(requirements).encode()).hexdigest()


def head(requirements: tuple[str, ...]) -> str:
    """The first lines of a lock, which say whether it is still that of the pyproject.toml files."""
    return (
        "# Written by `make lock`; docs/supply-chain.md says how.\n"
        f"{_FINGERPRINT}{fingerprint(requirements)}\n"
    )


def made_from(path: Path) -> str:
    """The fingerprint that a lock names, empty when there is none."""
    found = [line for line in path.read_text().splitlines() if line.startswith(_FINGERPRINT)]
    return found[0].removeprefix(_FINGERPRINT) if found else ""


def read(path: Path) -> tuple[Locked, ...]:
    """Raises ValueError for a line that is neither a package at one version, nor a hash, nor a comment."""
    packages: list[Locked] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if found := _HASH.search(line):
            packages[-1] = replace(packages[-1], hashes=(*packages[-1].hashes, found.group(1)))
        elif line_match := _LINE.match(line):
            name, version, marker = line_match.group("name", "version", "marker")
            packages.append(Locked(name=canonical(name), version=version, marker=marker or "", hashes=()))
        else:
            raise ValueError(f"{path.name}:{number}: {line!r} is no package at one version")
    return tuple(packages)


# Writes the locks of deploy/requirements: `make lock`, or with newer versions `make lock ARGS=--upgrade`.
#
# uv resolves once for everything, then cuts each lock out of that. Neither the address of a registry nor of
# a local directory gets into a lock.

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
