"""What our distributions ask for, read from their pyproject.toml. Standard library only."""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
SERVICES: Final = frozenset(f"twinlog-{name}" for name in ("checkpoint", "configsync", "heartbeat", "source"))
"""What `pip install twinlog` brings along, and the image of the command line does not hold."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required_name(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return canonical(match.group())


@dataclass(frozen=True, kw_only=True)
class Project:
    directory: Path
    name: str
    version: str
    dependencies: tuple[str, ...]
    extras: Mapping[str, tuple[str, ...]]
    build: tuple[str, ...]
    """What its wheel is built with."""


def projects() -> dict[str, Project]:
    """All of this tree, by name."""
    files = [ROOT / "pyproject.toml", *sorted(ROOT.glob("*/*/pyproject.toml"))]
    return {project.name: project for project in map(_read, files)}


def ours_in(name: str, *, without: Collection[str] = ()) -> tuple[Project, ...]:
    """A distribution and those of ours that it needs, in the order of their names."""
    known = {each: project for each, project in projects().items() if each not in without}
    found: set[str] = set()
    waiting = [name]
    while waiting:
        project = known[waiting.pop()]
        if project.name not in found:
            found.add(project.name)
            waiting += [needed for each in project.dependencies if (needed := required_name(each)) in known]
    return tuple(known[each] for each in sorted(found))


def required_of_others(
    wanted: Mapping[str, tuple[str, ...]], *, without: Collection[str] = ()
) -> tuple[str, ...]:
    """Requirements on packages of others, sorted: of distributions of ours with these extras, and of those
    of ours that they need."""
    return tuple(sorted(set(_required(wanted, without))))


def _required(wanted: Mapping[str, tuple[str, ...]], without: Collection[str]) -> Iterator[str]:
    known = projects()
    for name, extras in wanted.items():
        for project in ours_in(name, without=without):
            yield from (each for each in project.dependencies if required_name(each) not in known)
        for extra in extras:
            yield from known[name].extras[extra]


def _read(file: Path) -> Project:
    document = tomllib.loads(file.read_text())
    project = document["project"]
    return Project(
        directory=file.parent,
        name=project["name"],
        version=project["version"],
        dependencies=tuple(project["dependencies"]),
        extras={name: tuple(needs) for name, needs in project.get("optional-dependencies", {}).items()},
        build=tuple(document["build-system"]["requires"]),
    )
